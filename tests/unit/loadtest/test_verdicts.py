"""Thresholds: the value found for each, from which seconds, and whether it held."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.loadtest.histograms import added_up
from raylog.loadtest.results import Interval, Operation
from raylog.loadtest.scenario import Threshold
from raylog.loadtest.verdicts import FAILED_MS, Measured, judge, nothing_acknowledged, step_held


def second(number: int, latencies_ms: list[int], failures: int = 0) -> Interval:
    latencies = added_up([])
    for one in latencies_ms:
        latencies.record_value(one * 1000)
    return Interval(
        second=number,
        requests=len(latencies_ms),
        failures=failures,
        bytes=100 * len(latencies_ms),
        latencies=latencies.encode().decode(),
    )


def measured(lag: int | None = None, meant: float = 200) -> Measured:
    intervals = [
        second(1, [10] * 97 + [70, 70, 90], failures=1),
        second(2, [10] * 99, failures=1),
    ]
    produce = Operation(name="produce", errors={}, intervals=intervals)
    return Measured({"produce": produce}, 2, 180, meant, lag)


@pytest.mark.parametrize(
    ("limit", "found", "held"),
    [
        ({"operation": "produce", "percentile": "p99_ms", "max_ms": 91}, 90, True),
        ({"operation": "produce", "percentile": "p99_ms", "max_ms": 89}, 90, False),
        ({"operation": "produce", "percentile": "p50_ms", "max_ms": 11}, 10, True),
        ({"operation": "produce", "percentile": "max_ms", "max_ms": 91}, FAILED_MS, False),
        ({"operation": "produce", "percentile": "max_ms", "max_ms": 1e9}, FAILED_MS, False),
        ({"operation": "produce", "errors_share": 0.01}, 2 / 201, True),
        ({"operation": "produce", "errors_share": 0.0}, 2 / 201, False),
        ({"operation": "join", "errors_share": 1.0}, None, False),
        ({"operation": "join", "percentile": "p50_ms", "max_ms": 1}, None, False),
        ({"lag_records": 6}, 7, False),
        ({"lag_records": 7}, 7, True),
        ({"throughput_share": 0.9}, 0.9, True),
        ({"throughput_share": 0.91}, 0.9, False),
    ],
)
def test_a_threshold(limit: dict[str, Any], found: float | None, held: bool) -> None:
    (verdict,) = judge([Threshold.model_validate(limit)], measured(lag=7))
    assert verdict.held is held
    assert verdict.found == (None if found is None else pytest.approx(found, rel=2e-3))


def test_a_lag_that_nobody_reported_does_not_hold() -> None:
    (verdict,) = judge([Threshold(lag_records=10)], measured())
    assert (verdict.found, verdict.held) == (None, False)


def test_a_step_that_did_not_keep_up_did_not_hold() -> None:
    assert not step_held([], measured())
    in_time = measured(meant=188)
    assert step_held([], in_time)
    assert not step_held([Threshold(throughput_share=1.0)], in_time)
    assert in_time.acknowledged_per_s == 90


def test_requests_that_never_complete_are_above_every_limit() -> None:
    """44 % of the records have failed; the others were quick."""
    intervals = [second(1, [5] * 56), second(2, [], failures=44)]
    produce = Operation(name="produce", errors={}, intervals=intervals)
    found = Measured({"produce": produce}, 2, 56, 100, None)
    limits = [("p50_ms", True), ("p90_ms", False), ("p99_ms", False), ("max_ms", False)]
    for percentile, held in limits:
        limit = Threshold(operation="produce", percentile=percentile, max_ms=3000)  # type: ignore[arg-type]
        (verdict,) = judge([limit], found)
        assert verdict.held is held, percentile


def test_a_step_does_not_hold_while_a_few_records_have_no_answer() -> None:
    """4 % of them: the others are quick."""
    produce = Operation(name="produce", errors={}, intervals=[second(1, [5] * 960)])
    slow = Threshold(operation="produce", percentile="p99_ms", max_ms=20)
    failing = Threshold(operation="produce", errors_share=0.001)
    half = Threshold(operation="produce", percentile="p50_ms", max_ms=20)
    found = Measured({"produce": produce}, 1, 960, 1000, None)
    assert not step_held([slow], found)
    assert not step_held([failing], found)
    assert step_held([half], found)
    assert step_held([slow, failing], Measured({"produce": produce}, 1, 960, 964, None, 4)), (
        "four users are off by a part of a record"
    )


def test_nothing_was_acknowledged() -> None:
    assert nothing_acknowledged(Measured({}, 10, 0, 100, None))
    assert not nothing_acknowledged(Measured({}, 10, 1, 100, None))
    assert not nothing_acknowledged(Measured({}, 10, 0, 0, None)), "nobody writes"


def test_nothing_was_meant() -> None:
    (verdict,) = judge([Threshold(throughput_share=0.1)], measured(meant=0))
    assert (verdict.found, verdict.held) == (None, False)
    assert step_held([], measured(meant=0)), "nobody writes"
