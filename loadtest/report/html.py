"""The report of one or several runs as one HTML file that needs no network.

plotly's JavaScript is copied from its wheel. A Content-Security-Policy in the file forbids all
requests and all scripts except ours, which it knows by their hashes. So a text of a broker that
contains markup and was not escaped still cannot run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from raylog.loadtest.report import rounds, sections, words
from raylog.loadtest.report.charts import Chart, run_charts, shared_layout
from raylog.loadtest.report.files import cleaned, write_whole
from raylog.loadtest.report.markup import Html, el, joined
from raylog.loadtest.report.series import by_frequency, totals
from raylog.loadtest.results import Result


def write_html(results: Sequence[Result], path: Path) -> None:
    """Write the report. Several results of one scenario are compared by target."""
    assert results, "a report needs a run"
    shown = [cleaned(one) for one in results]
    write_whole(path, _page(shown))


def _page(results: Sequence[Result]) -> str:
    groups: list[dict[str, Any]] = []
    title = results[0].scenario.name
    if len(results) == 1:
        body = [el("h1", f"Load test {title}"), _run(results[0], groups)]
    else:
        body = [el("h1", f"Load test {title}: {len(results)} runs"), *_compared(results, groups)]
    package = files(__package__)
    scripts = [get_plotlyjs(), (package / "page.js").read_text(encoding="utf-8")]
    head = [
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"Load test {title}"),
        el("style", Html((package / "page.css").read_text(encoding="utf-8"))),
    ]
    data = el("script", Html(_data(groups)), id="charts", type="application/json")
    inline = [el("script", Html(script)) for script in scripts]
    page = el("html", el("head", head), el("body", el("main", body), data, inline), lang="en")
    return f"<!doctype html>\n{page}\n"


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _data(groups: Sequence[dict[str, Any]]) -> str:
    """JSON that cannot close its own element."""
    return json.dumps(groups, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _run(result: Result, groups: list[dict[str, Any]]) -> Html:
    found = [totals(operation, result) for operation in by_frequency(result)]
    return joined(
        [
            sections.verdict(result),
            el("h2", "What was run"),
            sections.what_was_run(result),
            el("h2", "Operations"),
            el(
                "p",
                "After the warm-up. Latencies count from the time at which a request was due.",
            ),
            sections.operations(found),
            [el("p", each) for each in words.only_in_warm_up(result)],
            el("h3", "Thresholds"),
            sections.thresholds(result),
            el("h3", "Audit"),
            sections.audit(result),
            el("h3", "Errors"),
            sections.errors(result),
            sections.notes(result),
            el("h2", "Over time"),
            el("p", _legend(result)),
            _figures(run_charts(result), shared_layout(result), groups),
            sections.events(result),
            el("h3", "Processes that made the load"),
            sections.generators(result),
        ]
    )


def _legend(result: Result) -> str:
    caption = "Times are in seconds from the start of the run. The grey span is the warm-up."
    if result.marks:
        caption += " Vertical lines are events, thick for faults; the list below has their numbers."
    if result.limited_by_generator:
        caption += (
            " In orange spans the generator was the limit: they say nothing about the broker."
        )
    return caption


def _compared(results: Sequence[Result], groups: list[dict[str, Any]]) -> list[Html]:
    return [
        el("p", el("i", results[0].scenario.question)),
        el("ul", [_outcome(one) for one in results]),
        el("h2", "Side by side"),
        rounds.side_by_side(results),
        _figures(rounds.overlays(results), _shared_by_all(results), groups),
        el("h2", "Each run"),
        *(
            el(
                "details",
                el("summary", f"{number}. {words.target_name(one)}, {words.moment(one.started)}"),
                _run(one, groups),
                class_="run",
            )
            for number, one in enumerate(results, start=1)
        ),
    ]


def _shared_by_all(results: Sequence[Result]) -> dict[str, Any]:
    """Faults of the first run, which all runs share, without the spans that limit one run."""
    longest = max(one.duration_s for one in results)
    first = results[0].model_copy(update={"limited_by_generator": [], "duration_s": longest})
    return shared_layout(first)


def _outcome(result: Result) -> Html:
    says = "✔ passed" if result.passed else "✘ failed"
    heading = f" {words.target_name(result)}, {words.moment(result.started)}: "
    return el(
        "li",
        el("b", says, class_="passed" if result.passed else "failed"),
        heading,
        " ".join(words.reasons(result)),
    )


def _figures(charts: Sequence[Chart], shared: dict[str, Any], groups: list[dict[str, Any]]) -> Html:
    """Elements for charts. Their data is appended to `groups`."""
    group: dict[str, Any] = {"shared": shared, "charts": []}
    groups.append(group)
    made = []
    for number, chart in enumerate(charts):
        place = f"chart-{len(groups)}-{number}"
        inside = [el("figcaption", el("b", chart.title), " ", chart.note)]
        if chart.data:
            group["charts"].append({"id": place, "data": chart.data, "layout": chart.layout})
            inside.append(el("div", id=place, class_="chart", style=f"height: {chart.height}px"))
        made.append(el("figure", inside))
    return el("div", made, class_="charts")
