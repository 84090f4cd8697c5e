"""The values that charts and tables show of one operation, over time and in total."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raylog.loadtest.report.latencies import merged, on_grid, percentiles_ms
from raylog.loadtest.results import Interval, Operation, Result

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)
NAMES = ("p50", "p90", "p99", "p99.9", "max")
POINTS_MAX = 400
"""The most points of a line. In longer runs each point covers more time."""
GRID = 10
"""Cells per decade of a heat map."""
_WIDTHS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)


@dataclass(frozen=True, slots=True)
class Point:
    """An operation over some seconds."""

    at_s: float
    """The start of the point."""
    requests: int
    failures: int
    bytes: int
    percentiles_ms: Sequence[float | None]
    """For the percentiles in NAMES."""
    heat: dict[int, int]
    """Requests by cell of the grid."""


@dataclass(frozen=True, slots=True)
class Totals:
    """A row of the table of operations, without the warm-up."""

    name: str
    seconds: float
    requests: int
    failures: int
    bytes: int
    percentiles_ms: Sequence[float | None]

    @property
    def rate(self) -> float:
        """Successful requests per second."""
        return self.requests / self.seconds

    @property
    def failed_share(self) -> float:
        """The share of requests that failed."""
        asked = self.requests + self.failures
        return self.failures / asked if asked else 0.0


def width_s(duration_s: float) -> int:
    """The seconds per point, so that there are at most POINTS_MAX points."""
    for width in _WIDTHS:
        if duration_s <= width * POINTS_MAX:
            return width
    return math.ceil(duration_s / POINTS_MAX)


def by_frequency(result: Result) -> list[Operation]:
    """The operations, most frequent first."""
    return sorted(result.operations, key=lambda one: -sum(each.requests for each in one.intervals))


def points(operation: Operation, duration_s: float, width: int) -> list[Point]:
    """The points from the start to the end of the run. Seconds without requests count as 0."""
    groups: list[list[Interval]] = [[] for _ in range(math.ceil(duration_s / width))]
    for interval in operation.intervals:
        place = interval.second // width
        if 0 <= place < len(groups):
            groups[place].append(interval)
    return [_point(number * width, group) for number, group in enumerate(groups)]


def totals(operation: Operation, result: Result) -> Totals:
    """The totals after the warm-up, as thresholds judge them."""
    first, end = judged_span(result)
    together = _point(0, judged_intervals(operation, result))
    return Totals(
        name=operation.name,
        seconds=max(end - first, 1),
        requests=together.requests,
        failures=together.failures,
        bytes=together.bytes,
        percentiles_ms=together.percentiles_ms,
    )


def judged_span(result: Result) -> tuple[int, int]:
    """The first whole second after the warm-up, and the end of the last whole second."""
    return math.ceil(result.scenario.warmup_s), math.floor(result.duration_s)


def judged_intervals(operation: Operation, result: Result) -> list[Interval]:
    """The intervals after the warm-up, as thresholds judge them."""
    first, end = judged_span(result)
    return [one for one in operation.intervals if first <= one.second < end]


def _point(at_s: float, intervals: Iterable[Interval]) -> Point:
    intervals = list(intervals)
    latencies = merged(one.latencies for one in intervals)
    return Point(
        at_s=at_s,
        requests=sum(one.requests for one in intervals),
        failures=sum(one.failures for one in intervals),
        bytes=sum(one.bytes for one in intervals),
        percentiles_ms=percentiles_ms(latencies, PERCENTILES),
        heat=on_grid(latencies, GRID),
    )
