"""Adds a recorder's counts to Locust's statistics in bulk.

Importing this module imports locust, which patches the standard library for gevent.
"""

from __future__ import annotations

import time

import numpy as np
from locust.stats import RequestStats, StatsEntry, StatsError
from numpy.typing import NDArray

from raylog.loadtest.histograms import Counts, Numbers, sum_of, values_of
from raylog.loadtest.recorder import Seen

METHOD = "kafka"
"""Shown where Locust has GET or POST."""
_US_PER_MS = 1_000


def feed(stats: RequestStats, name: str, seen: Seen, started_s: int) -> None:
    """Add the counts of an operation; `started_s` is the start of the run, in s since 1970."""
    if not seen.seconds:
        return
    entry = _entry(stats, name, seen, started_s)
    stats.get(name, METHOD).extend(entry)
    stats.total.extend(entry)
    now = time.time()
    for text, count in seen.errors.items():
        key = StatsError.create_key(METHOD, name, text)
        error = stats.errors.setdefault(key, StatsError(METHOD, name, text, first_seen=now))
        error.occurrences += count
        error.last_seen = now


def _entry(stats: RequestStats, name: str, seen: Seen, started_s: int) -> StatsEntry:
    entry = StatsEntry(stats, name, METHOD)
    parts: list[Counts] = []
    for number, second in seen.seconds.items():
        entry.num_requests += second.requests + second.failures
        entry.num_none_requests += second.failures
        entry.num_failures += second.failures
        entry.total_content_length += second.bytes
        entry.num_reqs_per_sec[started_s + number] += second.requests + second.failures
        if second.failures:
            entry.num_fail_per_sec[started_s + number] += second.failures
        parts += second.latencies
    indexes, counts = sum_of(parts)
    if len(indexes):
        times_ms = values_of(indexes) / _US_PER_MS
        entry.min_response_time, entry.max_response_time = int(times_ms[0]), round(times_ms[-1])
        entry.total_response_time = round(float((times_ms * counts).sum()))
        rounded, places = np.unique(_rounded(times_ms), return_inverse=True)
        sums = np.bincount(places, counts).astype(np.int64)
        entry.response_times.update(zip(rounded.tolist(), sums.tolist(), strict=True))
    entry.last_request_timestamp = time.time()
    return entry


def _rounded(times_ms: NDArray[np.float64]) -> Numbers:
    """Response times rounded as in Locust: to 1 ms below 100 ms, to about 2 digits above."""
    step = np.where(times_ms < 100, 1, np.where(times_ms < 1_000, 10, 100))
    step = np.where(times_ms < 10_000, step, 1_000)
    rounded: Numbers = (np.round(times_ms / step) * step).astype(np.int64)
    return rounded
