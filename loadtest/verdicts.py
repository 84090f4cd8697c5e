"""Judges thresholds over a span of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raylog.loadtest.histograms import LATENCY_US_MAX, added_up
from raylog.loadtest.operations import PRODUCE
from raylog.loadtest.results import Interval, Operation, Verdict
from raylog.loadtest.scenario import Threshold

KEPT_UP = 0.95
"""A step of stairs fails if a smaller share of its planned records was acknowledged, whatever its
thresholds are."""
FAILED_MS = LATENCY_US_MAX / 1000
"""Reported if a request at the percentile has failed. It is larger than any limit."""
_US_A_MS = 1000
_PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p99_ms": 99.0, "p99.9_ms": 99.9, "max_ms": 100.0}


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run measured in some of its seconds."""

    operations: Mapping[str, Operation]
    """With the intervals of those seconds only."""
    seconds: int
    acknowledged: int
    """Acknowledged records that were planned for those seconds."""
    meant: float
    """Planned records."""
    lag_records: int | None
    """The current lag of all groups together; None if there are none or it is unknown."""
    writers: int = 0
    """The number of sending users. Each may be one record off the plan."""

    @property
    def acknowledged_per_s(self) -> float:
        """Acknowledged records/s."""
        return self.acknowledged / self.seconds if self.seconds else 0.0


def judge(thresholds: Iterable[Threshold], measured: Measured) -> list[Verdict]:
    """A verdict on each threshold."""
    return [_verdict(one, measured) for one in thresholds]


def nothing_acknowledged(measured: Measured) -> bool:
    """Whether records were planned and none was acknowledged."""
    return measured.meant > 0 and measured.acknowledged == 0


def step_held(thresholds: Iterable[Threshold], measured: Measured) -> bool:
    """Whether a step of stairs held. Records that are not acknowledged by now have failed."""
    if measured.meant > 0 and measured.acknowledged < KEPT_UP * measured.meant:
        return False
    return all(one.held for one in judge(thresholds, _with_unanswered(measured)))


def _with_unanswered(measured: Measured) -> Measured:
    """The same measurements, with a failure for each planned record without an answer."""
    produce = measured.operations.get(PRODUCE)
    if produce is None:
        return measured
    failures = sum(one.failures for one in produce.intervals)
    missing = int(measured.meant) - measured.writers - measured.acknowledged - failures
    if missing <= 0:
        return measured
    unanswered = Interval(second=0, requests=0, failures=missing, bytes=0, latencies="")
    produce = produce.model_copy(update={"intervals": [*produce.intervals, unanswered]})
    return replace(measured, operations={**measured.operations, PRODUCE: produce})


def _verdict(threshold: Threshold, measured: Measured) -> Verdict:
    if threshold.throughput_share is not None:
        return _of_throughput(threshold, measured)
    if threshold.lag_records is not None:
        lag = measured.lag_records
        held = lag is not None and lag <= threshold.lag_records
        return Verdict(threshold=threshold, found=lag, held=held)
    assert threshold.operation is not None, "the scenario checks that it is there"
    operation = measured.operations.get(threshold.operation)
    intervals = [] if operation is None else operation.intervals
    if threshold.errors_share is not None:
        return _of_errors(threshold, intervals)
    return _of_latency(threshold, intervals)


def _of_throughput(threshold: Threshold, measured: Measured) -> Verdict:
    assert threshold.throughput_share is not None, "it was asked for"
    if measured.meant <= 0:
        return Verdict(threshold=threshold, found=None, held=False)
    share = measured.acknowledged / measured.meant
    return Verdict(threshold=threshold, found=share, held=share >= threshold.throughput_share)


def _of_errors(threshold: Threshold, intervals: Sequence[Interval]) -> Verdict:
    assert threshold.errors_share is not None, "it was asked for"
    failures = sum(one.failures for one in intervals)
    total = failures + sum(one.requests for one in intervals)
    if total == 0:
        return Verdict(threshold=threshold, found=None, held=False)
    share = failures / total
    return Verdict(threshold=threshold, found=share, held=share <= threshold.errors_share)


def _of_latency(threshold: Threshold, intervals: Sequence[Interval]) -> Verdict:
    assert threshold.percentile is not None, "it comes with max_ms"
    assert threshold.max_ms is not None, "it was asked for"
    latencies = added_up(one.latencies for one in intervals if one.requests)
    latencies.record_value(LATENCY_US_MAX, sum(one.failures for one in intervals))
    if latencies.get_total_count() == 0:
        return Verdict(threshold=threshold, found=None, held=False)
    found_us = latencies.get_value_at_percentile(_PERCENTILES[threshold.percentile])
    found_ms = min(found_us / _US_A_MS, FAILED_MS)
    held = found_ms <= threshold.max_ms and found_ms < FAILED_MS
    return Verdict(threshold=threshold, found=found_ms, held=held)
