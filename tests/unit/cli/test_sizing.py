"""Sizing: from a load and measured figures to brokers, and what the page says about it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.cli.sizing import figure
from raylog.cli.sizing_plan import FIGURES, Load, Machine, plan

DOCS = Path(__file__).parents[3] / "docs"
LOAD = Load(mb_s=50.0, partitions=2000, connections=500, replication=3, retention_s=7 * 86_400)


def test_a_usual_load() -> None:
    found = plan(LOAD, Machine())
    assert (found.brokers, found.decided_by) == (3, "replication")
    assert found.cores == pytest.approx(2 * 1.63 + 3 * 0.12, rel=0.02)
    assert found.disk_gb == pytest.approx(1.25 * 0.05 * 604_800 * 3 / 2)
    assert found.disk_mb_s == pytest.approx(75.0)
    assert found.network_gbit_s == pytest.approx(2 * 150 * 8 / 1000 / 2)
    assert found.memory_mib == pytest.approx(418 + 2000 * 822 * 4 / 2**20 + 250 * 11_275 / 2**20)
    assert found.notes == []


def test_the_model_gives_back_what_was_measured() -> None:
    """A GB in batches of 64 KiB with three copies: 12 CPU seconds of all brokers."""
    load = replace(LOAD, mb_s=1000.0, batch_kib=64.0, readers=0.0, connections=0, partitions=10_000)
    found = plan(load, Machine(cores=64))
    assert (found.cores - found.brokers * 0.12) / 2 == pytest.approx(12.0, rel=0.02)


@pytest.mark.parametrize(
    ("load", "machine", "brokers", "decided_by"),
    [
        (replace(LOAD, mb_s=1000.0), Machine(), 18, "cores"),
        (replace(LOAD, mb_s=1000.0), Machine(cores=64, network_gbit_s=1.0), 49, "network"),
        (LOAD, Machine(disk_gb=2000.0), 58, "disk"),
        (replace(LOAD, replication=1), Machine(), 1, "cores"),
        (replace(LOAD, replication=5), Machine(), 5, "replication"),
    ],
)
def test_sizing_names_the_deciding_resource(
    load: Load, machine: Machine, brokers: int, decided_by: str
) -> None:
    found = plan(load, machine)
    assert (found.brokers, found.decided_by) == (brokers, decided_by)


@pytest.mark.parametrize("field", ["mb_s", "connections", "readers", "replication", "partitions"])
def test_more_never_needs_less(field: str) -> None:
    more = replace(LOAD, **{field: getattr(LOAD, field) * 10})
    small, large = plan(LOAD, Machine()), plan(more, Machine())
    assert large.brokers >= small.brokers
    assert large.cores >= small.cores


def test_loads_beyond_the_measured_range_are_reported() -> None:
    far = replace(LOAD, partitions=200_000, connections=1_000_000)
    assert [note.split(" were")[0] for note in plan(far, Machine()).notes] == [
        "more than 3 brokers",
        "more than 100,000 partitions",
        "more than 10,500 connections a broker",
    ]
    few = plan(replace(LOAD, partitions=2, replication=1), Machine()).notes
    assert few[0].startswith("expected at least 3 partitions, found 2: one takes at most 47 MB/s")
    assert (
        few[1]
        == "with one copy, the data of a lost broker is gone, and the plan has no spare broker"
    )


def test_the_command_and_its_json() -> None:
    asked = ["sizing", "--mb-s", "50", "--partitions", "2000", "--connections", "500"]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0
    assert re.search(r"brokers +3 +decided by 3 copies; one may be lost", shown.output)
    found = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)
    assert found["brokers"] == 3
    assert found["figures"]["connection"]["command"] == "make scale-connections"
    assert found["load"]["retention_s"] == 604_800


def test_with_one_copy_no_broker_may_be_lost() -> None:
    shown = CliRunner().invoke(app, ["sizing", "--mb-s", "0.01", "--replication", "1"]).output
    assert re.search(r"brokers +1 +decided by the cores; none may be lost", shown)
    assert "when one is lost" not in shown


def test_small_figures_do_not_read_as_zero() -> None:
    shown = CliRunner().invoke(app, ["sizing", "--mb-s", "0.001", "--connections", "0"]).output
    assert re.search(r"disk, written +0\.0015 MB/s", shown)
    assert re.search(r"network +0\.000024 Gbit/s", shown)
    assert " 0 " not in shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (0.000_024, "0.000024"),
        (0.456, "0.46"),
        (0.999, "1"),
        (3.0, "3"),
        (3.64, "3.6"),
        (9.99, "10"),
        (12.0, "12"),
        (56_700.4, "56,700"),
    ],
)
def test_figures(value: float, expected: str) -> None:
    assert figure(value) == expected


@pytest.mark.parametrize("text", ["", "7", "0d", "d", "7 d", "-1d", "1w", "9999999999d"])
def test_a_retention_that_is_none_is_refused(text: str) -> None:
    refused = CliRunner().invoke(app, ["sizing", "--mb-s", "1", f"--retention={text}"])
    assert refused.exit_code == 2
    assert "expected 90m, 12h or 7d" in refused.output


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_stands_in_the_page_with_a_command_of_the_benchmarks(name: str) -> None:
    figure = FIGURES[name]
    row = f"| {figure.what} | {figure.value:,g} {figure.unit} | `{figure.command}` |"
    assert row in (DOCS / "sizing.md").read_text()
    assert figure.command in (DOCS / "BENCHMARKS.md").read_text()
