"""What a fault did to those who asked, and how long it lasted."""

from __future__ import annotations

from collections.abc import Sequence

from raylog.loadtest.report.latencies import merged, percentiles_ms
from raylog.loadtest.report.series import by_frequency, judged_intervals
from raylog.loadtest.results import Interval, Mark, Operation, Result

_BEFORE_S = 30
"""How much of the time before a fault says what is usual."""
_CALM_S = 5
"""For how long all must be as usual before the fault is over."""
_USUAL_SHARE = 0.9
"""Of the seconds before, those whose p99 is at most what is usual."""
_USUAL_FACTOR = 2.0
"""A second is as usual if its p99 is at most this multiple of that."""
_STEADY_SHARE = 0.9
"""Of the seconds before, those that need requests; rarer operations say nothing."""
_OPERATIONS_MAX = 3


def aftermaths(result: Result) -> list[str]:
    """A sentence for each fault: what the most frequent operations saw of it."""
    faults = sorted((one for one in result.marks if one.kind == "fault"), key=lambda one: one.at_s)
    frequent = by_frequency(result)[:_OPERATIONS_MAX]
    told = []
    for place, fault in enumerate(faults):
        end = faults[place + 1].at_s if place + 1 < len(faults) else result.duration_s
        seen = [_aftermath(fault, end, operation, result) for operation in frequent]
        if any(seen):
            told.append(f"At {fault.at_s:.0f} s: {fault.text}. {' '.join(filter(None, seen))}")
    return told


def _aftermath(fault: Mark, end_s: float, operation: Operation, result: Result) -> str | None:
    seconds = judged_intervals(operation, result)
    first = int(fault.at_s)
    before = [one for one in seconds if first - _BEFORE_S <= one.second < first]
    after = [one for one in seconds if first <= one.second < end_s]
    span = first - max(first - _BEFORE_S, result.scenario.warmup_s)
    if not after or len(before) < max(span * _STEADY_SHARE, 1):
        return None
    sorted_ms = sorted(_p99(one) or 0.0 for one in before)
    usual = sorted_ms[int(_USUAL_SHARE * (len(before) - 1))]
    over = _calm_from(after, usual)
    hit = [one for one in after if over is None or one.second < over]
    if not hit:
        return f"{operation.name} went on as before."
    slowest = percentiles_ms(merged(one.latencies for one in hit), (100.0,))[0]
    failures = sum(one.failures for one in hit)
    took = "had no answer" if slowest is None else f"took up to {slowest:,.0f} ms"
    failed = f", {failures:,} requests failed" if failures else ""
    lasted = (
        "was not back to normal before the time was over"
        if over is None
        else f"was back to normal after {over - first} s"
    )
    return f"{operation.name} {took}{failed}, and {lasted} (p99 before: {usual:,.1f} ms)."


def _calm_from(after: Sequence[Interval], usual_ms: float) -> int | None:
    """The first second from which on all is as usual for _CALM_S, or to the end."""
    calm: list[int] = []
    for interval in after:
        if calm and interval.second != calm[-1] + 1:
            calm = []  # seconds without a request
        calm = [*calm, interval.second] if _is_usual(interval, usual_ms) else []
        if len(calm) == _CALM_S:
            break
    return calm[0] if calm else None


def _is_usual(interval: Interval, usual_ms: float) -> bool:
    return interval.failures == 0 and (_p99(interval) or 0.0) <= _USUAL_FACTOR * usual_ms


def _p99(interval: Interval) -> float | None:
    return percentiles_ms(merged([interval.latencies]), (99.0,))[0]
