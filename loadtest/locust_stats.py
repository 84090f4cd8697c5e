"""What a recorder counted, put into Locust's statistics many at a time.

Importing this imports locust, which patches the standard library for gevent.
"""

from __future__ import annotations

import time

from locust.stats import RequestStats, StatsEntry, StatsError, bucket_response_time

from raylog.loadtest.histograms import value_of
from raylog.loadtest.recorder import Seen

METHOD = "kafka"
"""What stands where Locust has GET or POST."""
_US_PER_MS = 1_000


def feed(stats: RequestStats, name: str, seen: Seen, started_s: int) -> None:
    """Add what was seen of an operation; `started_s` is the run's start, s since 1970."""
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
    times_ms: list[float] = []
    for number, second in seen.seconds.items():
        entry.num_requests += second.requests + second.failures
        entry.num_none_requests += second.failures
        entry.num_failures += second.failures
        entry.total_content_length += second.bytes
        entry.num_reqs_per_sec[started_s + number] += second.requests + second.failures
        if second.failures:
            entry.num_fail_per_sec[started_s + number] += second.failures
        for index, count in second.counts.items():
            took_ms = value_of(index) / _US_PER_MS
            times_ms.append(took_ms)
            entry.total_response_time += round(took_ms * count)
            entry.response_times[bucket_response_time(took_ms)] += count
    if times_ms:
        entry.min_response_time, entry.max_response_time = int(min(times_ms)), round(max(times_ms))
    entry.last_request_timestamp = time.time()
    return entry
