"""What each fault did to requests, and for how long.

An operation is compared with itself in the healthy seconds just before the fault. A second is
healthy if there were requests, none failed, and most were answered before the fault. If there are
too few healthy seconds, the report says why nothing can be said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from raylog.loadtest.report.latencies import merged, percentiles_ms, up_to
from raylog.loadtest.report.series import by_frequency
from raylog.loadtest.results import Interval, Mark, Operation, Result
from raylog.loadtest.scenario import ConsumerUsers, GroupUsers

_BEFORE_S = 30
"""At most this much of the time before a fault defines what is usual."""
_CALM_S = 5
"""The fewest seconds that define what is usual, and how long all must be usual afterwards."""
_USUAL_SHARE = 0.9
"""The share of the seconds before whose p99 is at most the usual one."""
_USUAL_FACTOR = 2.0
"""A second is usual if its p99 is at most this multiple of the usual one."""
_UNSTEADY_FACTOR = 10.0
"""If the usual p99 is this multiple of the median second's, nothing counts as usual."""
_STEADY_SHARE = 0.9
"""The share of seconds that need requests. Rarer operations are not judged."""
_MANY = 10
"""Requests per second. Below this rate a second without requests is no sign of a fault."""
_OPERATIONS_MAX = 3
_MS_PER_S = 1000
_READ = "end-to-end"
_OF_READERS = (_READ, "commit")
"""Operations that need group members to have joined."""


@dataclass(frozen=True, slots=True)
class _Usual:
    """What an operation was like before a fault."""

    p99_ms: float
    is_frequent: bool
    """Whether a second without requests is unusual."""


def aftermaths(result: Result) -> list[str]:
    """A sentence for each fault, about its effect on the most frequent operations."""
    faults = sorted((one for one in result.marks if one.kind == "fault"), key=lambda one: one.at_s)
    lines = []
    for place, fault in enumerate(faults):
        end_s = faults[place + 1].at_s if place + 1 < len(faults) else result.duration_s
        seen = " ".join(_seen(fault, end_s, result))
        if seen:
            lines.append(f"At {fault.at_s:.0f} s: {fault.text}. {seen}")
    return lines


def _seen(fault: Mark, end_s: float, result: Result) -> list[str]:
    if fault.at_s < result.scenario.warmup_s:
        return ["It was in the warm-up, so its effect cannot be judged."]
    frequent = by_frequency(result)[:_OPERATIONS_MAX]
    seen = [_aftermath(fault, end_s, operation, result) for operation in frequent]
    if _nothing_was_read(result):
        seen.append(_unknown(_READ, "no record was received in the whole run"))
    return [one for one in seen if one is not None]


def _nothing_was_read(result: Result) -> bool:
    has_readers = any(
        isinstance(users, GroupUsers | ConsumerUsers) for users in result.scenario.users
    )
    return has_readers and not any(
        interval.requests or interval.failures
        for operation in result.operations
        if operation.name == _READ
        for interval in operation.intervals
    )


def _aftermath(fault: Mark, end_s: float, operation: Operation, result: Result) -> str | None:
    seconds = {one.second: one for one in operation.intervals}
    first = int(fault.at_s)
    start = max(first - _BEFORE_S, math.ceil(result.scenario.warmup_s))
    before, after = range(start, first), range(first, int(end_s))
    if not (_is_steady(before, seconds) or _is_steady(after, seconds)):
        return None
    found = _not_joined(fault, operation, result) or _usual(fault, before, seconds)
    if isinstance(found, str):
        return _unknown(operation.name, found)
    if not after:
        return _unknown(
            operation.name, "no whole second was left before the end of the run or the next fault"
        )
    return _text_of(operation.name, found, after, seconds)


def _unknown(name: str, why: str) -> str:
    return f"The effect on {name} cannot be judged, because {why}."


def _is_steady(span: range, seconds: Mapping[int, Interval]) -> bool:
    there = sum(second in seconds for second in span)
    return there >= max(len(span) * _STEADY_SHARE, 1)


# ---- before the fault --------------------------------------------------------------------


def _not_joined(fault: Mark, operation: Operation, result: Result) -> str | None:
    """Why readers cannot be judged: not all members of groups had joined."""
    members = sum(one.count for one in result.scenario.users if isinstance(one, GroupUsers))
    if operation.name not in _OF_READERS or not members:
        return None
    joins = (one.intervals for one in result.operations if one.name == "join")
    joined = sum(_answered(interval, fault.at_s) for found in joins for interval in found)
    if joined >= members:
        return None
    return f"only {joined} of {members} members had joined their groups"


def _answered(interval: Interval, by_s: float) -> int:
    """How many of a second's requests were answered by `by_s`."""
    return up_to(merged([interval.latencies]), (by_s - interval.second) * _MS_PER_S)


def _usual(fault: Mark, before: range, seconds: Mapping[int, Interval]) -> _Usual | str:
    """What is usual, or why nothing is."""
    if len(before) < _CALM_S:
        return f"there were only {len(before)} s between the warm-up and the fault"
    healthy: list[Interval] = []
    wrong = None
    for second in reversed(before):
        interval = seconds.get(second)
        wrong = _wrong(fault, second, interval)
        if interval is None or wrong is not None:
            break
        healthy.append(interval)
    if len(healthy) < _CALM_S:
        return f"it was not healthy before the fault: {wrong}"
    return _usual_of(healthy)


def _wrong(fault: Mark, second: int, interval: Interval | None) -> str | None:
    """Why a second before a fault is not healthy."""
    if interval is None or not (interval.requests or interval.failures):
        return f"no request that was due at {second} s was answered"
    if interval.failures:
        noun = "request" if interval.failures == 1 else "requests"
        return f"{interval.failures:,} {noun} failed at {second} s"
    if 2 * _answered(interval, fault.at_s) < interval.requests:
        return f"most requests that were due at {second} s were answered only after the fault"
    return None


def _usual_of(healthy: Sequence[Interval]) -> _Usual | str:
    sorted_ms = sorted(_p99(one) for one in healthy)
    usual_ms = sorted_ms[int(_USUAL_SHARE * (len(sorted_ms) - 1))]
    if usual_ms > _UNSTEADY_FACTOR * median(sorted_ms):
        low, high = f"{sorted_ms[0]:,.1f}", f"{sorted_ms[-1]:,.1f}"
        return f"its p99 was not steady before the fault: it went from {low} to {high} ms"
    return _Usual(usual_ms, min(one.requests for one in healthy) >= _MANY)


# ---- after the fault ---------------------------------------------------------------------


def _text_of(name: str, usual: _Usual, after: range, seconds: Mapping[int, Interval]) -> str:
    normal = f"(p99 before: {usual.p99_ms:,.1f} ms)"
    over = _calm_from(after, seconds, usual)
    hit = range(after.start, after.stop if over is None else over)
    found = [seconds[second] for second in hit if second in seconds]
    silent = len(hit) - len(found) if usual.is_frequent else 0
    if not (found or silent):
        return f"{name} was not affected {normal}."
    lasted = (
        "was not back to normal at the end of the run or the next fault"
        if over is None
        else f"was back to normal after {over - after.start} s"
    )
    return f"{name} {', '.join(_felt(found, silent))}, and {lasted} {normal}."


def _felt(found: Iterable[Interval], silent: int) -> list[str]:
    found = list(found)
    failures = sum(one.failures for one in found)
    slowest = percentiles_ms(merged(one.latencies for one in found), (100.0,))[0]
    felt = ["had no answer" if slowest is None else f"took up to {slowest:,.0f} ms"]
    if failures:
        felt.append(f"had {failures:,} {'failure' if failures == 1 else 'failures'}")
    if silent:
        felt.append(f"had no requests for {silent} s")
    return felt


def _calm_from(after: range, seconds: Mapping[int, Interval], usual: _Usual) -> int | None:
    """The first second from which on all are usual for _CALM_S, or to the end."""
    calm: list[int] = []
    for second in after:
        interval = seconds.get(second)
        is_calm = interval is not None and _is_usual(interval, usual)
        calm = [*calm, second] if is_calm else []
        if len(calm) == _CALM_S:
            break
    return calm[0] if calm else None


def _is_usual(interval: Interval, usual: _Usual) -> bool:
    return interval.failures == 0 and _p99(interval) <= _USUAL_FACTOR * usual.p99_ms


def _p99(interval: Interval) -> float:
    return percentiles_ms(merged([interval.latencies]), (99.0,))[0] or 0.0
