"""The charts of a run in plotly's JSON: data and layout, without colours of text and background.

The page adds those, since it has a light and a dark theme. Foreign names are escaped, because
plotly interprets some tags.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from raylog.actors.log_formatting import plain
from raylog.loadtest.report.latencies import edge_ms
from raylog.loadtest.report.series import (
    GRID,
    NAMES,
    Point,
    by_frequency,
    points,
    width_s,
)
from raylog.loadtest.results import Gauge, Generator, Mark, Result
from raylog.loadtest.scenario import ProducerUsers, Scenario, TransactionalUsers
from raylog.loadtest.shapes import factor_at

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
"""The palette of Okabe and Ito, safe for colour-blind readers. Dashes distinguish lines in
print."""
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
GAUGES_MAX = 24
_LINES_MAX = 12
_NAME_MAX = 80
_GAP = 2.5
"""An interval between two values of a metric is a gap if it is this many times as long as usual."""
_RARE = 0.02
"""Operations below this share of the most frequent one are rare."""
_DENSE = 10
"""Requests per point. With fewer a heat map shows no more than percentiles."""
_MEANINGS = {"produce": "produce (acknowledged)", "end-to-end": "end-to-end (received)"}
_THROUGHPUT = (
    "Successful requests, at the time at which they were due. Those of produce and end-to-end "
    "are records."
)
_FAULT, _STEP, _LIMITED = "#d55e00", "#7f7f7f", "#e69f00"
MARKS_MAX = 200
Trace = dict[str, Any]


@dataclass(slots=True)
class Chart:
    """A chart: the input of plotly and a note."""

    title: str
    note: str
    data: list[Trace]
    layout: dict[str, Any] = field(default_factory=dict)
    height: int = 300


def run_charts(result: Result) -> list[Chart]:
    """All charts of a run."""
    width = width_s(result.duration_s)
    series = {
        operation.name: points(operation, result.duration_s, width)
        for operation in by_frequency(result)
    }
    charts = [*_throughput(series, width, result.scenario), _failures(series, width)]
    for name, found in series.items():
        filled = [point.requests for point in found if point.requests]
        if len(filled) > 1:
            charts.append(_percentiles(name, found))
        if sum(filled) >= _DENSE * len(filled) > 0:
            charts.append(_heat(name, found, width))
    lags = [one for one in result.gauges if _is_lag(one)]
    charts += _gauges(lags, width, GAUGES_MAX)
    charts += _generators(result, width)
    metrics = [one for one in result.gauges if not _is_lag(one)]
    charts += _gauges(metrics, width, GAUGES_MAX)
    return charts


def _throughput(series: dict[str, list[Point]], width: int, scenario: Scenario) -> list[Chart]:
    """Charts of throughput. Rare operations get a chart of their own."""
    sums = {name: sum(each.requests for each in found) for name, found in series.items()}
    rare = {name for name, sum_ in sums.items() if sum_ < _RARE * max(sums.values())}
    frequent = _rates(series, width, [name for name in series if name not in rare])
    writing = sum(
        users.rate
        for users in scenario.users
        if isinstance(users, ProducerUsers | TransactionalUsers)
    )
    if writing:
        times = [each.at_s for each in next(iter(series.values()), [])]
        rates = [(at, writing * factor_at(scenario, at + width / 2)) for at in times]
        meant = line(0, "records to be sent", rates)
        meant["line"] = {"color": "#7f7f7f", "width": 4, "dash": "dot"}
        frequent.insert(0, meant)
    charts = [per_second("Throughput", frequent, _THROUGHPUT)]
    if rare:
        others = _rates(series, width, [name for name in series if name in rare])
        charts.append(per_second("Throughput of rarer operations", others))
    return charts


def _rates(series: dict[str, list[Point]], width: int, names: Sequence[str]) -> list[Trace]:
    return [
        line(
            number,
            _MEANINGS.get(name, name),
            [(each.at_s, each.requests / width) for each in series[name]],
        )
        for number, name in enumerate(names)
    ]


def per_second(title: str, data: list[Trace], note: str = "") -> Chart:
    """A chart of rates."""
    return Chart(f"{title}, per second", note, data, {"yaxis": {"rangemode": "tozero"}})


def _failures(series: dict[str, list[Point]], width: int) -> Chart:
    data: list[Trace] = [
        {
            "type": "bar",
            "name": _label(name),
            "x": [each.at_s for each in found],
            "y": [round(each.failures / width, 3) for each in found],
            "marker": {"color": COLOURS[number % len(COLOURS)]},
        }
        for number, (name, found) in enumerate(series.items())
        if any(each.failures for each in found)
    ]
    return Chart(
        "Failures, per second",
        "Failed requests." if data else "No request failed.",
        data,
        {"barmode": "stack", "yaxis": {"rangemode": "tozero"}},
        height=220,
    )


def _percentiles(name: str, found: Sequence[Point]) -> Chart:
    data = [
        line(place, percentile, [(each.at_s, each.percentiles_ms[place]) for each in found])
        for place, percentile in enumerate(NAMES)
    ]
    return Chart(
        f"Latency of {name}, ms",
        "From the time at which a request was due until its answer.",
        data,
        {"yaxis": {"type": "log"}},
    )


def _heat(name: str, found: Sequence[Point], width: int) -> Chart:
    used = [cell for each in found for cell in each.heat]
    rows = range(min(used), max(used) + 1)
    counts = [[each.heat.get(row) for each in found] for row in rows]
    return Chart(
        f"All latencies of {name}, ms",
        f"Each cell is {_span(width)} and a range of latencies. The darker a cell (on a dark "
        "page: the brighter), the more requests.",
        [
            {
                "type": "heatmap",
                "x": [each.at_s + width / 2 for each in found],
                "y": [edge_ms(row, GRID) for row in (*rows, rows[-1] + 1)],
                "z": [[_log(count) for count in row] for row in counts],
                "customdata": counts,
                "hovertemplate": "%{x} s, about %{y:.3~g} ms: %{customdata}<extra></extra>",
                "hoverongaps": False,
                "colorbar": _scale(counts),
            }
        ],
        {"yaxis": {"type": "log"}},
    )


def _log(count: int | None) -> float | None:
    return None if count is None else round(math.log10(count), 2)


def _scale(counts: Sequence[Sequence[int | None]]) -> dict[str, Any]:
    largest = max(count for row in counts for count in row if count is not None)
    decades = [10**power for power in range(math.floor(math.log10(largest)) + 1)]
    ticks = decades if len(decades) > 1 else range(1, largest + 1)
    return {
        "tickvals": [_log(tick) for tick in ticks],
        "ticktext": [f"{tick:,}" for tick in ticks],
        "thickness": 8,
        "xpad": 4,
    }


def _is_lag(gauge: Gauge) -> bool:
    return "lag" in gauge.name.lower()


def _generators(result: Result, width: int) -> list[Chart]:
    shown = result.generators[:_LINES_MAX]
    left_out = len(result.generators) - _LINES_MAX
    note = f" {left_out} processes are not shown." if left_out > 0 else ""
    return [
        Chart(
            "Load on the generator, cores",
            f"CPU of each process that made load. Near 1 the process is the limit.{note}",
            [_of_generator(one, one.cpu_share, number, width) for number, one in enumerate(shown)],
            {"yaxis": {"rangemode": "tozero"}},
            height=220,
        ),
        Chart(
            "Lateness of the generator, ms",
            "How late it woke up its users, p99 of each second. Latencies include this "
            f"time.{note}",
            [_of_generator(one, one.late_ms, number, width) for number, one in enumerate(shown)],
            {"yaxis": {"rangemode": "tozero"}},
            height=220,
        ),
    ]


def _of_generator(one: Generator, values: Sequence[float], number: int, width: int) -> Trace:
    name = f"{one.host}, process {one.worker}"
    return line(number, name, _thinned(list(enumerate(values)), width))


def _gauges(gauges: Iterable[Gauge], width: int, most: int) -> list[Chart]:
    """One chart per name, with a line for each set of labels."""
    by_name: dict[tuple[str, str], list[Gauge]] = {}
    for gauge in gauges:
        by_name.setdefault((gauge.name, gauge.unit), []).append(gauge)
    charts = [_gauge(name, unit, found, width) for (name, unit), found in by_name.items()]
    if len(charts) > most:
        charts[most - 1].note += f" {len(charts) - most} more are not shown."
    return charts[:most]


def _gauge(name: str, unit: str, found: list[Gauge], width: int) -> Chart:
    found = sorted(found, key=lambda one: -max((value for _, value in one.points), default=0.0))
    left_out = len(found) - _LINES_MAX
    lines = [(_labels(gauge), _thinned(gauge.points, width)) for gauge in found[:_LINES_MAX]]
    usual_s = _usual_step_s([values for _, values in lines])
    return Chart(
        f"{name}, {unit}" if unit else name,
        f"The {_LINES_MAX} largest; {left_out} more are not shown." if left_out > 0 else "",
        [
            line(number, name, _broken(values, usual_s))
            for number, (name, values) in enumerate(lines)
        ],
        {"yaxis": {"rangemode": "tozero"}},
        height=220,
    )


def _thinned(found: Sequence[tuple[float, float]], width: int) -> list[tuple[float, float]]:
    """The largest value in each point's span, so that short peaks stay visible."""
    largest: dict[int, tuple[float, float]] = {}
    for at, value in found:
        place = int(at // width)
        if place not in largest or value > largest[place][1]:
            largest[place] = (at, value)
    return list(largest.values())


def _steps_s(found: Sequence[tuple[float, float]]) -> list[float]:
    return [after[0] - before[0] for before, after in pairwise(found)]


def _usual_step_s(lines: Iterable[Sequence[tuple[float, float]]]) -> float:
    """The usual interval between values over all lines.

    A line with few values does not change it.
    """
    steps = [step for found in lines for step in _steps_s(found)]
    return median(steps) if steps else 0.0


def _broken(
    found: Sequence[tuple[float, float]], usual_s: float
) -> list[tuple[float, float | None]]:
    """The line with gaps where no values were reported for a while."""
    drawn: list[tuple[float, float | None]] = list(found[:1])
    for step, point in zip(_steps_s(found), found[1:], strict=True):
        if step > _GAP * usual_s:
            drawn.append((point[0] - step / 2, None))
        drawn.append(point)
    return drawn


def _labels(gauge: Gauge) -> str:
    return ", ".join(f"{key} {value}" for key, value in gauge.labels.items()) or gauge.name


def line(number: int, name: str, found: Sequence[tuple[float, float | None]]) -> Trace:
    """A line of (s, value). Its number selects colour and dashes."""
    return {
        "type": "scatter",
        "mode": "lines+markers" if _has_lone_points(found) else "lines",
        "marker": {"size": 4},
        "name": _label(name),
        "x": [_short(at) for at, _ in found],
        "y": [None if value is None else _short(value) for _, value in found],
        "line": {
            "color": COLOURS[number % len(COLOURS)],
            "dash": _DASHES[number % len(_DASHES)],
            "width": 1.8,
        },
    }


def _has_lone_points(found: Sequence[tuple[float, float | None]]) -> bool:
    """Whether the line may have isolated points, which a line does not show."""
    return len(found) == 1 or any(value is None for _, value in found)


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def shared_layout(result: Result) -> dict[str, Any]:
    """What all charts of a run share: its time axis, faults, steps, and invalid spans."""
    shapes = [_span_shape(start, end, _LIMITED) for start, end in result.limited_by_generator]
    if result.scenario.warmup_s:
        shapes.append(_span_shape(0, result.scenario.warmup_s, _STEP))
    annotations: list[Trace] = []
    marks = result.marks[:MARKS_MAX]
    for number, mark in enumerate(marks, start=1):
        colour = _FAULT if mark.kind == "fault" else _STEP
        shapes.append(_mark_shape(mark, colour))
        if mark.kind == "fault" or len(marks) <= _LINES_MAX:
            annotations.append(_number(number, mark.at_s, colour, mark.text))
    return {
        "shapes": shapes,
        "annotations": annotations,
        "xaxis": {"range": [0, result.duration_s], "ticksuffix": " s"},
    }


def _mark_shape(mark: Mark, colour: str) -> Trace:
    is_fault = mark.kind == "fault"
    return {
        "type": "line",
        "x0": mark.at_s,
        "x1": mark.at_s,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {
            "color": colour,
            "width": 2 if is_fault else 1,
            "dash": "solid" if is_fault else "dot",
        },
    }


def _number(number: int, at_s: float, colour: str, text: str) -> Trace:
    return {
        "x": at_s,
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "text": f"<b>{number}</b>",
        "hovertext": _label(text),
        "font": {"color": colour, "size": 12},
    }


def _span_shape(start: float, end: float, colour: str) -> Trace:
    return {
        "type": "rect",
        "x0": start,
        "x1": end,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "fillcolor": colour,
        "opacity": 0.15,
        "line": {"width": 0},
        "layer": "below",
    }


def _span(width: int) -> str:
    return "a second" if width == 1 else f"{width} s"


def _label(text: str) -> str:
    """A foreign name, escaped for plotly."""
    cut = text if len(text) <= _NAME_MAX else f"{text[:_NAME_MAX]}…"
    return html.escape(plain(cut))
