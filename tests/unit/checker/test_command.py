"""`python -m tests.checker`: verdicts for people and programs, and exit codes."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.checker.__main__ import main
from tests.checker.anomalies import Kind
from tests.checker.lines import encode
from tests.checker.model import clean_history
from tests.checker.operations import Operation
from tests.checker.plants import plant


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(main)
    return made


def run(app: typer.Typer, folder: Path, operations: list[Operation], *options: str) -> Result:
    """Check a history that stands in two files."""
    paths = [folder / "one.jsonl", folder / "two.jsonl"]
    for number, path in enumerate(paths):
        path.write_text("".join(encode(one) + "\n" for one in operations[number::2]))
    return CliRunner().invoke(app, [*map(str, paths), *options])


def test_a_clean_history_is_valid(app: typer.Typer, tmp_path: Path) -> None:
    result = run(app, tmp_path, clean_history(1))
    assert result.exit_code == 0
    assert "no anomaly" in result.output
    for kind in Kind:
        assert kind in result.output


def test_anomalies_are_shown_with_their_evidence(app: typer.Typer, tmp_path: Path) -> None:
    operations = clean_history(3)
    planted = plant(Kind.LOST_WRITE, operations, 3)
    assert planted is not None
    result = run(app, tmp_path, operations)
    assert result.exit_code == 1
    assert "lost-write: 1" in result.output
    assert "anomalies: 1" in result.output
    assert '["final","final-0"' in result.output
    as_json = run(app, tmp_path, operations, "--json")
    assert as_json.exit_code == 1
    verdict = json.loads(as_json.output)
    assert verdict["valid"] is False
    (anomaly,) = verdict["anomalies"]
    assert (anomaly["kind"], anomaly["values"]) == ("lost-write", list(planted.values))
    assert verdict["counts"]["operations"] == len(operations)


def test_write_cycles_count_only_where_writes_are_isolated(
    app: typer.Typer, tmp_path: Path
) -> None:
    operations = clean_history(5)
    assert plant(Kind.G0, operations, 5) is not None
    assert run(app, tmp_path, operations).exit_code == 0
    assert run(app, tmp_path, operations, "--write-isolation").exit_code == 1


def test_a_malformed_history_is_named(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('["topic","t",true]\n["topic"]\n')
    result = CliRunner().invoke(app, [str(path)])
    assert result.exit_code == 2
    assert f"{path}:2: expected 3 elements of a topic, found 1" in result.stderr
