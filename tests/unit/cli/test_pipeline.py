"""`raylog pipeline` without Spark: refusals and messages."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from raylog.actors.runtime.processes import is_running, record_of
from raylog.cli import pipeline, ray_cluster
from raylog.cli.app import app
from raylog.cli.failures import CommandFailed
from raylog.client import BlockingClient, ClientError, NewTopic
from raylog.cluster_record import ClusterRecord
from raylog.raydp_jobs.pipelines import register, running
from raylog.raydp_jobs.pipelines.register import RunTopic, here
from raylog.raydp_jobs.pipelines.running import Control, noted
from raylog.raydp_jobs.pipelines.runs import Place, RunState, StopRequest, encode, run_key
from raylog.raydp_jobs.pipelines.spec import load
from raylog.raydp_jobs.session import NoCluster, SparkSettings
from raylog.testing import EmbeddedBroker

TEXT = """
name = "{}"
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
_numbers = itertools.count()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        with BlockingClient(broker.bootstrap) as client:
            client.create_topics([NewTopic("rows", 1)])
        yield broker.bootstrap


@pytest.fixture(autouse=True)
def _java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like Java 17: no test here starts Spark."""
    java = tmp_path / "jre" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))


@pytest.fixture
def file(tmp_path: Path, bootstrap: str) -> Path:
    name = f"counts-{next(_numbers)}"
    path = tmp_path / f"{name}.toml"
    path.write_text(TEXT.format(name, bootstrap))
    return path


@pytest.fixture
def topic(bootstrap: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunTopic]:
    """The pipeline's records; each test has a pipeline of its own, with a run `r`."""
    monkeypatch.setattr(register, "_HELD", {"r"})
    with RunTopic(bootstrap, file.stem) as topic:
        topic.prepare()
        yield topic


@pytest.fixture
def run(topic: RunTopic) -> RunState:
    """A run of this process."""
    return write_state(topic)


def write_state(topic: RunTopic, **fields: object) -> RunState:
    """What a run tells of itself."""
    state = RunState(topic.watch.name, here(), "running", 1_000, run="r", generation=1, at_ms=9_000)
    state = replace(state, **fields)  # type: ignore[arg-type]  # of the test's own
    topic.write(run_key(state.name), encode(state))
    return state


class Elsewhere:
    """A run on another machine, with heartbeats, which obeys requests."""

    def __init__(self, bootstrap: str, name: str, *, is_deaf: bool = False) -> None:
        self.requests: list[StopRequest] = []
        self._is_deaf = is_deaf
        self._topic = RunTopic(bootstrap, name)
        self._topic.prepare()
        self._ended = threading.Event()
        self._beat = 0
        self._tell("running")
        self._thread = threading.Thread(target=self._live)

    def __enter__(self) -> Elsewhere:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._topic.close()

    def _tell(self, state: str) -> None:
        self._beat += 1
        place = Place("far", 7, "noon", "another")
        write_state(self._topic, place=place, state=state, beat=self._beat)

    def _live(self) -> None:
        while not self._ended.wait(0.02):
            asked = self._topic.read().asked_to_stop("r")
            if asked is not None and asked not in self.requests:
                self.requests.append(asked)
            if asked is not None and (asked.is_now or not self._is_deaf):
                self._tell("stopped")
                return
            self._tell("running")


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


def test_a_topic_that_is_not_there_is_reported_before_spark_starts(
    file: Path, bootstrap: str
) -> None:
    failure = refused("pipeline", "run", file, "--local").failure
    assert failure.message == (
        f"sink.topic: there is no topic out on {bootstrap}: create it with "
        f"`raylog topics create out --bootstrap {bootstrap}`"
    )
    output = call("pipeline", "status", file)
    place = f"process {os.getpid()} on {socket.gethostname()}"
    assert f"{file.stem} failed, {place}, before its first batch" in output
    assert "last error: sink.topic: there is no topic out" in output


def test_without_brokers_it_says_how_to_name_them(file: Path, tmp_path: Path) -> None:
    file.write_text(file.read_text().replace("bootstrap", "#"))
    failure = refused("pipeline", "run", file, "--data", tmp_path / "none").failure
    assert "has no bootstrap, and no cluster is running on" in failure.message
    assert "raylog up" in str(failure.hint)


@pytest.fixture
def on_a_ray(bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cluster is on a Ray that runs already, and no folder of this machine tells of it."""
    record = ClusterRecord("c", [0], [bootstrap], "h:1", None, "")
    monkeypatch.setattr(ray_cluster, "on_ray", contextlib.nullcontext)
    monkeypatch.setattr(ray_cluster, "the_cluster", lambda *_: None)
    monkeypatch.setattr(ray_cluster, "record_of", lambda *_: record)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")


@pytest.mark.usefixtures("on_a_ray")
def test_by_address_a_pipeline_needs_no_folder_of_a_cluster(
    file: Path, bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[object] = []

    class NoSession:
        """A session that fails to start."""

        def __init__(self, data: Path | None, _: SparkSettings, *, address: str | None) -> None:
            asked.append((data, address))

        def __enter__(self) -> None:
            raise NoCluster("no session here")

        def __exit__(self, *_: object) -> None:
            """Nothing has begun."""

    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic("by-address", 1)])
    text = file.read_text().replace("bootstrap", "#").replace('"out"', '"by-address"')
    file.write_text(text)
    monkeypatch.setattr(running, "spark_session", NoSession)
    failure = refused("pipeline", "run", file, "--address", "h:1").failure
    assert failure.message == "no session here"
    assert asked == [(None, "h:1")]
    assert f"{file.stem} failed" in call("pipeline", "status", file, "--address", "h:1")
    assert "is not running" in str(refused("pipeline", "stop", file, "--address", "h:1"))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_without_ray_and_by_the_address_of_one_is_a_mistake_of_usage(file: Path) -> None:
    arguments = ["pipeline", "run", str(file), "--local", "--address", "h:1"]
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_missing_java_is_reported(
    file: Path, bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic("elsewhere", 1)])
    file.write_text(file.read_text().replace('"out"', '"elsewhere"'))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    failure = refused("pipeline", "run", file, "--local").failure
    assert "there is no java in JAVA_HOME" in failure.message
    assert "has not run yet" in call("pipeline", "status", file), "nothing is registered"


def test_how_large_batches_may_become_is_reported_at_the_start(file: Path) -> None:
    result = CliRunner().invoke(app, ["pipeline", "run", str(file), "--local"])
    assert "most records in a batch: 1,000,000 of rows" in result.stderr


def test_two_runs_at_once_are_refused(file: Path, run: RunState) -> None:
    failure = refused("pipeline", "run", file, "--local").failure
    assert failure.message == f"{file.stem} is running already, as {run.place}"


def test_a_run_of_an_older_build_is_seen(file: Path) -> None:
    folder = file.parent / "checkpoint" / "raylog"
    folder.mkdir(parents=True)
    noted = {"name": file.stem, "pid": os.getpid(), "started": here().started, "since_ms": 1}
    (folder / "run.json").write_text(json.dumps({**noted, "state": "running", "rows": 7}))
    failure = refused("pipeline", "run", file, "--local").failure
    assert failure.message == (
        f"{file.stem} is running already, as process {os.getpid()}, of an older build"
    )
    (folder / "run.json").write_text(json.dumps({**noted, "state": "running", "started": "x"}))
    assert f"{file.stem} died, process {os.getpid()}" in call("pipeline", "status", file)


def test_status_before_the_first_run(file: Path) -> None:
    assert f"{file.stem} has not run yet" in call("pipeline", "status", file)
    assert json.loads(call("pipeline", "status", file, "--json"))["state"] is None


def test_status_of_a_run(file: Path, topic: RunTopic) -> None:
    write_state(
        topic, batch_id=4, batch_rows=2_000, rows=9_000, rows_per_s=500.0, batch_at_ms=6_500
    )
    shown = call("pipeline", "status", file)
    assert f"{file.stem} running, {here()}: batch 4 2.5 s ago, 2,000 rows, 500 rows/s" in shown
    assert "9,000 rows in this run" in shown
    found = json.loads(call("pipeline", "status", file, "--json"))
    assert (found["state"], found["batch_id"], found["rows_per_s"]) == ("running", 4, 500.0)
    assert (found["host"], found["pid"]) == (socket.gethostname(), os.getpid())
    assert (found["lag"], found["failure"]) == ({"rows": None}, None)


def test_a_run_that_nobody_stopped_has_finished(file: Path, bootstrap: str) -> None:
    control = Control()
    with noted(load(file), control, bootstrap):
        pass
    assert f"{file.stem} finished, {here()}, before its first batch" in call(
        "pipeline", "status", file
    )
    with noted(load(file), control, bootstrap):
        control.stop()
    assert f"{file.stem} stopped, {here()}" in call("pipeline", "status", file)


def test_status_of_a_run_that_was_killed_here(file: Path, topic: RunTopic) -> None:
    write_state(topic, place=replace(here(), started="before"), batch_id=4, batch_at_ms=86_400_000)
    shown = call("pipeline", "status", file)
    assert f"{file.stem} died, {here()}: batch 4 at 1970-01-02 00:00:00 UTC" in shown


def test_status_of_a_run_elsewhere(file: Path, bootstrap: str) -> None:
    with Elsewhere(bootstrap, file.stem):
        assert f"{file.stem} running, process 7 on far" in call("pipeline", "status", file)


def test_status_of_a_run_elsewhere_that_is_silent(
    file: Path, topic: RunTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(topic, place=Place("far", 7, "noon", "another"))
    monkeypatch.setattr(register, "SILENCE_S", 0.1)
    shown = call("pipeline", "status", file)
    assert f"{file.stem} silent, process 7 on far, last reported at 1970-01-01 00:00:09" in shown
    assert json.loads(call("pipeline", "status", file, "--json"))["state"] == "silent"


def test_status_without_brokers_says_so(file: Path) -> None:
    """A run is known by the brokers alone."""
    with pytest.raises(ClientError, match=r"127\.0\.0\.1:1"):
        call("pipeline", "status", file, "--json", "-b", "127.0.0.1:1")


def test_stopping_a_pipeline_that_does_not_run_is_refused(file: Path, topic: RunTopic) -> None:
    assert f"{file.stem} is not running" in refused("pipeline", "stop", file).failure.message
    write_state(topic, place=replace(here(), started="before"))
    assert f"{file.stem} is not running" in refused("pipeline", "stop", file).failure.message


def test_stop_is_heard_on_another_machine(file: Path, bootstrap: str) -> None:
    with Elsewhere(bootstrap, file.stem) as run:
        call("pipeline", "stop", file)
        assert run.requests == [StopRequest("r")]


def test_stop_gives_a_batch_up(file: Path, bootstrap: str) -> None:
    with Elsewhere(bootstrap, file.stem, is_deaf=True) as run:
        failure = refused("pipeline", "stop", file, "--timeout", "0.1").failure
        assert failure.message == "the batch did not end within 0.1 s and was given up"
        assert run.requests[-1] == StopRequest("r", is_now=True)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"state": "failed", "error": "no disk"}, "failed before it stopped: no disk"),
        ({"place": replace(here(), started="before")}, "died before it stopped: process"),
    ],
)
def test_a_run_that_ends_otherwise_was_not_stopped(
    file: Path,
    run: RunState,
    bootstrap: str,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, object],
    says: str,
) -> None:
    def ends(topic: RunTopic, *_: object, **__: object) -> None:
        write_state(topic, **fields)

    monkeypatch.setattr(register, "ask_to_stop", ends)
    assert says in refused("pipeline", "stop", file).failure.message


def test_stop_does_not_wait_for_a_machine_that_is_gone(
    file: Path, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Elsewhere(bootstrap, file.stem, is_deaf=True) as run:

        def dies(*_: object, **__: object) -> None:
            run._ended.set()
            monkeypatch.setattr(register, "SILENCE_S", 0.1)

        monkeypatch.setattr(register, "ask_to_stop", dies)
        failure = refused("pipeline", "stop", file).failure
        assert f"{file.stem} no longer reports" in failure.message


DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"


def test_a_process_here_that_does_not_answer_is_ended(
    file: Path, topic: RunTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raylog.cli.pipeline._INTERRUPTED_S", 0.1)
    monkeypatch.setattr("raylog.cli.pipeline._GRACE_MS", 10)
    command = [sys.executable, "-c", DEAF]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        record = record_of("", process.pid)
        assert record is not None
        place = replace(here(), pid=record.pid, started=record.started)
        write_state(topic, place=place)
        failure = refused("pipeline", "stop", file, "--timeout", "0.1").failure
        assert failure.message == f"{file.stem} did not answer within 0.2 s and was killed: {place}"
        assert not is_running(record)


LIGHT = """
import sys
for name in ("pyspark", "pyarrow", "numpy", "ray", "fastavro"):
    sys.modules[name] = None
from raylog.cli import pipeline, ray_cluster
from raylog.cli.app import app
from raylog.cluster_record import ClusterRecord
app(sys.argv[1:], standalone_mode=False)
"""


def test_status_and_stop_need_nothing_that_only_runs_need(file: Path, topic: RunTopic) -> None:
    """So they work on machines where Spark is not installed."""
    write_state(topic, state="stopped")

    def light(command: str, *options: str) -> subprocess.CompletedProcess[str]:
        arguments = ["pipeline", command, str(file), *options]
        python = [sys.executable, "-c", LIGHT, *arguments]
        return subprocess.run(python, capture_output=True, text=True, check=False)

    status = light("status", "--json")
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["state"] == "stopped"
    assert f"CommandFailed: {file.stem} is not running" in light("stop").stderr


def test_metrics_need_an_address_that_is_free() -> None:
    for address in ("9650", "host:port", "127.0.0.1:65536"):
        with pytest.raises(typer.BadParameter, match="expected HOST:PORT"):
            pipeline._tell_metrics(address)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(CommandFailed, match="cannot listen"),
    ):
        pipeline._tell_metrics(f"127.0.0.1:{taken.getsockname()[1]}")
