"""What a broker's processes tell at `/metrics`, and how much counters grew between two scrapes.

Each process is compared with itself: one that misses a scrape, ends or is started takes its total
along, which is not what was done meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

Process = tuple[str, str]
"""Its labels `role` and `process`."""
Buckets = Mapping[float, float]
"""Upper bound in seconds to how many were at most that."""
_P99 = 0.99


def samples_of(text: str, is_wanted: Callable[[str], bool]) -> Iterator[Sample]:
    """The samples in those lines that are wanted; raises ValueError for what is no such text.

    A broker tells thousands: reading all of them would hold up who reads for a tenth of a second.
    """
    from prometheus_client.parser import text_string_to_metric_families

    lines = "".join(f"{line}\n" for line in text.splitlines() if is_wanted(line))
    for family in text_string_to_metric_families(lines):
        yield from family.samples


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


def p99_s(counts: Buckets) -> float | None:
    """The 99th percentile in seconds, as Prometheus estimates it; None: there is nothing."""
    total = max(counts.values(), default=0.0)
    if total <= 0:
        return None
    wanted, low, below = _P99 * total, 0.0, 0.0
    for bound, count in sorted(counts.items()):
        if count >= wanted:
            if math.isinf(bound):
                return low
            return low + (bound - low) * (wanted - below) / max(count - below, 1e-9)
        low, below = bound, count
    return low
