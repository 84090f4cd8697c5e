"""The exactly-once sink: each micro-batch is one transaction across all tasks.

    stream.writeStream.foreachBatch(raylog_sink(...)).option("checkpointLocation", ...).start()
    write_exactly_once(df, ...)

The driver's decisions are `commit.BatchMachine`; here are Spark and the sockets. One Spark job a
batch: map tasks cut rows into blocks (`rows`), a shuffle brings all blocks of an output partition
to one task, and that task is the only writer of its partition. Transactions open with the first
Produce, so after everything upstream of that shuffle is done.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from raylog.client.accumulator import ProducerIdentity
from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.errors import ClientError
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import BlockingIo
from raylog.raydp_jobs.checkpoints import Offsets, batch_source
from raylog.raydp_jobs.commit import (
    Batch,
    BatchFailed,
    BatchMachine,
    Event,
    Finished,
    Identified,
    OffsetsRead,
    ReadOffsets,
    Refused,
    TakeIdentity,
    TaskReport,
    Write,
    WriteLost,
    Written,
)
from raylog.raydp_jobs.coordinator import Transactions
from raylog.raydp_jobs.marks import Mark, read_mark
from raylog.raydp_jobs.permits import PermitOffice, Permits
from raylog.raydp_jobs.protocol import choose_protocol
from raylog.raydp_jobs.rows import BLOCK_SCHEMA, Topics, record_columns, splitting
from raylog.raydp_jobs.tasks import WriteRun
from raylog.raydp_jobs.writer import WriterSettings
from raylog.wire.errors import KafkaError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_EARLIEST = -2
"""In the Kafka source's offsets."""
_TOPIC_WAIT_MS = 15_000
_ROWS_PER_BLOCK = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BAD_ROW = re.compile(r"BadRow: (.*)")
_REFUSED = re.compile(r"PermitRefused: (.*)")
_TASK = re.compile(r"Lost (task \S+ in stage \S+)")
"""In the texts of failed jobs, which quote their tasks' Python."""
_REASON_CHARS_MAX = 400


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How a sink writes."""

    transaction_timeout_ms: int = 300_000
    """Above the longest write of a batch; at most the broker's `transaction.max.timeout.ms`."""
    runs_max: int = 5
    """How often a batch is written anew before the query fails."""
    row_bytes_max: int = 1_000_000
    """Of one record before compression; the topic's `max.message.bytes` must allow it."""
    rows_per_block: int = 2_000
    """Rows that a map task holds at a time."""
    writer: WriterSettings = field(default_factory=WriterSettings)
    client: ClientSettings | None = None
    """Instead of the defaults; its bootstrap counts."""


class ExactlyOnceSink:
    """Writes batches to topics, one transaction each. For one query at a time."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        topics: str | Sequence[str],
        sink_id: str,
        *,
        checkpoint: str | None = None,
        settings: SinkSettings | None = None,
    ) -> None:
        """`sink_id` names the transactional id and the group, which nothing else may use.

        `checkpoint` is the query's checkpointLocation; None: `write` is called, not the sink.
        """
        self.settings = settings or SinkSettings()
        self.sink_id = sink_id
        self._checkpoint = checkpoint
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._client = self.settings.client or ClientSettings(parse_bootstrap(bootstrap))
        self._io = BlockingIo()
        self._core = Core(self._io, self._client)
        self._known: Transactions | None = None
        self._marked = TopicPartition(self._topics[0], 0)
        self._identity: ProducerIdentity | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a micro-batch: what `foreachBatch` calls."""
        if self._checkpoint is None:
            raise ValueError("a streaming sink needs checkpoint=, the query's checkpointLocation")
        source = batch_source(_reader(df.sparkSession, self._checkpoint), batch_id)
        self.write(df, Mark(source.query_id, batch_id), source.starts, source.ends)

    def write(
        self,
        df: DataFrame,
        mark: Mark,
        starts: Offsets | None = None,
        ends: Offsets | None = None,
    ) -> bool:
        """Write a batch unless it is written; returns whether it was new. Raises BatchFailed."""
        selected = record_columns(df)
        topics = self._find_topics()
        batch = Batch(mark, topics.targets(), starts or {}, ends or {})
        offsets = batch.offsets()
        machine = BatchMachine(
            batch,
            self._transactions.protocol,
            self._identity,
            timeout_ms=self.settings.transaction_timeout_ms,
            runs_max=self.settings.runs_max,
        )
        self._identity = None
        try:
            step = machine.start(self._now_ms())
            while not isinstance(step.effect, Finished):
                run_blocking(self._io.pause(step.pause_ms))
                if isinstance(step.effect, Write):
                    event = self._run(selected, topics, step.effect.identity)
                else:
                    event = run_blocking(self._transactions.carry_out(step.effect, offsets))
                log.info("%s, batch %d: %s", self.sink_id, mark.batch_id, _told(event))
                step = machine.handle(event, self._now_ms())
        except BaseException:
            if machine.runs:
                self._release()
            raise
        self._identity = step.effect.identity
        return step.effect.is_new

    def starting_offsets(self, otherwise: str = "earliest") -> str:
        """Where a new query goes on: the Kafka source's `startingOffsets`.

        Fences and ends first what an earlier query left open. `otherwise` if none committed yet.
        """
        transactions = self._transactions
        taken = run_blocking(
            transactions.settle(TakeIdentity(self.settings.transaction_timeout_ms))
        )
        found = run_blocking(transactions.settle(ReadOffsets()))
        assert isinstance(taken, Identified), "the answer fits the request"
        assert isinstance(found, OffsetsRead), "the answer fits the request"
        self._identity = taken.identity
        committed = {
            key: offset.offset
            for key, offset in found.offsets.items()
            if key != self._marked and read_mark(offset.metadata) is not None
        }
        if not committed:
            return otherwise
        starts: dict[str, dict[str, int]] = {}
        for key in self._partitions_of({key.topic for key in committed}):
            starts.setdefault(key.topic, {})[str(key.partition)] = committed.get(key, _EARLIEST)
        return json.dumps(starts)

    def close(self) -> None:
        """End all connections."""
        self._core.close()
        self._io.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _transactions(self) -> Transactions:
        """Requests of this sink's transactional id; asks once what the cluster has agreed on."""
        if self._known is None:
            protocol = run_blocking(choose_protocol(self._core))
            name = f"raylog-sink-{self.sink_id}"
            self._known = Transactions(self._core, protocol, name, name, self._marked)
        return self._known

    def _find_topics(self) -> Topics:
        """The sink's topics as they are now; raises UnknownTopicOrPartition."""
        counts = dict.fromkeys(self._topics, 0)
        for key in self._partitions_of(self._topics):
            counts[key.topic] += 1
        return Topics(counts)

    def _partitions_of(self, topics: Collection[str]) -> list[TopicPartition]:
        """All partitions of topics, asked anew."""

        async def attempt() -> list[TopicPartition]:
            await self._core.refresh(topics)
            return [
                TopicPartition(topic, partition)
                for topic in topics
                for partition in sorted(self._core.cluster.topic(topic).partitions)
            ]

        return run_blocking(self._core.repeat(attempt, timeout_ms=_TOPIC_WAIT_MS))

    def _run(self, selected: DataFrame, topics: Topics, identity: ProducerIdentity) -> Event:
        """Let the tasks write once; raises BatchFailed for rows that no run could write."""
        context = selected.sparkSession.sparkContext
        with PermitOffice(Permits(_stage_attempts(context)), *_driver_address(context)) as desk:
            run = WriteRun(
                self._client,
                self._transactions.protocol,
                self._transactions.transactional_id,
                identity,
                topics,
                self.settings.writer,
                self.settings.row_bytes_max,
                desk,
            )
            try:
                with _rows_per_block(selected.sparkSession, self.settings.rows_per_block):
                    return Written(_write(selected, run))
            except (Py4JError, PySparkException) as failure:
                return _lost(failure)

    def _release(self) -> None:
        """End what a failed batch left open: readers would wait for it until it times out."""
        try:
            run_blocking(
                self._transactions.settle(TakeIdentity(self.settings.transaction_timeout_ms))
            )
        except (KafkaError, ClientError) as failure:
            log.warning("%s: the open transaction waits for its timeout: %s", self.sink_id, failure)

    def _now_ms(self) -> int:
        return int(self._io.now_ms())


def raylog_sink(
    bootstrap: str | Iterable[str],
    topics: str | Sequence[str],
    sink_id: str,
    checkpoint: str,
    settings: SinkSettings | None = None,
) -> ExactlyOnceSink:
    """A sink for `foreachBatch`; `checkpoint` is the query's checkpointLocation.

    `sink_id` names the transactional id and the group, both of which must be this query's alone.
    """
    return ExactlyOnceSink(bootstrap, topics, sink_id, checkpoint=checkpoint, settings=settings)


def write_exactly_once(
    df: DataFrame,
    bootstrap: str | Iterable[str],
    topics: str | Sequence[str],
    sink_id: str,
    job_id: str,
    settings: SinkSettings | None = None,
) -> bool:
    """Write a DataFrame in one transaction unless the job `job_id` has written it.

    Returns whether it was written now. The sink remembers the last job alone.
    """
    with ExactlyOnceSink(bootstrap, topics, sink_id, settings=settings) as sink:
        return sink.write(df, Mark(job_id, 0))


def _write(selected: DataFrame, run: WriteRun) -> list[TaskReport]:
    """The Spark job: one task an output partition, whatever adaptive execution would prefer."""
    split = splitting(run.topics, run.row_bytes_max)
    blocks: RDD[tuple[int, bytes]] = selected.mapInArrow(split, BLOCK_SCHEMA).rdd.map(tuple)
    by_target = blocks.partitionBy(len(run.topics.targets()), _identity)
    reports: list[TaskReport] = by_target.mapPartitionsWithIndex(run.write).collect()
    return reports


def _told(event: Event) -> str:
    """An event as progress."""
    match event:
        case Written(reports):
            rows = sum(report.count for report in reports)
            partitions = sum(report.count > 0 for report in reports)
            return f"{rows} rows are written to {partitions} partitions"
        case WriteLost(reason):
            return f"to be written again: {reason}"
        case Refused(code, reason):
            return f"{code.name} {reason}"
        case _:
            return type(event).__name__


def _identity(target: int) -> int:
    """Output partition n is written by task n."""
    return target


def _lost(failure: Exception) -> WriteLost:
    """What a failed job says; raises BatchFailed for rows that no run could write."""
    text = str(failure)
    bad = _BAD_ROW.search(text)
    if bad is not None:
        raise BatchFailed(bad.group(1)) from failure
    refused, task = _REFUSED.search(text), _TASK.search(text)
    reason = refused.group(1) if refused is not None else text[:_REASON_CHARS_MAX]
    return WriteLost(f"{task.group(1)}: {reason}" if task is not None else reason)


def _stage_attempts(context: SparkContext) -> Callable[[int], int | None]:
    """The newest attempt of a stage, from the scheduler itself: its listeners hear of it late."""
    stages = context._jsc.sc().dagScheduler().stageIdToStage()

    def newest(stage_id: int) -> int | None:
        found = stages.get(stage_id)
        return None if found.isEmpty() else int(found.get().latestInfo().attemptNumber())

    return newest


def _driver_address(context: SparkContext) -> tuple[str, str]:
    """Where executors reach the driver, and what it listens on."""
    conf = context.getConf()
    host = conf.get("spark.driver.host", "127.0.0.1")
    return host, conf.get("spark.driver.bindAddress", host)


@contextmanager
def _rows_per_block(spark: SparkSession, rows: int) -> Iterator[None]:
    """Bound what a map task holds, for one job."""
    before = spark.conf.get(_ROWS_PER_BLOCK)
    spark.conf.set(_ROWS_PER_BLOCK, str(rows))
    try:
        yield
    finally:
        spark.conf.set(_ROWS_PER_BLOCK, before or str(rows))


def _reader(spark: SparkSession, checkpoint: str) -> Callable[[str], str | None]:
    """Reads files of a checkpoint, wherever Hadoop's file systems keep it."""
    jvm: Any = spark._jvm
    root = jvm.org.apache.hadoop.fs.Path(checkpoint)
    files = root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def read(name: str) -> str | None:
        path = jvm.org.apache.hadoop.fs.Path(root, name)
        if not files.exists(path):
            return None
        opened = files.open(path)
        try:
            text: str = jvm.org.apache.commons.io.IOUtils.toString(opened, "UTF-8")
        finally:
            opened.close()
        return text

    return read
