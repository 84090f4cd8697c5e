"""Users' results are counted as HdrHistogram does, in the second for which they were scheduled."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec

import numpy as np
import pytest

from raylog.loadtest.error_texts import OTHER_ERRORS, count_error, is_logged
from raylog.loadtest.histograms import (
    LATENCY_US_MAX,
    added_up,
    counted,
    counts_index,
    encoded,
    new_histogram,
    sum_of,
    values_of,
)
from raylog.loadtest.recorder import Recorder
from raylog.loadtest.results import Interval, Operation

START_US = 1_000_000_000


def recorder() -> Recorder:
    return Recorder(lambda: START_US + 2_500_000, START_US)


def one(taken: list[Operation]) -> Operation:
    (operation,) = taken
    return operation


def by_second(operation: Operation) -> dict[int, Interval]:
    return {interval.second: interval for interval in operation.intervals}


def test_counts_are_where_hdrhistogram_has_them() -> None:
    chance = random.Random(1)
    values = [1, 2, 2_047, 2_048, 2_049, 4_095, 4_096, LATENCY_US_MAX]
    values += [int(10 ** chance.uniform(0, 9.5)) for _ in range(500)]
    histogram = new_histogram()
    for value in values:
        histogram.record_value(value)
    column = np.array(values, np.int64)
    assert counts_index(column).tolist() == [histogram._counts_index_for(v) for v in values]
    assert list(added_up([encoded(counted(column))]).counts) == list(histogram.counts)


def test_values_out_of_range_count_as_the_nearest() -> None:
    lowest, highest = values_of(counts_index(np.array([-5, LATENCY_US_MAX * 10]))).tolist()
    assert lowest == 1
    assert highest == pytest.approx(LATENCY_US_MAX, rel=0.001)


def test_parts_add_up() -> None:
    parts = [
        counted(np.array(values, np.int64)) for values in ([1, 1, 5_000], [], [1, 70, 5_001], [9])
    ]
    total = sum_of(parts)
    assert total.indexes.tolist() == sorted(total.indexes.tolist())
    assert total.counts.sum() == 7
    whole = added_up([encoded(part) for part in parts])
    assert list(added_up([encoded(total)]).counts) == list(whole.counts)
    assert added_up([encoded(sum_of([]))]).total_count == 0


def test_requests_belong_to_the_second_they_were_meant_for() -> None:
    counts = recorder()
    late_us = START_US + 5_000_000
    counts.done("produce", START_US + 999_999, late_us, 10)
    counts.done_many("produce", [START_US + 1_000_000, START_US + 1_000_001], late_us, 20)
    counts.done_columns("produce", np.array([START_US + 2_000_000]), late_us, 30)
    operation = one(counts.take())
    assert (operation.name, operation.errors) == ("produce", {})
    seconds = by_second(operation)
    assert {second: (of.requests, of.bytes) for second, of in seconds.items()} == {
        0: (1, 10),
        1: (2, 20),
        2: (1, 30),
    }
    assert added_up([seconds[0].latencies]).get_max_value() == pytest.approx(4_000_001, rel=0.001)
    assert counts.take() == []


def test_failures_belong_to_their_second_too() -> None:
    counts = recorder()
    counts.failed("commit", "REBALANCE")
    counts.failed("commit", "TIMEOUT", START_US)
    counts.failed_many("commit", "TIMEOUT", [START_US + 7_000_000, START_US + 6_999_999, START_US])
    counts.failed_many("commit", "NEVER SEEN", [])
    operation = one(counts.take())
    assert operation.errors == {"REBALANCE": 1, "TIMEOUT": 4}
    seconds = by_second(operation)
    assert {second: of.failures for second, of in seconds.items()} == {0: 2, 2: 1, 6: 1, 7: 1}


def test_texts_of_errors_are_bounded() -> None:
    counts = recorder()
    for number in range(300):
        counts.failed("produce", f"{number} " + "x" * 1_000)
    errors = one(counts.take()).errors
    assert len(errors) == 100
    assert errors[OTHER_ERRORS] == 201
    assert max(map(len, errors)) == 300


def test_any_number_of_requests_can_wait_to_be_taken() -> None:
    counts = recorder()
    times = list(range(START_US, START_US + 3_000_000, 30))
    for start in range(0, len(times), 1_000):
        counts.done_many("produce", times[start : start + 1_000], START_US + 4_000_000)
    operation = one(counts.take())
    assert sum(interval.requests for interval in operation.intervals) == len(times) == 100_000
    total = added_up(interval.latencies for interval in operation.intervals)
    assert total.total_count == len(times)


_LOCUST = """
import json, gevent.monkey
gevent.monkey.patch_all()
from locust.stats import RequestStats
from raylog.loadtest.recorder import Recorder
stats, other = RequestStats(), RequestStats()
counts = Recorder(lambda: 0, 0)
counts.locust = stats
for took in (3, 120, 1_234, 56_789):
    counts.done("produce", 0, took * 1_000, 10)
    other.log_request("kafka", "produce", took, 10)
for _ in range(2):
    counts.failed("produce", "no leader")
    other.log_request("kafka", "produce", None, 0)
    other.log_error("kafka", "produce", "no leader")
counts.take()
def told(stats, entry):
    percentiles = [entry.get_response_time_percentile(at) for at in (0.5, 0.9, 1.0)]
    errors = [(error.error, error.occurrences) for error in stats.errors.values()]
    return [entry.num_requests, entry.num_failures, entry.num_none_requests,
            entry.total_content_length, percentiles, errors]
print(json.dumps([[told(one, one.total), told(one, one.get("produce", "kafka"))]
                  for one in (stats, other)]))
"""


@pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed")
def test_locust_is_notified_as_if_request_by_request() -> None:
    """In a process of its own, which gevent patches."""
    done = subprocess.run(
        [sys.executable, "-c", _LOCUST], capture_output=True, text=True, timeout=60, check=True
    )
    ours, by_locust = json.loads(done.stdout)
    assert ours == by_locust


def test_an_error_is_logged_now_and_then() -> None:
    errors: Counter[str] = Counter()
    logged = [times for times in range(1, 1_200) if is_logged(count_error(errors, "no room"))]
    assert logged == [1, 10, 100, 1_000]
    assert errors == {"no room": 1_199}
