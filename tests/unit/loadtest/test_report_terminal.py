"""The report in a terminal: 80 columns, and plain text without a terminal."""

import pytest

from raylog.loadtest.report import comparisons, print_comparison, print_result
from raylog.loadtest.results import Finding
from tests.support import load_results


def _printed(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    return text


def test_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(load_results.failed())
    text = _printed(capsys)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[:3] == [
        "broker-loss at Raylog 0.1.0 at 127.0.0.1:9092, 3 brokers, 2 min",
        "FAILED",
        "3 records lost: acknowledged, but not in the log",
    ]
    (produce,) = (line.split() for line in lines if line.startswith("produce  "))
    assert produce[1] == "20,000"
    assert produce[-1] == "317"
    assert "310 × produce: NOT_ENOUGH_REPLICAS: expected 2 in-sync replicas, found 1" in lines
    assert "lost: orders-2, sender 4, sequence 17" in lines


def test_a_result_that_passed(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(load_results.result(10))
    text = _printed(capsys)
    assert "PASSED" in text
    assert "join has no figures: all of its 3 requests were made in the warm-up." in text


def test_hostile_texts(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "[red]x[/red][/]\x1b[2J" + "y" * 300
    operation = load_results.operation("produce", 10, errors={hostile: 1}, stall=(6, 1.0))
    print_result(
        load_results.result(
            10,
            operations=[operation.model_copy(update={"name": hostile})],
            findings=[Finding(kind="lost", count=1, examples=[hostile])],
            notes=[hostile],
            kind=hostile,
        )
    )
    assert "[red]x[/red]" in _printed(capsys)


def test_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    a = load_results.result(70, stall=None)
    b = load_results.failed(seconds=70, seed=2, stall=None, median_us=4_000)
    b = b.model_copy(update={"target": b.target.model_copy(update={"bootstrap": "other:9"})})
    (pair,) = comparisons([a, b])
    print_comparison(pair)
    text = _printed(capsys)
    (p50,) = (line.split() for line in text.splitlines() if "produce" in line and "p50 ms" in line)
    assert p50[-1] == "worse"
    assert "B failed: 3 records lost" in text
    assert "Repeated runs may differ by more" in text
    assert f"A: {a.target.kind} at {a.target.bootstrap}" in text
    assert f"B: {b.target.kind} at other:9" in text
