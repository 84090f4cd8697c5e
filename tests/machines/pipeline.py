"""A Spark job on the machines that copies from topic to topic, exactly once, all the while."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from raylog.raydp_jobs.jars import connector_jars
from raylog.raydp_jobs.java import find_java
from tests.cluster.copying_ends import SinkReader, Working
from tests.machines.contents import HOME
from tests.machines.machine import ROOT, Machine
from tests.spark.copying_app import AppSettings
from tests.spark.copying_jobs import PARTITIONS, Copying, Label
from tests.spark.copying_judge import Judge
from tests.support.load import QUICK
from tests.support.ray_clusters import DEADLINE_S, wait_until

SOURCE, SINK, SINK_ID = "source", "sink", "copy"
ROWS_PER_S = 100
PATIENCE_MS = 1_200_000
STUCK_S = 240.0
"""A driver whose job writes nothing for so long is ended, and started again."""
END_S = 400.0
_CHECKPOINT = f"{HOME}/pipeline/checkpoint"
_PID = f"{HOME}/pipeline/pid"
_JARS = f"{HOME}/jars"
_FETCHED = "RAYLOG_MACHINES_JARS"


def fetch_jars() -> None:
    """Have Spark's connector, while there is a network; raises JarsMissing, JavaMissing."""
    find_java()
    os.environ[_FETCHED] = os.pathsep.join(map(str, connector_jars()))


def _copy_jars(machine: Machine) -> None:
    machine.run(f"mkdir -p {_JARS}")
    for jar in os.environ[_FETCHED].split(os.pathsep):
        shutil.copy(jar, machine.file(_JARS))


class Growing:
    """The copy of a source that grows; `rows` is set in the end."""

    def __init__(self) -> None:
        self.rows: int | None = None

    @property
    def _whole(self) -> Copying:
        return Copying(10**12 if self.rows is None else self.rows)

    @property
    def source_rows(self) -> int:
        """As many as are copied."""
        return self._whole.source_rows

    @property
    def total(self) -> int:
        """As many as there are."""
        return self._whole.total

    def content(self, row_id: str) -> str | None:
        """The number squared."""
        return self._whole.content(row_id)

    def ids(self) -> Iterator[str]:
        """All numbers."""
        return self._whole.ids()

    def sizes(self, checkpoints: Mapping[int, Path]) -> dict[Label, int]:
        """From where to where each batch has read."""
        return self._whole.sizes(checkpoints)


class Feed(Working):
    """An idempotent producer that writes numbers to the source at a pace, and waits for ever."""

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
        """Until `ending`; then until all is acknowledged."""
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
    """Keeps the job's driver running on a machine, as systemd would; it may end at any time."""

    def __init__(
        self, machine: Machine, settings: AppSettings, folder: Path, seen: Callable[[], int]
    ) -> None:
        """`seen` says how many rows of the sink were read; `folder` gets what drivers say."""
        super().__init__()
        self.starts = 0
        self.stuck = 0
        """How often it had to be ended."""
        self._machine = machine
        self._settings = settings
        self._folder = folder
        self._seen = seen

    def work(self) -> None:
        """Run it again and again until `ending`; then have it end by itself."""
        while not self.ending.is_set():
            self.starts += 1
            with (self._folder / f"driver-{self.starts}.log").open("wb") as said:
                self._run(said.fileno())
            self.ending.wait(1.0)

    def _run(self, output: int) -> None:
        command = (
            f"mkdir -p {HOME}/pipeline && cd {ROOT} && echo $$ > {_PID} && "
            f"exec python -m tests.spark.copying_app '{self._settings.encode()}'"
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
            running.stdin.close()  # its sign to end
            try:
                running.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._kill()
                running.kill()

    def _kill(self) -> None:
        self._machine.run(f"kill -9 $(cat {_PID}) || true")


@dataclass(frozen=True, slots=True)
class Copied:
    """What came of it."""

    rows: int
    batches: int
    silence_s: float
    """The longest time in which a reader was given nothing."""
    starts: int
    stuck: int
    wrong: list[str]

    def __str__(self) -> str:
        """In a line."""
        return (
            f"pipeline: {self.rows:,} rows copied in {self.batches:,} batches, "
            f"{len(self.wrong)} findings (lost, doubled, torn); nothing new for a reader for "
            f"{self.silence_s:.1f} s at most; {self.starts} starts of its driver, {self.stuck} of "
            "them since it was stuck"
        )


class Pipeline:
    """Source, job, and a read_committed reader of the sink who judges what it is given."""

    def __init__(self, machine: Machine, bootstrap: str, folder: Path) -> None:
        """`machine` is where the job's driver runs."""
        _create_topics(bootstrap)
        _copy_jars(machine)
        self.machine = machine
        self._bootstrap = bootstrap
        self._job = Growing()
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
            SinkReader(bootstrap, SINK, PARTITIONS, Judge(self._job))
        )
        seen = partial(getattr, self._reader, "seen")
        self._keeper = self._stack.enter_context(Keeper(machine, settings, folder, seen))
        self._feed = self._stack.enter_context(Feed(bootstrap))

    def until_written(self) -> float:
        """Wait until the job has written something new; the seconds it took."""
        began, seen = time.monotonic(), self._reader.seen
        wait_until(lambda: self._reader.seen > seen or self._failed, "rows in the sink", END_S)
        if not seen:
            self._reader.silence_s = 0.0  # it took a while to start
        return time.monotonic() - began

    @property
    def _failed(self) -> list[str]:
        return [*self._feed.failures, *self._keeper.failures, *self._reader.failures]

    def finish(self) -> Copied:
        """End the source, wait until all is copied, judge it."""
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


def _create_topics(bootstrap: str) -> None:
    config = {"min.insync.replicas": "2"}
    topics = [NewTopic(name, PARTITIONS, 3, config=config) for name in (SOURCE, SINK)]
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
    for made in admin.create_topics(topics).values():
        made.result(DEADLINE_S)
