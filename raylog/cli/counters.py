"""How much counters of a broker's processes grew between two scrapes of its metrics.

Each process is compared with itself: one that misses a scrape, ends or is started takes its total
along, which is not what was done meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

Process = tuple[str, str]
"""Its labels `role` and `process`."""
Buckets = Mapping[float, float]
"""Upper bound in seconds to how many were at most that."""


def process_of(labels: Mapping[str, str]) -> Process:
    """Which process of a broker tells a sample."""
    return labels.get("role", ""), labels.get("process", "")


def growth(before: Mapping[Process, float], now: Mapping[Process, float]) -> float | None:
    """The growth of the processes in both scrapes that did not begin anew; None: there is none."""
    grown = [
        value - before[one] for one, value in now.items() if one in before and value >= before[one]
    ]
    return sum(grown) if grown else None


def bucket_growth(
    before: Mapping[Process, Buckets], now: Mapping[Process, Buckets]
) -> dict[float, float]:
    """The same for each bucket of a histogram."""
    grown: dict[float, float] = {}
    for one, buckets in now.items():
        if one not in before:
            continue
        counts = {bound: count - before[one].get(bound, 0.0) for bound, count in buckets.items()}
        if any(count < 0 for count in counts.values()):
            continue
        for bound, count in counts.items():
            grown[bound] = grown.get(bound, 0.0) + count
    return grown
