"""The exactly-once sink: each micro-batch is one transaction across all tasks.

    stream.writeStream.foreachBatch(raylog_sink(...)).option("checkpointLocation", ...).start()
    write_exactly_once(df, ...)

The driver is `driver.SinkDriver`; here is Spark. One Spark job a batch: map tasks cut rows into
blocks (`rows`), a shuffle brings all blocks of an output partition to one task, and that task is
the only writer of its partition. Transactions open with the first Produce, so after everything
upstream of that shuffle is done.
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
from raylog.raydp_jobs.batches import (
    UNKNOWN_CLUSTER,
    Batch,
    BatchFailed,
    KafkaRange,
    Offsets,
    SourceRange,
)
from raylog.raydp_jobs.checkpoints import BatchSource, ReadText, batch_source
from raylog.raydp_jobs.clusters import Clusters
from raylog.raydp_jobs.commit import Event, TaskReport, WriteLost, Written
from raylog.raydp_jobs.driver import SinkDriver, SinkSettings
from raylog.raydp_jobs.marks import Job, Mark
from raylog.raydp_jobs.parts import BatchPart, run_parts
from raylog.raydp_jobs.permits import PermitOffice, Permits
from raylog.raydp_jobs.rows import Topics, record_columns, splitting
from raylog.raydp_jobs.tasks import WriteRun

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ExactlyOnceSink", "SinkSettings", "raylog_sink", "write_exactly_once"]

_EARLIEST = -2
"""In the Kafka source's offsets."""
_ROWS_PER_BLOCK = "spark.sql.execution.arrow.maxRecordsPerBatch"
_QUERY_ID = "sql.streaming.queryId"
"""A property that Spark sets for the thread that runs a query."""
_STREAMING_RELATION = "org.apache.spark.sql.catalyst.streaming.StreamingRelationV2"
_BOOTSTRAP = "kafka.bootstrap.servers"
_INTERRUPTED = re.compile(r"while calling .+\n: java\.lang\.InterruptedException")
"""What Spark itself takes for the end of a query that was stopped."""
_BAD_ROW = re.compile(r"BadRow: (.*)")
_REFUSED = re.compile(r"PermitRefused: (.*)")
_TASK = re.compile(r"Lost (task \S+ in stage \S+)")
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
"""In the texts of failed jobs, which quote their tasks' Python."""
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
        """`sink_id` names the transactional id and the group, which nothing else may use.

        `checkpoint` is the query's checkpointLocation; None: `write` is called, not the sink.
        """
        self._checkpoint = checkpoint
        self._driver = SinkDriver(bootstrap, topics, sink_id, settings)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a micro-batch: what `foreachBatch` calls. Raises BatchFailed, NoCheckpoint."""
        if self._checkpoint is None:
            raise ValueError("a streaming sink needs checkpoint=, the query's checkpointLocation")
        read = _reader(df.sparkSession, self._checkpoint)
        self.write_batch(df, self.source_of(df.sparkSession, read, batch_id))

    def source_of(self, spark: SparkSession, read: ReadText, batch_id: int) -> BatchSource:
        """What a micro-batch has read, from within `foreachBatch`; `read` reads its checkpoint.

        Raises NoCheckpoint.
        """
        source = batch_source(read, batch_id, running_query(spark))
        sources = identified(spark, source.sources, self._driver.clusters)
        return replace(source, sources=tuple(sources))

    def write_batch(self, df: DataFrame, source: BatchSource) -> bool:
        """Write a micro-batch unless it is written; returns whether it was new.

        Raises BatchFailed.
        """
        return self._write(df, source.mark, source.sources)

    def write_parts(self, parts: Sequence[BatchPart], source: BatchSource) -> bool:
        """Write a micro-batch that has several parts unless it is written; as `write_batch`."""
        return self._write_parts(parts, source.mark, source.sources)

    def write_job(self, df: DataFrame, job_id: str) -> bool:
        """Write unless one of the last jobs was `job_id`; returns whether it was written now.

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
        """Write a batch of one Kafka source unless it is written; returns whether it was new.

        Within `foreachBatch` of one that reads another cluster, offsets are of that cluster.
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
        """Where a new query goes on: the Kafka source's `startingOffsets`.

        Fences and ends first what an earlier query left open. `otherwise` if none committed yet.
        `topics`: of one source among several; `source_bootstrap`: of one on another cluster.
        """
        committed = self._driver.committed(source_bootstrap)
        known = {key.topic for key in committed}
        wanted = known if topics is None else known.intersection(topics)
        if not wanted:
            return otherwise
        starts: dict[str, dict[str, int]] = {}
        for key in self._driver.partitions_of(wanted, source_bootstrap):
            starts.setdefault(key.topic, {})[str(key.partition)] = committed.get(key, _EARLIEST)
        return json.dumps(starts)

    def reset(
        self, positions: Offsets | None = None, *, source_bootstrap: str | None = None
    ) -> None:
        """Forget what was written, so that any query may begin, at `positions` where they are told.

        `source_bootstrap` is of the cluster that these are of; None: of the sink's own.
        """
        self._driver.reset(positions, source_bootstrap=source_bootstrap)

    def close(self) -> None:
        """End all connections."""
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
        """Let the tasks write once; raises BatchFailed for rows that no run could write."""
        context = selected.sparkSession.sparkContext
        with PermitOffice(Permits(_stage_attempts(context)), *_driver_address(context)) as desk:
            run = self._driver.run_of(WriteRun, identity, topics, desk)
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

    Returns whether it was written now. The sink remembers the last 1,000 jobs.
    """
    with ExactlyOnceSink(bootstrap, topics, sink_id, settings=settings) as sink:
        return sink.write_job(df, job_id)


def _write(selected: DataFrame, run: WriteRun) -> list[TaskReport]:
    """The Spark job: one task an output partition, whatever adaptive execution would prefer."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(selected.schema)
    split = splitting(schema, run.topics, run.row_bytes_max, run.settings)
    blocks = _arrow_batches(selected).mapPartitionsWithIndex(split)
    by_target = blocks.partitionBy(len(run.topics.targets()), _identity)
    reports: list[TaskReport] = by_target.mapPartitionsWithIndex(run.write).collect()
    return reports


def _arrow_batches(df: DataFrame) -> RDD[bytes]:
    """The rows as serialized record batches of Arrow.

    Like `mapInArrow`, but the worker that takes them can go on with what comes out: that one's goes
    through the JVM to a second worker.
    """
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    batches = df._jdf.toArrowBatchRdd().toJavaRDD()
    return RDD(batches, df.sparkSession.sparkContext, NoOpSerializer())


def _identity(target: int) -> int:
    """Output partition n is written by task n."""
    return target


def _lost(failure: Exception) -> WriteLost:
    """What a failed job says; raises BatchFailed for rows that no run could write.

    These are what the sink refuses, and what makes Python raise as often as Spark tries a task.
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
    """The newest attempt of a stage, from the scheduler itself: its listeners hear of it late."""
    stages = context._jsc.sc().dagScheduler().stageIdToStage()

    def newest(stage_id: int) -> int | None:
        try:
            stage = stages.apply(stage_id)
        except Py4JJavaError:  # NoSuchElementException
            return None
        return int(stage.latestInfo().attemptNumber())

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


def running_query(spark: SparkSession) -> str | None:
    """The id of the query whose `foreachBatch` this thread runs; None outside of one."""
    found: str | None = spark.sparkContext.getLocalProperty(_QUERY_ID)
    return found


def identified(
    spark: SparkSession,
    sources: Sequence[SourceRange],
    clusters: Clusters,
    otherwise: str = UNKNOWN_CLUSTER,
) -> list[SourceRange]:
    """Sources with the clusters that the running query reads them from.

    `otherwise`: of those for which no query tells.
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
    """The bootstrap of each source of the running query, as `source_options`."""
    return source_options(spark, _BOOTSTRAP)


def source_options(spark: SparkSession, option: str) -> list[str | None] | None:
    """An option of each source of the running query, None for one that is not Kafka.

    In the order of the checkpoint's lines; None outside of a query.
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
            continue  # a table that is joined
        is_relation = leaf.getClass().getName() == _STREAMING_RELATION
        found.append(leaf.extraOptions().get(option) if is_relation else None)
    return found


def _reader(spark: SparkSession, checkpoint: str) -> Callable[[str], str | None]:
    """Reads files of a checkpoint, wherever Hadoop's file systems keep it."""
    jvm: Any = spark._jvm
    new_path = jvm.org.apache.hadoop.fs.Path  # each dot is a question to the JVM
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
