"""The HTML report: hostile texts stay text, charts are plotly's, and the file stays small."""

import html
import json
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from raylog.loadtest.report import write_html
from raylog.loadtest.report.charts import run_charts, shared_layout
from raylog.loadtest.report.series import POINTS_MAX
from raylog.loadtest.results import Finding, Gauge, Mark, Operation, Result
from tests.support import load_results

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'\x1b[2J\u202e"


def _page(path: Path) -> str:
    """The page without the scripts, which are plotly's and ours."""
    return re.sub(r"<script>.*?</script>", "", path.read_text(), flags=re.DOTALL)


def _groups(path: Path) -> list[dict[str, Any]]:
    found = re.search(r'type="application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    groups: list[dict[str, Any]] = json.loads(found[1])
    return groups


def _hostile() -> Result:
    operation = load_results.operation("produce", 10, errors={HOSTILE: 3}, stall=(6, 1.0))
    return load_results.result(
        10,
        operations=[operation.model_copy(update={"name": HOSTILE})],
        marks=[Mark(at_s=6.0, kind="fault", text=HOSTILE)],
        findings=[Finding(kind="torn", count=1, examples=[HOSTILE])],
        gauges=[load_results.gauge(HOSTILE, HOSTILE, 10, float, topic=HOSTILE)],
        notes=[HOSTILE],
        machine=HOSTILE,
        raylog=HOSTILE,
        failure=HOSTILE,
        run=HOSTILE,
        kind=HOSTILE,
        bootstrap=HOSTILE,
        scenario=load_results.scenario(question=HOSTILE),
    )


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    for number, results in enumerate(([_hostile()], [_hostile(), _hostile()])):
        path = tmp_path / f"{number}.html"
        write_html(results, path)
        page = path.read_text()
        assert "alert(1)" in page
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "\x1b" not in page
        assert "\u202e" not in _page(path)


def test_names_in_charts_are_escaped_for_plotly_too() -> None:
    result = _hostile()
    drawn = json.dumps(
        [[each.data, each.layout] for each in run_charts(result)] + [shared_layout(result)]
    )
    assert "&lt;script&gt;" in drawn
    assert "<script" not in drawn
    assert "<img" not in drawn


def test_nothing_in_the_page_asks_the_network(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    write_html([load_results.failed(seconds=10)], path)
    page = _page(path)
    assert not re.search(r"(src|href)=", page)
    assert "default-src 'none'" in html.unescape(page)


def test_charts_are_what_plotly_knows(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    write_html([load_results.failed(seconds=70)], path)
    (group,) = _groups(path)
    kinds = []
    for chart in group["charts"]:
        figure = go.Figure(data=chart["data"], layout=group["shared"] | chart["layout"])
        kinds += [trace.type for trace in figure.data]
    assert kinds.count("heatmap") == 2
    assert kinds.count("bar") == 1
    assert kinds.count("scatter") > 15


def test_every_chart_has_its_place_and_the_faults(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    write_html([load_results.result(70)], path)
    (group,) = _groups(path)
    places = set(re.findall(r'<div id="(chart-[^"]*)"', path.read_text()))
    assert {chart["id"] for chart in group["charts"]} == places
    lines = [each for each in group["shared"]["shapes"] if each["type"] == "line"]
    assert [each["x0"] for each in lines] == [60.0, 62.4]
    assert [each["text"] for each in group["shared"]["annotations"]] == ["<b>1</b>", "<b>2</b>"]


def test_a_broker_that_reported_nothing_for_a_while_has_a_gap() -> None:
    points = [(0.0, 1.0), (5.1, 1.0), (10.0, 1.0), (30.0, 2.0), (35.2, 2.0)]
    gauge = Gauge(name="memory", labels={"broker": "1"}, unit="bytes", points=points)
    (chart,) = (
        one
        for one in run_charts(load_results.result(40, gauges=[gauge]))
        if one.title == "memory, bytes"
    )
    (trace,) = chart.data
    assert trace["name"] == "broker 1"
    assert trace["x"] == [0.0, 5.1, 10.0, 20.0, 30.0, 35.2]
    assert trace["y"] == [1.0, 1.0, 1.0, None, 2.0, 2.0]


def test_a_broker_that_was_seldom_asked_has_a_gap_as_others_tell_what_is_usual() -> None:
    every = [(float(at), 1.0) for at in range(0, 40, 5)]
    seldom = {"2": [(0.0, 2.0), (35.0, 2.0)], "3": [(5.0, 3.0)]}
    gauges = [
        Gauge(name="memory", labels={"broker": broker}, unit="bytes", points=points)
        for broker, points in {"1": every, **seldom}.items()
    ]
    (chart,) = (
        one
        for one in run_charts(load_results.result(40, gauges=gauges))
        if one.title == "memory, bytes"
    )
    drawn = {trace["name"]: trace for trace in chart.data}
    assert drawn["broker 1"]["mode"] == "lines"
    assert drawn["broker 2"]["y"] == [2.0, None, 2.0]
    assert [drawn[f"broker {one}"]["mode"] for one in (2, 3)] == ["lines+markers"] * 2


def test_an_operation_of_the_warm_up_alone_says_why_it_has_no_figures(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    write_html([load_results.result(10)], path)
    text = "<p>join has no figures: all of its 3 requests were made in the warm-up.</p>"
    assert text in _page(path)


def test_the_verdict_comes_first_and_in_words(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    write_html([load_results.failed(seconds=10)], path)
    page = _page(path)
    places = [
        page.index(each)
        for each in (
            "✘ Failed",
            "3 records lost: acknowledged, but not in the log",
            "What does losing a broker feel like?",
            "What was run",
            "NOT_ENOUGH_REPLICAS",
            "Over time",
        )
    ]
    assert places == sorted(places)


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    users = [
        {"kind": "producer", "topic": "orders", "rate": 1.0, "client": {"sasl.password": "hunter2"}}
    ]
    path = tmp_path / "run.html"
    write_html([load_results.result(6, scenario=load_results.scenario(users=users))], path)
    assert "hunter2" not in path.read_text()
    assert "sasl.password (kept secret)" in _page(path)


@pytest.mark.long
def test_rounds_of_two_targets_are_compared_with_their_spread(tmp_path: Path) -> None:
    results = [
        load_results.result(
            40,
            seed=seed,
            stall=None,
            kind=kind,
            bootstrap=f"{kind}:9092",
            operations=[load_results.operation("produce", 40, seed=seed, median_us=median)],
        )
        for seed in (1, 2, 3)
        for kind, median in (("Raylog", 2_000.0), ("Apache Kafka", 4_000.0))
    ]
    path = tmp_path / "compared.html"
    write_html(results, path)
    page = _page(path)
    assert "Apache Kafka at Apache Kafka:9092 (B) compared with Raylog at Raylog:9092 (A)" in page
    assert "There are 3 rounds" in page
    rows = re.findall(r"<tr><td.*?</tr>", page)
    (p50,) = (each for each in rows if "p50 ms" in each)
    assert "worse in all rounds" in p50
    ratio = float(re.findall(r'"number">(\d\.\d\d)<', p50)[0])
    assert ratio == pytest.approx(2.0, rel=0.1)
    (rate,) = (each for each in rows if "requests/s" in each)
    assert "same in all rounds" in rate
    overlay = _groups(path)[0]["charts"][0]
    assert len(overlay["data"]) == 6


def test_repeated_runs_of_one_target_are_distinguished(tmp_path: Path) -> None:
    results = [load_results.result(40, seed=seed, stall=None) for seed in (1, 2)]
    path = tmp_path / "compared.html"
    write_html(results, path)
    assert "run 2: run-2 (B) compared with run 1: run-1 (A)" in _page(path)


def test_a_run_without_anything_has_a_report(tmp_path: Path) -> None:
    silent = Operation(name="produce", errors={}, intervals=[])
    empty: dict[str, Any] = {"generators": [], "gauges": [], "marks": [], "verdicts": []}
    for operations in ([], [silent]):
        path = tmp_path / "empty.html"
        write_html([load_results.result(10, operations=operations, **empty)], path)
        assert "No threshold was set" in _page(path)


@pytest.mark.long
def test_half_an_hour_stays_light(tmp_path: Path) -> None:
    """Of 1,800 seconds, 20 gauges and 8 processes."""
    minute = load_results.operation("produce", 60)
    intervals = [
        minute.intervals[second % 60].model_copy(update={"second": second})
        for second in range(1800)
    ]
    short = load_results.result(6)
    processes = [
        short.generators[0].model_copy(update={"worker": number, "cpu_share": [0.5] * 1800})
        for number in range(8)
    ]
    result = short.model_copy(
        update={
            "duration_s": 1800.0,
            "operations": [
                minute.model_copy(update={"name": name, "intervals": intervals})
                for name in ("produce", "end-to-end")
            ],
            "gauges": [
                load_results.gauge(f"metric {number}", "B", 1800, float, broker=str(broker))
                for number in range(20)
                for broker in range(3)
            ],
            "generators": processes,
            "marks": [Mark(at_s=float(at), kind="note", text="x") for at in range(1800)],
        }
    )
    path = tmp_path / "long.html"
    write_html([result], path)
    assert path.stat().st_size < 10_000_000
    for chart in _groups(path)[0]["charts"]:
        for trace in chart["data"]:
            assert len(trace["x"]) <= POINTS_MAX
