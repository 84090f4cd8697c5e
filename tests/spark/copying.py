"""Exactly-once under kills on Spark: a streaming job beside three brokers, every row judged.

`make spark-copying ROWS=1000000 KILLS=30 JOB=copy SINK=raylog` (or JOB=aggregate, SINK=kafka): a
Spark application on the Ray nodes of the brokers reads six partitions in micro-batches and writes
six. All the time a read_committed reader looks at the sink, and at random moments, half of them in
an open transaction, something drawn at random is killed with SIGKILL: an executor, a Python worker,
one half of the driver, the leader of a partition, the coordinator of the sink's transactions, the
whole application, which goes on from its checkpoint; a copy also without it. Ends when the reader
has seen every row, with the figures and the verdict: 0 if every row that is expected was there
once, none else, and no micro-batch was torn, for this reader and for one that came later, and the
sink's offsets are the source's ends. For Spark's own sink (SINK=kafka) duplicates are counted.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from rich.console import Console

from raylog.cli.cluster_record import ClusterRecord, run_directory
from tests.cluster.copying_ends import SinkReader
from tests.cluster.faults_kinds import Scene
from tests.cluster.faults_site import Site, site
from tests.spark.copying_app import AppSettings
from tests.spark.copying_application import Application
from tests.spark.copying_jobs import JOBS, PARTITIONS, Job
from tests.spark.copying_judge import Judge
from tests.spark.copying_killer import SINK_ID, TRANSACTIONAL_ID, Killer, Plan
from tests.support.load import QUICK
from tests.support.ray_clusters import DEADLINE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
SOURCE, SINK = "source", "sink"
LOOK_S = 0.1
STUCK_S = 900.0
"""Without any row for the reader, the job is taken to be stuck."""
SAY_S = 20.0
_READ_S = 600.0
_SHORT_LIVES = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that are killed before they have use of what they compile with care."""


class Work:
    """The job on a cluster: topics, source, application and reader."""

    def __init__(self, here: Site, plan: Plan) -> None:
        self.job: Job = JOBS[plan.job](plan.rows)
        self._bootstrap = here.cluster.bootstrap
        self._own_sink = plan.own_sink
        self.sent = _fill(here, self.job.source_rows)
        folder = here.folder / "spark"
        folder.mkdir()
        _record(here)
        settings = AppSettings(
            data=str(here.folder),
            bootstrap=self._bootstrap,
            job=plan.job,
            own_sink=plan.own_sink,
            source=SOURCE,
            sink=SINK,
            sink_id=SINK_ID,
            query=0,
            checkpoint="",
            batch_rows=plan.batch_rows,
        )
        self.application = Application(settings, folder)
        self.reader = SinkReader(self._bootstrap, SINK, PARTITIONS, Judge(self.job))

    def run(self, each: Callable[[], None]) -> None:
        """Run the job to its end; `each` is called again and again meanwhile."""
        with self.reader, self.application:
            progress = (0, time.monotonic())
            while not self.reader.judge.is_complete:
                self.application.mend()
                assert not self.reader.failures, self.reader.failures[:3]
                if self.reader.seen != progress[0]:
                    progress = self.reader.seen, time.monotonic()
                silent_s = time.monotonic() - progress[1]
                assert silent_s < STUCK_S, f"no row for {silent_s:.0f} s after {progress[0]:,}"
                each()
                time.sleep(LOOK_S)
            self.application.finish()
            self.later = self._read_again()
            wait_until(lambda: self.reader.seen >= self.later.rows, "the reader to have read all")

    def _read_again(self) -> Judge:
        """All that is there in the end, judged anew."""
        judge = Judge(self.job)
        with SinkReader(self._bootstrap, SINK, PARTITIONS, judge) as later:
            wait_until(
                lambda: later.failures or len(later.ended) == PARTITIONS,
                "the sink to be read again",
                _READ_S,
            )
            assert not later.failures, later.failures[:3]
        return judge

    def judge(self) -> Iterator[str]:
        """What was wrong, for the reader beside the job, one that came later, and the offsets."""
        sizes = self.job.sizes(self.application.checkpoints)
        for name, judge in (("", self.reader.judge), ("read again: ", self.later)):
            judge.finish(sizes)
            yield from (f"{name}{line}" for line in judge.lines())
        if self._own_sink and self.offsets() != self.sent:
            yield f"the sink's offsets are {self.offsets()}, not {self.sent}"

    def offsets(self) -> dict[int, int]:
        """The source's offsets that the sink has committed."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": TRANSACTIONAL_ID})
        asked = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
        found = consumer.committed(asked, DEADLINE_S)
        consumer.close()
        return {one.partition: one.offset for one in found}

    def progress(self) -> str:
        """How far it is."""
        judge = self.reader.judge
        query, batch = judge.newest
        return f"{judge.distinct:,} of {self.job.total:,} rows, query {query}, batch {batch}"


def _record(here: Site) -> None:
    """Note the cluster as `raylog up` does, where a Spark session looks for it."""
    ClusterRecord(
        here.cluster.cluster_id,
        here.cluster.broker_ids,
        here.cluster.bootstrap.split(","),
        here.head.address,
        here.head.token_path,
        str(here.folder / "head" / "link.secret"),
    ).write(run_directory(here.folder))


def _fill(here: Site, rows: int) -> dict[int, int]:
    """Create the topics and write the source; returns the rows of each partition."""
    config = {"min.insync.replicas": "2"}
    topics = [NewTopic(name, PARTITIONS, 3, config=config) for name in (SOURCE, SINK)]
    admin = here.admin()
    for made in admin.create_topics(topics).values():
        made.result(DEADLINE_S)
    producer = Producer(
        QUICK
        | {
            "bootstrap.servers": here.cluster.bootstrap,
            "enable.idempotence": "true",
            "linger.ms": "20",
            "queue.buffering.max.messages": "200000",
        }
    )
    for n in range(rows):
        while len(producer) > 100_000:
            producer.poll(LOOK_S)
        text = str(n).encode()
        producer.produce(SOURCE, text, key=text, partition=n % PARTITIONS)
    assert producer.flush(_READ_S) == 0, "the source is written"
    return {index: len(range(index, rows, PARTITIONS)) for index in range(PARTITIONS)}


class Campaign:
    """One run on three Ray nodes."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._began = time.monotonic()
        self._said_s = 0.0

    def say(self, text: str) -> None:
        """Progress."""
        load = os.getloadavg()[0]
        self._said_s = time.monotonic()
        took_s = self._said_s - self._began
        self._console.print(f"[{took_s:5.0f} s, load {load:4.1f}] {text}", markup=False)

    def run(self, here: Site, random: Random) -> bool:
        """Run the job under kills; whether it was exactly once."""
        work = Work(here, self._plan)
        self.say(f"{sum(work.sent.values()):,} rows are in the source")
        killer = Killer(
            Scene(here, random, SINK), work.application, work.reader, self._plan, self.say
        )

        def each() -> None:
            killer.look()
            if time.monotonic() - self._said_s > SAY_S:
                self.say(work.progress())

        began = time.monotonic()
        work.run(each)
        took_s = time.monotonic() - began
        wrong = list(work.judge())
        for line in [*wrong[:50], *self._figures(work, killer, took_s)]:
            self._console.print(line, markup=False)
        if killer.left:
            self._console.print(f"the job was over before {killer.left} kills", markup=False)
        return not wrong and not killer.left

    def _figures(self, work: Work, killer: Killer, took_s: float) -> Iterator[str]:
        judge, application = work.reader.judge, work.application
        duplicates = judge.rows - judge.distinct
        yield (
            f"{judge.distinct:,} of {work.job.total:,} rows expected, {judge.rows:,} seen in "
            f"{took_s:.0f} s of {sum(work.sent.values()):,} in the source; "
            f"duplicates {duplicates:,}; batches seen {judge.batches:,}"
        )
        yield f"kills {killer.kills.total()}: {_counted(killer.kills)}"
        yield (
            f"in an open transaction {killer.in_transaction.total()}: "
            f"{_counted(+killer.in_transaction)}"
        )
        yield (
            f"starts of the application {application.starts:,}; "
            f"drivers that ended by themselves {application.ends.total()}"
        )
        runs = application.runs_again
        yield f"runs of a batch repeated {runs.total()}: {_counted(runs)}"
        yield (
            f"longest time without a row for the reader {work.reader.silence_s:.1f} s, "
            f"from a batch's first row to its last {judge.spread_s:.2f} s"
        )
        yield f"anomalies: {judge.counts.total()}"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"


def main(
    rows: Annotated[int, typer.Option(min=100)] = 50_000,
    kills: Annotated[int, typer.Option(min=0)] = 6,
    job: Annotated[str, typer.Option(help="copy or aggregate.")] = "copy",
    sink: Annotated[str, typer.Option(help="raylog, or kafka for Spark's own.")] = "raylog",
    batch_rows: Annotated[int, typer.Option(min=1, help="maxOffsetsPerTrigger.")] = 10_000,
    seed: Annotated[int | None, typer.Option(help="Of the victims; printed.")] = None,
    folder: Annotated[Path | None, typer.Option(help="New, short; logs stay there.")] = None,
) -> None:
    """Run a job under kills and judge what came of it."""
    console = Console(highlight=False, soft_wrap=True, width=110)
    plan = Plan(rows, kills, job, sink == "raylog", batch_rows)
    seed = Random().randrange(10_000) if seed is None else seed
    console.print(f"seed {seed}: {plan}", markup=False)
    os.environ["PYTHONPATH"] = str(ROOT)  # for executors' workers, which Ray's nodes start
    os.environ["JAVA_TOOL_OPTIONS"] = _SHORT_LIVES
    with ExitStack() as stack:
        home = folder or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="raylog-spark-"))
        )
        home.mkdir(exist_ok=True)
        here = stack.enter_context(site(home, None, {}))
        clean = Campaign(plan, console).run(here, Random(seed))
    raise typer.Exit(0 if clean or sink != "raylog" else 1)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
