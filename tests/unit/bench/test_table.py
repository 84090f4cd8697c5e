"""Ratios, medians and their tables."""

from typing import Literal

import pytest

from bench.table import HEADINGS, Row, headings, markdown, rows_of
from bench.workloads import Metric, Sample


def row(better: Literal["higher", "lower"], *pairs: tuple[float, float]) -> Row:
    return Row("w", Metric("m", "MB/s", better), list(pairs))


def test_ratio_is_the_median_of_the_pairs_not_of_the_medians() -> None:
    found = row("higher", (100, 110), (10, 20), (50, 45))
    assert found.ratios == pytest.approx([1.1, 2.0, 0.9])
    assert found.ratio == pytest.approx(1.1)
    assert found.medians == (50, 45)


@pytest.mark.parametrize(
    ("better", "candidate", "is_better"),
    [("higher", 11, True), ("higher", 9, False), ("lower", 9, True), ("lower", 11, False)],
)
def test_better_depends_on_the_metric(
    better: Literal["higher", "lower"], candidate: float, is_better: bool
) -> None:
    assert row(better, (10, candidate)).is_better is is_better


def test_a_baseline_of_nothing_divides_nothing() -> None:
    assert row("lower", (0, 5)).ratio == 1.0


def test_rows_of_takes_cpu_per_payload() -> None:
    metric = Metric("throughput", "MB/s", "higher")
    baseline = Sample({"throughput": 50.0}, broker_cpu_s=2.0, payload_bytes=500_000_000)
    candidate = Sample({"throughput": 60.0}, broker_cpu_s=1.0, payload_bytes=500_000_000)
    (found,) = rows_of("produce", [metric], [(baseline, candidate)])
    assert found.cells() == [
        "produce",
        "throughput, MB/s",
        "50.00",
        "60.00",
        "1.20",
        "",
        "4.0 / 2.0",
    ]


def test_rows_without_cpu_leave_the_column_empty() -> None:
    metric = Metric("p99", "ms", "lower")
    (found,) = rows_of("paced", [metric], [(Sample({"p99": 5.0}), Sample({"p99": 2.5}))] * 2)
    assert found.cells()[-2:] == ["0.50-0.50", ""]


def test_markdown_has_a_line_for_every_row() -> None:
    lines = markdown([row("higher", (1, 2)), row("higher", (1, 3))], "K", "R").splitlines()
    assert len(lines) == 4
    assert all(line.count("|") == len(HEADINGS) + 1 for line in lines)
    assert headings("K", "R")[2:4] == ["K", "R"]
