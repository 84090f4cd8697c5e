"""`raylog loadtest`: what it refuses before anything is loaded, and what it lists."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from raylog.cli.app import app
from raylog.cli.cluster_record import ClusterRecord
from raylog.cli.failures import explain
from raylog.loadtest.shipped import names


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(
        app, ["loadtest", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"}
    )


def refused(exit_code: int, *arguments: object) -> str:
    """What a person is told of a command that fails."""
    done = invoke(*arguments)
    assert done.exception is not None, done.output
    if isinstance(done.exception, SystemExit):
        assert done.exit_code == exit_code
        return done.output
    assert isinstance(done.exception, Exception)
    failure = explain(done.exception)
    assert failure is not None
    assert failure.exit_code == exit_code
    return f"{failure.message}\n{failure.hint}"


def test_the_shipped_scenarios_are_listed() -> None:
    listed = invoke("--list").stdout
    assert len(names()) >= 12
    assert all(name in listed for name in names())
    told = json.loads(invoke("--list", "--json").stdout)
    assert [one["name"] for one in told] == names()
    assert all(one["question"].endswith("?") for one in told)


def test_run_is_what_is_meant_without_a_command() -> None:
    assert "SCENARIO" in invoke("run", "--help").stdout
    assert "diff" in invoke("--help").stdout
    assert refused(2, "run", "nonsense") == refused(2, "nonsense")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nonsense"], "expected a TOML file, or one of the scenarios broker-loss, "),
        (["run", ""], "expected a TOML file, or one of the scenarios broker-loss, "),
        (["nothing.toml"], "there is no file nothing.toml"),
        (["--json"], "expected a scenario"),
        (["steady", "--processes", "2", "--on-ray", "2"], "expected --processes or --on-ray"),
        (["steady", "--rounds", "2"], "--rounds goes with --compare"),
        (["steady", "--set", "users.9.rate=1"], "an entry, 0 to 1, found '9'"),
        (["steady", "--set", "users.0.rate=fast"], "users[0].rate: expected a number"),
        (["steady", "--set", "users.0.count=100000"], "need at least 400,108 open files"),
        (["steady", "-X", "foo=bar"], "unknown setting 'foo'"),
        (["steady", "--duration", "-3"], "--duration"),
        (["steady", "-X", "sasl.mechanism"], "expected KEY=VALUE"),
        (["diff", "a.json", __file__], "a.json"),
    ],
)
def test_what_makes_no_sense(arguments: list[str], told: str) -> None:
    found = refused(2 if arguments[0] != "diff" else 1, *arguments)
    assert told in " ".join(found.replace("│", " ").split())


def test_files_that_are_no_results(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    assert "expected the JSON of a load test" in refused(2, "diff", path, path)


def test_nobody_answers(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{nobody.getsockname()[1]}"
        found = refused(
            3, "steady", "--bootstrap", where, "--duration", 1, "--set", "users.0.count=1"
        )
    assert where in found


def test_faults_are_done_to_our_own_clusters_only(tmp_path: Path) -> None:
    found = refused(2, "broker-loss", "--bootstrap", "127.0.0.1:1", "--data", tmp_path)
    assert "faults (kill-leader) are done only to a cluster that `raylog up` started" in found
    assert "no cluster is running on" in refused(1, "broker-loss", "--data", tmp_path)


def test_faults_are_not_done_to_another_cluster_of_this_machine(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    record = ClusterRecord("id", [0], ["127.0.0.1:9092"], "127.0.0.1:1", None, "secret")
    record.write(run)
    found = refused(2, "broker-loss", "--bootstrap", "127.0.0.1:9999", "--data", tmp_path)
    assert "faults (kill-leader) are done only" in found
    both = ["--compare", "127.0.0.1:9999"]
    assert "faults (kill-leader)" in refused(2, "broker-loss", "--data", tmp_path, *both)
