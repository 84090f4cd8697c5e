"""The exactly-once sink: each micro-batch is one transaction across all tasks.

    stream.writeStream.foreachBatch(raylog_sink(...)).option("checkpointLocation", ...).start()
    write_exactly_once(df, ...)

The driver is `raylog.sink.driver.SinkDriver`; this module runs it on Spark. A batch is one Spark
job: map tasks split rows into blocks (`raylog.sink.rows`), a shuffle brings all blocks of an output
partition to one task, and that task is the only writer of its partition. Transactions open with the
first Produce, so everything upstream of that shuffle is done by then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from raylog.client.closing import Closing
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.raydp_jobs.checkpoints import BatchSource, ReadText, batch_source
from raylog.raydp_jobs.columns import record_columns
from raylog.raydp_jobs.parts import BatchPart, run_parts
from raylog.raydp_jobs.tasks import WriteRun
from raylog.sink.batches import (
    UNKNOWN_CLUSTER,
    Batch,
    BatchFailed,
    KafkaRange,
    Offsets,
    SourceRange,
)
from raylog.sink.clusters import Clusters
from raylog.sink.commit import Event, TaskReport, WriteLost, Written
from raylog.sink.driver import SinkDriver, SinkSettings
from raylog.sink.marks import Job, Mark
from raylog.sink.permits import Permits, PermitServer
from raylog.sink.rows import Topics, splitting
from raylog.sink.state import offsets_by_topic

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ExactlyOnceSink", "SinkSettings", "raylog_sink", "write_exactly_once"]

_EARLIEST = -2
"""Stands for the earliest offset in the Kafka source's options."""
_ROWS_PER_BLOCK = "spark.sql.execution.arrow.maxRecordsPerBatch"
_QUERY_ID = "sql.streaming.queryId"
"""A property that Spark sets in the thread that runs a query."""
_STREAMING_RELATION = "org.apache.spark.sql.catalyst.streaming.StreamingRelationV2"
_INTERRUPTED = re.compile(r"while calling .+\n: java\.lang\.InterruptedException")
"""An error that Spark itself treats as the end of a query that was stopped."""
_BAD_ROW = re.compile(r"BadRow: (.*)")
_REFUSED = re.compile(r"PermitRefused: (.*)")
_TASK = re.compile(r"Lost (task \S+ in stage \S+)")
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
"""Matches the texts of failed jobs, which quote the Python traceback of their tasks."""
_REASON_CHARS_MAX = 400


class ExactlyOnceSink(Closing):
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
        """`sink_id` determines the transactional id and the group, which nothing else may use.

        `checkpoint` is the query's checkpointLocation; None if the sink is not passed to
        `foreachBatch`.
        """
        self._checkpoint = checkpoint
        self._driver = SinkDriver(bootstrap, topics, sink_id, settings)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a micro-batch; called by `foreachBatch`. Raises BatchFailed or NoCheckpoint."""
        if self._checkpoint is None:
            raise ValueError("a streaming sink needs checkpoint=, the query's checkpointLocation")
        read = _reader(df.sparkSession, self._checkpoint)
        self.write_batch(df, self.source_of(df.sparkSession, read, batch_id))

    def source_of(self, spark: SparkSession, read: ReadText, batch_id: int) -> BatchSource:
        """Return what a micro-batch has read, within `foreachBatch`; `read` reads its checkpoint.

        Raises NoCheckpoint.
        """
        source = batch_source(read, batch_id, running_query(spark))
        sources = identified(spark, source.sources, self._driver.clusters)
        return replace(source, sources=tuple(sources))

    def write_batch(self, df: DataFrame, source: BatchSource) -> bool:
        """Write a micro-batch unless it is written; return whether it was new.

        Raises BatchFailed.
        """
        return self._write(df, source.mark, source.sources)

    def write_parts(self, parts: Sequence[BatchPart], source: BatchSource) -> bool:
        """Like `write_batch`, for a micro-batch with several parts."""
        return self._write_parts(parts, source.mark, source.sources)

    def write_job(self, df: DataFrame, job_id: str) -> bool:
        """Write unless one of the last jobs was `job_id`; return whether it was written now.

        Raises BatchFailed.
        """
        return self._write(df, Job(job_id), ())

    def write(
        self,
        df: DataFrame,
        mark: Mark,
        starts: Offsets | None = None,
        ends: Offsets | None = None,
    ) -> bool:
        """Write a batch of one Kafka source unless it is written; return whether it was new.

        Within a `foreachBatch` that reads another cluster, the offsets belong to that cluster.
        Raises BatchFailed.
        """
        sources = (KafkaRange(starts or {}, ends or {}),) if starts or ends else ()
        clusters, own = self._driver.clusters, self._driver.cluster_id
        return self._write(df, mark, identified(df.sparkSession, sources, clusters, own))

    def starting_offsets(
        self,
        otherwise: str = "earliest",
        *,
        topics: Collection[str] | None = None,
        source_bootstrap: str | None = None,
    ) -> str:
        """Return the Kafka source's `startingOffsets` with which a new query continues.

        Fences an earlier query and ends its transaction first. Returns `otherwise` if nothing was
        committed yet. `topics` restricts the result to one of several sources, `source_bootstrap`
        to a source on another cluster.
        """
        committed = self._driver.committed(source_bootstrap)
        known = {key.topic for key in committed}
        wanted = known if topics is None else known.intersection(topics)
        if not wanted:
            return otherwise
        keys = self._driver.partitions_of(wanted, source_bootstrap)
        return json.dumps(offsets_by_topic({key: committed.get(key, _EARLIEST) for key in keys}))

    def reset(
        self, positions: Offsets | None = None, *, source_bootstrap: str | None = None
    ) -> None:
        """Forget what was written, so that any query may begin, at `positions` if given.

        `source_bootstrap` is the cluster of these positions; None: the sink's own.
        """
        self._driver.reset(positions, source_bootstrap=source_bootstrap)

    def close(self) -> None:
        """Close all connections."""
        self._driver.close()

    def _write(self, df: DataFrame, mark: Mark | Job, sources: Sequence[SourceRange]) -> bool:
        selected = record_columns(df)
        part = BatchPart(self._driver.topics().partitions, lambda: selected)
        return self._write_parts([part], mark, sources)

    def _write_parts(
        self, parts: Sequence[BatchPart], mark: Mark | Job, sources: Sequence[SourceRange]
    ) -> bool:
        topics = self._driver.topics()
        batch = Batch(mark, topics.targets(), sources)

        def run(identity: ProducerIdentity) -> Event:
            return run_parts(parts, topics, partial(self._run, identity))

        return self._driver.write(batch, run)

    def _run(self, identity: ProducerIdentity, selected: DataFrame, topics: Topics) -> Event:
        """Have the tasks write once; raise BatchFailed for rows that no run could write."""
        context = selected.sparkSession.sparkContext
        with PermitServer(
            Permits(_stage_attempts(context)), *_driver_address(context)
        ) as permit_client:
            run = self._driver.run_of(WriteRun, identity, topics, permit_client)
            try:
                with _rows_per_block(selected.sparkSession, self._driver.settings.rows_per_block):
                    return Written(_write(selected, run))
            except (Py4JError, PySparkException) as failure:
                if _INTERRUPTED.search(str(failure)):
                    raise
                return _lost(failure)


def raylog_sink(
    bootstrap: str | Iterable[str],
    topics: str | Sequence[str],
    sink_id: str,
    checkpoint: str,
    settings: SinkSettings | None = None,
) -> ExactlyOnceSink:
    """Create a sink for `foreachBatch`; `checkpoint` is the query's checkpointLocation.

    `sink_id` determines the transactional id and the group, which nothing else may use.
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

    Returns whether it was written now. The sink remembers the last 1,000 jobs.
    """
    with ExactlyOnceSink(bootstrap, topics, sink_id, settings=settings) as sink:
        return sink.write_job(df, job_id)


def _write(selected: DataFrame, run: WriteRun) -> list[TaskReport]:
    """Run the Spark job, with one task per output partition even under adaptive execution."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(selected.schema)
    split = splitting(schema, run.topics, run.row_bytes_max, run.settings)
    blocks = _arrow_batches(selected).mapPartitionsWithIndex(split)
    # Task n is for output partition n.
    by_target = blocks.partitionBy(len(run.topics.targets()), lambda target: target)
    reports: list[TaskReport] = by_target.mapPartitionsWithIndex(run.write).collect()
    return reports


def _arrow_batches(df: DataFrame) -> RDD[bytes]:
    """Return the rows as serialized Arrow record batches.

    Like `mapInArrow`, but the same Python worker can process the result; that of `mapInArrow` goes
    through the JVM to a second worker.
    """
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    batches = df._jdf.toArrowBatchRdd().toJavaRDD()
    return RDD(batches, df.sparkSession.sparkContext, NoOpSerializer())


def _lost(failure: Exception) -> WriteLost:
    """Describe a failed job; raise BatchFailed for rows that no run could write.

    These are rows that the sink refuses, or that made Python raise in every attempt of a task.
    """
    text = str(failure)
    bad = _BAD_ROW.search(text)
    if bad is not None:
        raise BatchFailed(bad.group(1)) from failure
    refused, raised, task = _REFUSED.search(text), _RAISED.search(text), _TASK.search(text)
    found = refused or raised
    reason = (found.group(1) if found is not None else text)[:_REASON_CHARS_MAX]
    if task is not None:
        reason = f"{task.group(1)}: {reason}"
    if raised is not None and refused is None:
        raise BatchFailed(reason) from failure
    return WriteLost(reason)


def _stage_attempts(context: SparkContext) -> Callable[[int], int | None]:
    """Return a lookup of a stage's newest attempt in the scheduler; listeners learn of it late."""
    stages = context._jsc.sc().dagScheduler().stageIdToStage()

    def newest(stage_id: int) -> int | None:
        try:
            stage = stages.apply(stage_id)
        except Py4JJavaError:  # NoSuchElementException
            return None
        return int(stage.latestInfo().attemptNumber())

    return newest


def _driver_address(context: SparkContext) -> tuple[str, str]:
    """Return the address at which executors reach the driver, and the one that it listens on."""
    conf = context.getConf()
    host = conf.get("spark.driver.host", "127.0.0.1")
    return host, conf.get("spark.driver.bindAddress", host)


@contextmanager
def _rows_per_block(spark: SparkSession, rows: int) -> Iterator[None]:
    """Limit the rows that a map task holds, during one job."""
    before = spark.conf.get(_ROWS_PER_BLOCK)
    spark.conf.set(_ROWS_PER_BLOCK, str(rows))
    try:
        yield
    finally:
        spark.conf.set(_ROWS_PER_BLOCK, before or str(rows))


def running_query(spark: SparkSession) -> str | None:
    """Return the id of the query whose `foreachBatch` this thread runs; None outside of one."""
    found: str | None = spark.sparkContext.getLocalProperty(_QUERY_ID)
    return found


def identified(
    spark: SparkSession,
    sources: Sequence[SourceRange],
    clusters: Clusters,
    otherwise: str = UNKNOWN_CLUSTER,
) -> list[SourceRange]:
    """Return sources with the ids of the clusters that the running query reads them from.

    `otherwise`: the cluster of sources for which the query does not say.
    """
    bootstraps = kafka_bootstraps(spark) or []
    if len(set(bootstraps)) == 1:
        bootstraps = bootstraps[:1] * len(sources)
    elif len(bootstraps) != len(sources):
        bootstraps = [None] * len(sources)
    found: list[SourceRange] = []
    for source, bootstrap in zip(sources, bootstraps, strict=True):
        if not isinstance(source, KafkaRange):
            found.append(source)
        elif bootstrap is None:
            found.append(replace(source, cluster_id=otherwise))
        else:
            found.append(clusters.identified(source, bootstrap))
    return found


def kafka_bootstraps(spark: SparkSession) -> list[str | None] | None:
    """Return the bootstrap of each source of the running query, as `source_options` does."""
    return source_options(spark, "kafka.bootstrap.servers")


def source_options(spark: SparkSession, option: str) -> list[str | None] | None:
    """Return an option of each source of the running query, None for sources other than Kafka.

    The order is that of the checkpoint's lines. Returns None outside of a query.
    """
    query_id = running_query(spark)
    if query_id is None:
        return None
    jvm: Any = spark._jvm
    queries = spark._jsparkSession.sharedState().activeStreamingQueries()
    query = queries.get(jvm.java.util.UUID.fromString(query_id))
    if query is None:
        return None
    leaves = query.analyzedPlan().collectLeaves()
    found: list[str | None] = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if not leaf.isStreaming():
            continue  # a joined table
        is_relation = leaf.getClass().getName() == _STREAMING_RELATION
        found.append(leaf.extraOptions().get(option) if is_relation else None)
    return found


def _reader(spark: SparkSession, checkpoint: str) -> Callable[[str], str | None]:
    """Return a reader of a checkpoint's files on any of Hadoop's file systems."""
    jvm: Any = spark._jvm
    new_path = jvm.org.apache.hadoop.fs.Path  # each dot is a call to the JVM
    to_text = jvm.org.apache.commons.io.IOUtils.toString
    root = new_path(checkpoint)
    files = root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def read(name: str) -> str | None:
        path = new_path(root, name)
        if not files.exists(path):
            return None
        opened = files.open(path)
        try:
            text: str = to_text(opened, "UTF-8")
        finally:
            opened.close()
        return text

    return read
