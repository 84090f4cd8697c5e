"""`raylog pipeline` where no Spark is needed: what is refused, what is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raylog.actors.runtime.processes import record_of
from raylog.cli.app import app
from raylog.cli.failures import CommandFailed
from raylog.client import BlockingClient, NewTopic
from raylog.raydp_jobs.pipelines.state import RunState, read_state
from raylog.testing import EmbeddedBroker

TEXT = """
name = "counts"
checkpoint = "checkpoint"
bootstrap = "{}"
[sources.rows]
topics = ["rows"]
format = "binary"
[transform]
sql = "SELECT value FROM rows"
[sink]
topic = "out"
"""
FAITHFUL = "import signal, sys; print(flush=True); signal.sigwait([signal.SIGTERM])"
DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        with BlockingClient(broker.bootstrap) as client:
            client.create_topics([NewTopic("rows", 1)])
        yield broker.bootstrap


@pytest.fixture
def file(tmp_path: Path, bootstrap: str) -> Path:
    path = tmp_path / "counts.toml"
    path.write_text(TEXT.format(bootstrap))
    return path


@pytest.fixture
def state(tmp_path: Path) -> RunState:
    """A run of this process that is written down."""
    return running(os.getpid(), tmp_path / "checkpoint")


def running(pid: int, checkpoint: Path) -> RunState:
    process = record_of("counts", pid)
    assert process is not None
    found = RunState("counts", pid, process.started, "running", 1_000)
    found.write(checkpoint)
    return found


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that does with SIGTERM what its code says."""
    command = [sys.executable, "-c", request.param]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def call(*arguments: object) -> str:
    """Standard output of a command; raises what it fails of."""
    result = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> CommandFailed:
    with pytest.raises(CommandFailed) as raised:
        call(*arguments)
    return raised.value


def test_a_file_that_makes_no_sense_is_a_mistake_of_usage(file: Path) -> None:
    file.write_text(file.read_text().replace("binary", "xml"))
    failure = refused("pipeline", "run", file).failure
    assert failure.exit_code == 2
    assert failure.message.startswith(f"{file}: sources.rows.format: Input should be 'json'")


def test_a_topic_that_is_not_there_is_told_before_spark_starts(file: Path) -> None:
    failure = refused("pipeline", "run", file, "--local").failure
    assert failure.message == (
        "sink.topic: there is no topic out: create it with `raylog topics create out`"
    )
    found = read_state(file.parent / "checkpoint")
    assert found is not None
    assert (found.state, found.error) == ("failed", failure.message)
    assert "last error: sink.topic: there is no topic out" in call("pipeline", "status", file)


def test_without_brokers_it_says_how_to_name_them(file: Path, tmp_path: Path) -> None:
    file.write_text(file.read_text().replace("bootstrap", "#"))
    failure = refused("pipeline", "run", file, "--data", tmp_path / "none").failure
    assert "names no bootstrap, and no cluster is running on" in failure.message
    assert "raylog up" in str(failure.hint)


def test_missing_java_is_told(
    file: Path, bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic("elsewhere", 1)])
    file.write_text(file.read_text().replace('"out"', '"elsewhere"'))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    failure = refused("pipeline", "run", file, "--local").failure
    assert "there is no java in JAVA_HOME" in failure.message


def test_two_runs_at_once_are_refused(file: Path, state: RunState) -> None:
    failure = refused("pipeline", "run", file, "--local").failure
    assert failure.message == f"counts is running already, as process {state.pid}"
    assert read_state(file.parent / "checkpoint") == state


def test_status_before_the_first_run(file: Path) -> None:
    assert "counts has not run yet" in call("pipeline", "status", file)
    assert json.loads(call("pipeline", "status", file, "--json"))["state"] is None


def test_status_of_a_run(file: Path, state: RunState) -> None:
    replace(state, batch_id=4, batch_rows=2_000, rows=9_000, rows_per_s=500.0, batch_at_ms=1).write(
        file.parent / "checkpoint"
    )
    told = call("pipeline", "status", file)
    assert f"counts running, process {state.pid}: batch 4" in told
    assert "2,000 rows, 500 rows/s; 9,000 rows in this run" in told
    found = json.loads(call("pipeline", "status", file, "--json"))
    assert (found["state"], found["batch_id"], found["rows_per_s"]) == ("running", 4, 500.0)
    assert (found["lag"], found["failure"]) == ({"rows": None}, None)


def test_status_without_brokers_tells_the_rest(file: Path, state: RunState) -> None:
    told = json.loads(call("pipeline", "status", file, "--json", "-b", "127.0.0.1:1"))
    assert (told["state"], told["lag"]) == ("running", None)
    assert "127.0.0.1:1" in told["failure"]


def test_what_does_not_run_cannot_be_stopped(file: Path, state: RunState) -> None:
    replace(state, started="another boot").write(file.parent / "checkpoint")
    assert "counts is not running" in refused("pipeline", "stop", file).failure.message


@pytest.mark.parametrize("child", [FAITHFUL], indirect=True)
def test_stop_waits_for_the_end(file: Path, child: subprocess.Popen[str]) -> None:
    run = running(child.pid, file.parent / "checkpoint")
    call("pipeline", "stop", file)
    assert not run.is_running


@pytest.mark.parametrize("child", [DEAF], indirect=True)
def test_stop_does_not_wait_for_ever(
    file: Path, child: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raylog.cli.pipeline._INTERRUPTED_S", 0)
    run = running(child.pid, file.parent / "checkpoint")
    failure = refused("pipeline", "stop", file, "--timeout", "0.1").failure
    assert "did not end within 0.1 s" in failure.message
    assert not run.is_running
