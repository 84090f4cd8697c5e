"""What a fault did to those who asked, and how long it lasted.

An operation is compared with itself: with the healthy seconds just before the fault. In a healthy
second something was asked, nothing failed, and most of it was answered before the fault. Where
there are too few of them, the report says why nothing can be said.
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
"""How much of the time before a fault says what is usual, at most."""
_CALM_S = 5
"""How many seconds say what is usual, at least, and for how long all must be so afterwards."""
_USUAL_SHARE = 0.9
"""Of the seconds before, those whose p99 is at most what is usual."""
_USUAL_FACTOR = 2.0
"""A second is as usual if its p99 is at most this multiple of that."""
_UNSTEADY_FACTOR = 10.0
"""Where what is usual is this multiple of a middle second's p99, nothing is usual."""
_STEADY_SHARE = 0.9
"""Of the seconds before or after, those that need requests; rarer operations say nothing."""
_MANY = 10
"""Requests a second; with fewer, a second without any is no sign of a fault."""
_OPERATIONS_MAX = 3
_MS_PER_S = 1000
_JOIN = "join"
_READ = "end-to-end"
_OF_READERS = (_READ, "commit")
"""Operations that need members of groups to have joined."""


@dataclass(frozen=True, slots=True)
class _Usual:
    """What an operation was like before a fault."""

    p99_ms: float
    is_frequent: bool
    """Whether a second without requests is unusual."""


def aftermaths(result: Result) -> list[str]:
    """A sentence for each fault: what the most frequent operations saw of it."""
    faults = sorted((one for one in result.marks if one.kind == "fault"), key=lambda one: one.at_s)
    told = []
    for place, fault in enumerate(faults):
        end_s = faults[place + 1].at_s if place + 1 < len(faults) else result.duration_s
        seen = " ".join(_seen(fault, end_s, result))
        if seen:
            told.append(f"At {fault.at_s:.0f} s: {fault.text}. {seen}")
    return told


def _seen(fault: Mark, end_s: float, result: Result) -> list[str]:
    if fault.at_s < result.scenario.warmup_s:
        return ["That was in the warm-up, so nothing can be said of what it did."]
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
        return _unknown(operation.name, "the run, or the next fault, left it no whole second")
    return _told(operation.name, found, after, seconds)


def _unknown(name: str, why: str) -> str:
    return f"Nothing can be said of {name}, because {why}."


def _is_steady(span: range, seconds: Mapping[int, Interval]) -> bool:
    there = sum(second in seconds for second in span)
    return there >= max(len(span) * _STEADY_SHARE, 1)


# ---- before ------------------------------------------------------------------------------


def _not_joined(fault: Mark, operation: Operation, result: Result) -> str | None:
    """Why readers say nothing: not all members of groups had joined."""
    members = sum(one.count for one in result.scenario.users if isinstance(one, GroupUsers))
    if operation.name not in _OF_READERS or not members:
        return None
    joins = (one.intervals for one in result.operations if one.name == _JOIN)
    joined = sum(_answered(interval, fault.at_s) for found in joins for interval in found)
    if joined >= members:
        return None
    return f"only {joined} of {members} members had joined their groups by then"


def _answered(interval: Interval, by_s: float) -> int:
    """How many of a second's requests were answered by a time."""
    return up_to(merged([interval.latencies]), (by_s - interval.second) * _MS_PER_S)


def _usual(fault: Mark, before: range, seconds: Mapping[int, Interval]) -> _Usual | str:
    """What is usual, or why nothing is."""
    if len(before) < _CALM_S:
        return f"only {len(before)} s lie between the warm-up and the fault"
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
        return f"nothing that was due at {second} s was answered"
    if interval.failures:
        noun = "request" if interval.failures == 1 else "requests"
        return f"{interval.failures:,} {noun} failed at {second} s"
    if 2 * _answered(interval, fault.at_s) < interval.requests:
        return f"most of what was due at {second} s was answered only after it"
    return None


def _usual_of(healthy: Sequence[Interval]) -> _Usual | str:
    sorted_ms = sorted(_p99(one) for one in healthy)
    usual_ms = sorted_ms[int(_USUAL_SHARE * (len(sorted_ms) - 1))]
    if usual_ms > _UNSTEADY_FACTOR * median(sorted_ms):
        low, high = f"{sorted_ms[0]:,.1f}", f"{sorted_ms[-1]:,.1f}"
        return f"its p99 was not steady before the fault: it went from {low} to {high} ms"
    return _Usual(usual_ms, min(one.requests for one in healthy) >= _MANY)


# ---- after -------------------------------------------------------------------------------


def _told(name: str, usual: _Usual, after: range, seconds: Mapping[int, Interval]) -> str:
    normal = f"(p99 before: {usual.p99_ms:,.1f} ms)"
    over = _calm_from(after, seconds, usual)
    hit = range(after.start, after.stop if over is None else over)
    found = [seconds[second] for second in hit if second in seconds]
    silent = len(hit) - len(found) if usual.is_frequent else 0
    if not (found or silent):
        return f"{name} went on as before {normal}."
    lasted = (
        "was not back to normal before the time was over"
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
    """The first second from which on all is as usual for _CALM_S, or to the end."""
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
