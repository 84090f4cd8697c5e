"""`raylog loadtest`: what it refuses before any load, and what it lists."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from raylog.cli.app import app
from raylog.cli.failures import explain
from raylog.cli.loadtest import _shower
from raylog.cli.progress import Progress
from raylog.client import NotConnected
from raylog.cluster_record import ClusterRecord
from raylog.loadtest import command
from raylog.loadtest.command import Arguments, free_port
from raylog.loadtest.jobs import Job, Said
from raylog.loadtest.jobs import Progress as RunProgress
from raylog.loadtest.local import Local
from raylog.loadtest.process_supervisor import RunFailed
from raylog.loadtest.results import Result as LoadResult
from raylog.loadtest.results import Target
from raylog.loadtest.shipped import names
from tests.support import load_results


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
    scenarios = json.loads(invoke("--list", "--json").stdout)
    assert [one["name"] for one in scenarios] == names()
    assert all(one["question"].endswith("?") for one in scenarios)


def test_run_is_what_is_meant_without_a_command() -> None:
    assert "SCENARIO" in invoke("run", "--help").stdout
    help_text = " ".join(invoke("--help").stdout.replace("│", " ").split())
    assert "diff" in help_text
    assert "raylog loadtest run --help" in help_text
    assert "raylog loadtest --list" in help_text
    assert refused(2, "run", "nonsense") == refused(2, "nonsense")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nonsense"], "expected a TOML file, or one of the scenarios broker-loss, "),
        (["run", ""], "expected a TOML file, or one of the scenarios broker-loss, "),
        (["nothing.toml"], "there is no file nothing.toml"),
        (["--json"], "expected a scenario"),
        (["steady", "--processes", "2", "--on-ray", "2"], "expected --processes or --on-ray"),
        (["steady", "--rounds", "2"], "--rounds needs --compare"),
        (["steady", "--set", "users.9.rate=1"], "an entry, 0 to 1, found '9'"),
        (["steady", "--set", "users.0.rate=fast"], "users[0].rate: expected a number"),
        (["steady", "--set", "users.0.count=100000"], "need at least 400,108 open files"),
        (["steady", "-X", "foo=bar"], "unknown setting 'foo'"),
        (["steady", "--duration", "-3"], "--duration"),
        (["steady", "-X", "sasl.mechanism"], "expected KEY=VALUE"),
        (["steady", "-X", "security.protocol=SSSL"], "security.protocol: expected 'PLAINTEXT'"),
        (["steady", "-X", "linger.ms=5"], "linger.ms is a setting of producers"),
        (["steady", "-b", ""], "bootstrap.servers: expected host:port"),
        (["steady", "-b", "127.0.0.1:99999"], "expected host:port, found '127.0.0.1:99999'"),
        (["steady", "-b", "foo:bar:9"], "expected host:port, found 'foo:bar:9'"),
        (["steady", "-b", "a:1", "--compare", "b:2,a:1"], "found a:1 in both lists of brokers"),
        (["steady", "--processes", "1000"], "of this machine; found 1000"),
        (["steady", "--web-port", "8000"], "--web-port needs --web"),
        (["steady", "--out", "/proc/x"], "--out: /proc/x: No such file"),
        (["diff", "a.json", __file__], "a.json"),
        (["diff", __file__, "."], "'.' is a directory"),
    ],
)
def test_invalid_loadtest_arguments_are_refused(arguments: list[str], expected: str) -> None:
    named = ["-b", "127.0.0.1:1"] if arguments[0] == "steady" and "-b" not in arguments else []
    found = refused(2, *arguments, *named)
    assert expected in " ".join(found.replace("│", " ").split())


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


def test_a_port_for_the_page_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        found = refused(2, "steady", "--web", "--web-port", port, "--data", tmp_path)
    assert f"cannot serve Locust's page on 127.0.0.1:{port}: Address already in use" in found
    assert "--web-port PORT, or 0" in found
    assert free_port(port) == port
    assert free_port(0)


def test_without_a_terminal_a_line_tells_now_and_then_how_a_run_goes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress() as progress:
        show = _shower(progress)
        for at_s in (*range(1, 62), *range(1, 32)):  # two runs
            show(
                RunProgress(
                    at_s=at_s,
                    of_s=90,
                    operation="produce",
                    per_s=2_000,
                    p99_ms=7.5,
                    errors=3,
                    lag=None,
                )
            )
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["30", "60", "30"]
    assert lines[0] == "30 of 90 s: produce 2,000/s, p99 7.5 ms, 3 errors"


def arguments(tmp_path: Path) -> Arguments:
    return Arguments(
        scenario=load_results.scenario(faults=[], duration_s=20.0),
        bootstrap="raylog:1",
        data=tmp_path / "data",
        address=None,
        compare="kafka:2",
        out=tmp_path / "out",
    )


def test_a_run_is_kept_if_the_next_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"raylog:1": "Raylog", "kafka:2": "Apache Kafka 4.3"}

    def checked(settings: object, local: Local, known: str) -> Target:
        return Target(bootstrap=local.bootstrap, kind=kinds[local.bootstrap], brokers=1)

    def conduct(job: Job, *_: object) -> LoadResult:
        if job.bootstrap == "kafka:2":
            raise RunFailed("gone")
        return load_results.result(20)

    monkeypatch.setattr(command, "checked_target", checked)
    monkeypatch.setattr(command, "conduct", conduct)
    said: list[str] = []

    def show(what: RunProgress | Said) -> None:
        assert isinstance(what, Said)
        said.append(what.text)

    results: list[LoadResult] = []
    with pytest.raises(RunFailed, match="gone"):
        command.run(arguments(tmp_path), results, show)
    assert len(results) == 1
    assert {one.name for one in (tmp_path / "out").iterdir()} == {"report.html", "result-1.json"}
    assert said[:2] == ["A: Raylog at raylog:1", "B: Apache Kafka 4.3 at kafka:2"]
    assert said[2].startswith(
        "Each run has 15 s after its warm-up. A comparison needs at least 25 s"
    )


def test_a_run_whose_reports_cannot_be_written_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked(settings: object, local: Local, known: str) -> Target:
        return Target(bootstrap=local.bootstrap, kind="Raylog", brokers=1)

    def conduct(job: Job, *_: object) -> LoadResult:
        out.rmdir()
        return load_results.result(20)

    out = tmp_path / "out"
    monkeypatch.setattr(command, "checked_target", checked)
    monkeypatch.setattr(command, "conduct", conduct)
    done = invoke("steady", "-b", "raylog:1", "--out", out, "--json")
    assert LoadResult.model_validate_json(done.stdout) == load_results.result(20)
    assert isinstance(done.exception, FileNotFoundError)
    failure = explain(done.exception)
    assert failure is not None
    assert str(out) in failure.message
    assert "report:" not in done.output


def test_both_clusters_are_asked_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked(settings: object, local: Local, known: str) -> Target:
        if local.bootstrap == "kafka:2":
            raise NotConnected("no broker can be reached")
        return Target(bootstrap=local.bootstrap, kind="Raylog", brokers=1)

    def conduct(job: Job, *_: object) -> LoadResult:
        pytest.fail("the other cluster cannot be reached")

    monkeypatch.setattr(command, "checked_target", checked)
    monkeypatch.setattr(command, "conduct", conduct)
    with pytest.raises(NotConnected):
        command.run(arguments(tmp_path), [], lambda _: None)


def test_faults_are_done_to_our_own_clusters_only(tmp_path: Path) -> None:
    found = refused(2, "broker-loss", "--bootstrap", "127.0.0.1:1", "--data", tmp_path)
    assert "faults (kill-leader) need a cluster that `raylog up` started" in found
    assert "no cluster is running on" in refused(3, "broker-loss", "--data", tmp_path)
    assert "no cluster is running on" in refused(3, "steady", "--on-ray", 2, "--data", tmp_path)


def test_faults_are_not_done_to_another_cluster_of_this_machine(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    record = ClusterRecord("id", [0], ["127.0.0.1:9092"], "127.0.0.1:1", None, "secret")
    record.write(run)
    found = refused(2, "broker-loss", "--bootstrap", "127.0.0.1:9999", "--data", tmp_path)
    assert "faults (kill-leader) need a cluster" in found
    both = ["--compare", "127.0.0.1:9999"]
    assert "faults (kill-leader)" in refused(2, "broker-loss", "--data", tmp_path, *both)
