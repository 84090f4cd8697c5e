"""Parses the brokers' `/metrics`, and computes how much counters grew between two scrapes.

Growth is computed per process: a process that starts, ends or misses a scrape changes the sum of
all processes by its whole counter, not by what it did between the scrapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

Process = tuple[str, str]
"""A process's labels `role` and `process`."""
Buckets = Mapping[float, float]
"""Upper bound in seconds -> number of observations up to that bound."""
_P99 = 0.99


def samples_of(text: str, is_wanted: Callable[[str], bool]) -> Iterator[Sample]:
    """Yield the samples in wanted lines. Raises ValueError if one is not in Prometheus's format.

    A broker exports thousands of samples: parsing all of them would block the caller for 0.1 s.
    """
    from prometheus_client.parser import text_string_to_metric_families

    lines = "".join(f"{line}\n" for line in text.splitlines() if is_wanted(line))
    for family in text_string_to_metric_families(lines):
        yield from family.samples


def process_of(labels: Mapping[str, str]) -> Process:
    """Return the process that a sample is from."""
    return labels.get("role", ""), labels.get("process", "")


def growth(before: Mapping[Process, float], now: Mapping[Process, float]) -> float | None:
    """Sum the growth of processes that did not restart between both scrapes; None without any."""
    grown = [
        value - before[one] for one, value in now.items() if one in before and value >= before[one]
    ]
    return sum(grown) if grown else None


def bucket_growth(
    before: Mapping[Process, Buckets], now: Mapping[Process, Buckets]
) -> dict[float, float]:
    """Return the same for each bucket of a histogram; empty without such processes."""
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
    """Return the 99th percentile in seconds, as Prometheus estimates it; None without data."""
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
