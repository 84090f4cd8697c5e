"""A Spark job on the machines that copies from topic to topic exactly once during all steps."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from raylog.raydp_jobs.jars import connector_jars
from raylog.raydp_jobs.java import find_java
from tests.copying.campaign import SINK, SOURCE, create_topics
from tests.copying.ends import SinkReader
from tests.copying.judge import BatchJudge
from tests.copying.spark_app import AppSettings
from tests.copying.spark_jobs import PARTITIONS, Copying
from tests.machines.contents import HOME
from tests.machines.machine import ROOT, Machine
from tests.support.librdkafka import QUICK
from tests.support.ray_clusters import DEADLINE_S, wait_until
from tests.support.working import Working

SINK_ID = "copy"
ROWS_PER_S = 100
PATIENCE_MS = 1_200_000
STUCK_S = 240.0
"""A driver whose job writes nothing for this time is killed and started again."""
END_S = 400.0
_CHECKPOINT = f"{HOME}/pipeline/checkpoint"
_PID = f"{HOME}/pipeline/pid"
_JARS = f"{HOME}/jars"
_FETCHED = "RAYLOG_MACHINES_JARS"


def fetch_jars() -> None:
    """Download Spark's connector while there is a network. Raises JarsMissing and JavaMissing."""
    find_java()
    os.environ[_FETCHED] = os.pathsep.join(map(str, connector_jars()))


def _copy_jars(machine: Machine) -> None:
    machine.run(f"mkdir -p {_JARS}")
    for jar in os.environ[_FETCHED].split(os.pathsep):
        shutil.copy(jar, machine.file(_JARS))


class Feed(Working):
    """An idempotent producer that writes numbers to the source at a fixed rate, forever."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.rows = 0
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": "true",
            "linger.ms": "20",
            "message.timeout.ms": str(PATIENCE_MS),
        }
        self._producer = Producer(settings | QUICK)

    def work(self) -> None:
        """Write until `ending`, then wait until everything is acknowledged."""
        began = time.monotonic()
        while not self.ending.is_set():
            due = int((time.monotonic() - began) * ROWS_PER_S)
            for number in range(self.rows, due):
                text = str(number).encode()
                self._producer.produce(
                    SOURCE, text, partition=number % PARTITIONS, on_delivery=self._delivered
                )
            self.rows = max(self.rows, due)
            self._producer.poll(0.05)
        if self._producer.flush(DEADLINE_S):
            self.failures.append("the source was not written")

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failures.append(f"the source was not written: {error}")


class Keeper(Working):
    """Keeps the job's driver running on a machine, as systemd would.

    The driver may end any time.
    """

    def __init__(
        self, machine: Machine, settings: AppSettings, folder: Path, seen: Callable[[], int]
    ) -> None:
        """`seen` returns how many rows of the sink were read. `folder` gets the drivers' output."""
        super().__init__()
        self.starts = 0
        self.stuck = 0
        """How often a driver was killed."""
        self._machine = machine
        self._settings = settings
        self._folder = folder
        self._seen = seen

    def work(self) -> None:
        """Run the driver repeatedly until `ending`, then let it end by itself."""
        while not self.ending.is_set():
            self.starts += 1
            with (self._folder / f"driver-{self.starts}.log").open("wb") as said:
                self._run(said.fileno())
            self.ending.wait(1.0)

    def _run(self, output: int) -> None:
        command = (
            f"mkdir -p {HOME}/pipeline && cd {ROOT} && echo $$ > {_PID} && "
            f"exec python -m tests.copying.spark_app '{self._settings.encode()}'"
        )
        with subprocess.Popen(
            self._machine.command(command),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as running:
            assert running.stdin is not None
            seen, progress_s = self._seen(), time.monotonic()
            while running.poll() is None and not self.ending.wait(0.5):
                if self._seen() != seen:
                    seen, progress_s = self._seen(), time.monotonic()
                elif time.monotonic() - progress_s > STUCK_S:
                    self.stuck += 1
                    self._kill()
                    running.kill()
            running.stdin.close()  # its signal to end
            try:
                running.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._kill()
                running.kill()

    def _kill(self) -> None:
        self._machine.run(f"kill -9 $(cat {_PID}) || true")


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of the copying."""

    rows: int
    batches: int
    silence_s: float
    """The longest time in which the reader got nothing."""
    starts: int
    stuck: int
    wrong: list[str]

    def __str__(self) -> str:
        """The result in one line."""
        return (
            f"pipeline: {self.rows:,} rows copied in {self.batches:,} batches, "
            f"{len(self.wrong)} findings (lost, doubled, torn); nothing new for a reader for "
            f"{self.silence_s:.1f} s at most; {self.starts} starts of its driver, {self.stuck} of "
            "them since it was stuck"
        )


class Pipeline:
    """The source, the job, and a read_committed reader that checks the sink."""

    def __init__(self, machine: Machine, bootstrap: str, folder: Path) -> None:
        """`machine` is where the job's driver runs."""
        create_topics(bootstrap, PARTITIONS)
        _copy_jars(machine)
        self.machine = machine
        self._bootstrap = bootstrap
        self._job = Copying(10**12)
        self._stack = ExitStack()
        settings = AppSettings(
            data="",
            bootstrap=bootstrap,
            job="copy",
            own_sink=True,
            source=SOURCE,
            sink=SINK,
            sink_id=SINK_ID,
            query=0,
            checkpoint=_CHECKPOINT,
            batch_rows=2_000,
            executors=1,
            jars=_JARS,
        )
        self._reader = self._stack.enter_context(
            SinkReader(bootstrap, SINK, PARTITIONS, BatchJudge(self._job))
        )
        seen = partial(getattr, self._reader, "seen")
        self._keeper = self._stack.enter_context(Keeper(machine, settings, folder, seen))
        self._feed = self._stack.enter_context(Feed(bootstrap))

    def until_written(self) -> float:
        """Wait until the job has written something new. Returns the seconds."""
        began, seen = time.monotonic(), self._reader.seen
        wait_until(lambda: self._reader.seen > seen or self._failed, "rows in the sink", END_S)
        if not seen:
            self._reader.silence_s = 0.0  # it took a while to start
        return time.monotonic() - began

    @property
    def _failed(self) -> list[str]:
        return [*self._feed.failures, *self._keeper.failures, *self._reader.failures]

    def finish(self) -> Copied:
        """Stop the source, wait until everything is copied, and judge it."""
        self._feed.finish()
        self._job.rows = self._feed.rows
        judge = self._reader.judge
        wrong = self._failed
        deadline = time.monotonic() + END_S
        while not judge.is_complete and time.monotonic() < deadline and not self._failed:
            threading.Event().wait(0.2)
        self._keeper.finish()
        self._stack.close()
        judge.finish(self._job.sizes({0: self.machine.file(_CHECKPOINT)}))
        return Copied(
            judge.distinct,
            judge.batches,
            self._reader.silence_s,
            self._keeper.starts,
            self._keeper.stuck,
            [*wrong, *judge.lines()],
        )
