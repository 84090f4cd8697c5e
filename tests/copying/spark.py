"""Exactly-once under kills on Spark: a streaming job on three brokers, every row judged.

`make spark-copying ROWS=1000000 KILLS=30 JOB=copy SINK=raylog` (or JOB=aggregate, SINK=kafka): a
Spark application on the brokers' Ray nodes reads six partitions in micro-batches and writes six.
All the time a read_committed reader reads the sink. At random moments, half of them during an open
transaction, something drawn at random is killed with SIGKILL: an executor, a Python worker, one
half of the driver, the leader of a partition, the coordinator of the sink's transactions, or the
whole application, which continues from its checkpoint, or, in a copy job, also without it. The run
ends when the reader has seen every row. It prints figures and a verdict, and exits with 0 if every
expected row and no other came once, no micro-batch was torn, for this reader and for one that read
the sink later, and the sink's offsets are the source's ends. For Spark's own sink (SINK=kafka)
duplicates are only counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from confluent_kafka import Producer

from raylog.cluster_record import ClusterRecord, run_directory
from tests.cluster.faults_kinds import Scene
from tests.cluster.three_node_cluster import ThreeNodeCluster
from tests.copying.campaign import (
    SINK,
    SOURCE,
    Telling,
    counted,
    create_topics,
    offsets_of,
    read_again,
    three_nodes,
    watch,
)
from tests.copying.ends import SinkReader
from tests.copying.judge import BatchJudge
from tests.copying.spark_app import AppSettings
from tests.copying.spark_application import Application
from tests.copying.spark_jobs import JOBS, PARTITIONS, Job
from tests.copying.spark_killer import SINK_ID, TRANSACTIONAL_ID, Killer, Plan
from tests.support.librdkafka import QUICK
from tests.support.ray_clusters import LOOK_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
STUCK_S = 900.0
"""The job is stuck if the reader gets no row for this long."""
SAY_S = 20.0
_READ_S = 600.0
_SHORT_LIVES = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Fast start-up for JVMs that are killed before optimized code would pay off."""


class Work:
    """The job on a cluster: topics, source, application and reader."""

    def __init__(self, here: ThreeNodeCluster, plan: Plan) -> None:
        self.job: Job = JOBS[plan.job](plan.rows)
        self._bootstrap = here.ray_cluster.bootstrap
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
        self.reader = SinkReader(self._bootstrap, SINK, PARTITIONS, BatchJudge(self.job))

    def run(self, each: Callable[[], None]) -> None:
        """Run the job to its end, calling `each` repeatedly."""

        def look() -> None:
            self.application.mend()
            each()

        with self.reader, self.application:
            watch(self.reader, lambda: self.reader.judge.is_complete, look, STUCK_S)
            self.application.finish()
            self.later = read_again(
                self._bootstrap,
                PARTITIONS,
                BatchJudge(self.job),
                lambda later: len(later.ended) == PARTITIONS,
                _READ_S,
            )
            wait_until(lambda: self.reader.seen >= self.later.rows, "the reader to have read all")

    def judge(self) -> Iterator[str]:
        """Yield what was wrong for the running reader, for the later one, and in the offsets."""
        sizes = self.job.sizes(self.application.checkpoints)
        for name, judge in (("", self.reader.judge), ("read again: ", self.later)):
            judge.finish(sizes)
            yield from (f"{name}{line}" for line in judge.lines())
        if not self._own_sink:
            return
        offsets = offsets_of(self._bootstrap, TRANSACTIONAL_ID, PARTITIONS)
        if offsets != self.sent:
            yield f"the sink's offsets are {offsets}, not {self.sent}"

    def progress(self) -> str:
        """Return the progress as text."""
        judge = self.reader.judge
        query, batch = judge.newest
        return f"{judge.distinct:,} of {self.job.total:,} rows, query {query}, batch {batch}"


def _record(here: ThreeNodeCluster) -> None:
    """Write the record of the cluster that a Spark session looks for, as `raylog up` does."""
    ClusterRecord(
        here.ray_cluster.cluster_id,
        here.ray_cluster.broker_ids,
        here.ray_cluster.bootstrap.split(","),
        here.head.address,
        here.head.token_path,
        str(here.folder / "head" / "link.secret"),
    ).write(run_directory(here.folder))


def _fill(here: ThreeNodeCluster, rows: int) -> dict[int, int]:
    """Create the topics and write the source; return the number of rows in each partition."""
    create_topics(here.ray_cluster.bootstrap, PARTITIONS)
    producer = Producer(
        QUICK
        | {
            "bootstrap.servers": here.ray_cluster.bootstrap,
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


def figures(work: Work, killer: Killer, took_s: float) -> Iterator[str]:
    """Yield the results of the run."""
    judge, application = work.reader.judge, work.application
    duplicates = judge.rows - judge.distinct
    yield (
        f"{judge.distinct:,} of {work.job.total:,} rows expected, {judge.rows:,} seen in "
        f"{took_s:.0f} s of {sum(work.sent.values()):,} in the source; "
        f"duplicates {duplicates:,}; batches seen {judge.batches:,}"
    )
    yield f"kills {killer.kills.total()}: {counted(killer.kills)}"
    yield (
        f"in an open transaction {killer.in_transaction.total()}: {counted(+killer.in_transaction)}"
    )
    yield (
        f"starts of the application {application.starts:,}; "
        f"drivers that ended by themselves {application.ends.total()}"
    )
    runs = application.runs_again
    yield f"runs of a batch repeated {runs.total()}: {counted(runs)}"
    yield (
        f"longest time without a row for the reader {work.reader.silence_s:.1f} s, "
        f"from a batch's first row to its last {judge.spread_s:.2f} s"
    )
    yield f"anomalies: {judge.counts.total()}"


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
    plan = Plan(rows, kills, job, sink == "raylog", batch_rows)
    seed = Random().randrange(10_000) if seed is None else seed
    telling = Telling()
    telling.tell([f"seed {seed}: {plan}"])
    os.environ["PYTHONPATH"] = str(ROOT)  # for the executors' workers, which Ray's nodes start
    os.environ["JAVA_TOOL_OPTIONS"] = _SHORT_LIVES
    with three_nodes(folder, {}) as here:
        work = Work(here, plan)
        telling.say(f"{sum(work.sent.values()):,} rows are in the source")
        scene = Scene(here, Random(seed), SINK)
        killer = Killer(scene, work.application, work.reader, plan, telling.say)

        def each() -> None:
            killer.look()
            if time.monotonic() - telling.said_s > SAY_S:
                telling.say(work.progress())

        began = time.monotonic()
        work.run(each)
        took_s = time.monotonic() - began
        wrong = list(work.judge())
        telling.tell([*wrong[:50], *figures(work, killer, took_s)])
        if killer.left:
            telling.tell([f"the job was over before {killer.left} kills"])
    clean = not wrong and not killer.left
    raise typer.Exit(0 if clean or sink != "raylog" else 1)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
