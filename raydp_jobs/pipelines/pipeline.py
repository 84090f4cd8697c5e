"""One pipeline on a session: its query, and what becomes of each micro-batch.

A batch and its dead letters are one transaction. The dead letters of a batch cannot pass the
query's own plan, which may aggregate; so they are read again between the offsets that Spark's
checkpoint names for that very batch, by the same parser, and written with the rows. Rows that land
as files have their dead letters in a transaction of the same batch beside: both skip what is done.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark.sql import functions

from raylog.client import BlockingClient
from raylog.client.closing import Closing
from raylog.raydp_jobs.checkpoints import batch_source
from raylog.raydp_jobs.marks import Mark
from raylog.raydp_jobs.pipelines.dead_letters import dead_letters, refuse
from raylog.raydp_jobs.pipelines.failures import PipelineFailed, told_as
from raylog.raydp_jobs.pipelines.landing import Landing, check_columns
from raylog.raydp_jobs.pipelines.output import records
from raylog.raydp_jobs.pipelines.reading import bad_rows, views
from raylog.raydp_jobs.pipelines.spec import (
    AVAILABLE_NOW,
    BadSpec,
    PipelineSpec,
    TopicSink,
    TopicTable,
    Transform,
)
from raylog.raydp_jobs.sink import ExactlyOnceSink, SinkSettings
from raylog.wire.errors import UnknownTopicOrPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class StopAsked(Exception):
    """Ends the query before a batch that has not begun."""


class Pipeline(Closing):
    """A pipeline; at most one query at a time."""

    def __init__(self, spec: PipelineSpec, spark: SparkSession, bootstrap: str) -> None:
        self.spec = spec
        self.failure: Exception | None = None
        """Why a batch was not written; Spark tells of it as text only."""
        self.is_stopping = False
        """Whether no other batch is to begin."""
        self._spark, self._bootstrap = spark, bootstrap
        self._checkpoint = spec.checkpoint.absolute()
        topics = spec.written_topics()
        self._sink = (
            ExactlyOnceSink(bootstrap, topics, spec.name, settings=_settings(spec))
            if topics
            else None
        )

    def start(self) -> StreamingQuery:
        """Start the query; raises BadSpec, PipelineFailed for what is wrong already."""
        check_topics(self._bootstrap, self.spec)
        rows = transformed(self._spark, self.spec.transform, self._views())
        if not rows.isStreaming:
            raise BadSpec("transform: it reads none of the sources")
        if isinstance(self.spec.sink, TopicSink):
            records(rows, self.spec.sink)
        else:
            check_columns(rows)
        writer = rows.writeStream.foreachBatch(self._process).queryName(self.spec.name)
        writer = writer.outputMode(self.spec.output_mode)
        writer = writer.option("checkpointLocation", f"file://{self._checkpoint}")
        if self.spec.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=self.spec.trigger)
        with told_as(BadSpec, "transform"):
            return writer.start()

    def close(self) -> None:
        """End the sink's connections."""
        if self._sink is not None:
            self._sink.close()

    def _views(self) -> dict[str, DataFrame]:
        return views(self._spark, self._bootstrap, self.spec)

    def _process(self, rows: DataFrame, batch_id: int) -> None:
        """What `foreachBatch` calls."""
        if self.is_stopping:
            raise StopAsked
        try:
            self._write(rows, batch_id)
        except Exception as failure:
            self.failure = failure
            raise

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch and its dead letters unless they are written."""
        source = batch_source(self._read_checkpoint, batch_id)
        mark = Mark(source.query_id, batch_id)
        bad = bad_rows(rows.sparkSession, self._bootstrap, self.spec, source.starts, source.ends)
        found = None if bad is None else self._letters(bad)
        if isinstance(self.spec.sink, TopicSink):
            wanted = _with_topic(records(rows, self.spec.sink), self.spec.sink.topic)
            found = wanted if found is None else wanted.unionByName(found, allowMissingColumns=True)
        else:
            Landing(self.spec.sink.path.absolute()).write(rows, mark.query_id, batch_id)
        if found is not None:
            assert self._sink is not None, "there is a topic to write to"
            self._sink.write(found, mark, source.starts, source.ends)

    def _letters(self, bad: DataFrame) -> DataFrame | None:
        """Records for the topic of dead letters; without one there must be none."""
        if self.spec.dead_letters is None:
            refuse(bad)
            return None
        return dead_letters(bad, self.spec.dead_letters, self.spec.name)

    def _read_checkpoint(self, name: str) -> str | None:
        path = self._checkpoint / name
        return path.read_text() if path.exists() else None


def transformed(
    spark: SparkSession, transform: Transform, views: Mapping[str, DataFrame]
) -> DataFrame:
    """What SQL or the function makes of views; raises BadSpec."""
    from pyspark.sql import DataFrame

    if transform.sql is not None:
        for name, view in views.items():
            view.createOrReplaceTempView(name)
        with told_as(BadSpec, "transform.sql"):
            return spark.sql(transform.sql)
    assert transform.function is not None, "the model asks for one of both"
    module_name, _, name = transform.function.partition(":")
    module = _import(module_name)
    function = getattr(module, name, None)
    if not callable(function):
        raise BadSpec(f"transform.function: {module_name} has no function {name}")
    with told_as(BadSpec, "transform.function"):
        found = function(spark, dict(views))
    if not isinstance(found, DataFrame):
        kind = type(found).__name__
        raise BadSpec(f"transform.function: expected a DataFrame from {name}, found {kind}")
    return found


def check_topics(bootstrap: str, spec: PipelineSpec) -> None:
    """Raise PipelineFailed for a topic that is not there, naming who means it."""
    fields = {
        **{topic: f"sources.{name}" for name, one in spec.sources.items() for topic in one.topics},
        **{
            table.topic: f"tables.{name}"
            for name, table in spec.tables.items()
            if isinstance(table, TopicTable)
        },
    }
    if spec.sink_topic is not None:
        fields[spec.sink_topic] = "sink.topic"
    if spec.dead_letters is not None:
        fields[spec.dead_letters] = "dead_letters"
    with BlockingClient(bootstrap) as client:
        for topic, field in fields.items():
            try:
                client.describe_topic(topic)
            except UnknownTopicOrPartition as failure:
                raise PipelineFailed(
                    f"{field}: there is no topic {topic}: create it with "
                    f"`raylog topics create {topic}`"
                ) from failure


def _import(name: str) -> ModuleType:
    """The module of a function. Executors get its functions as they are, unless it is installed.

    So it need not be there on their nodes; and they do not run it, which may take a session.
    """
    from pyspark import cloudpickle

    try:
        module = importlib.import_module(name)
    except ImportError as failure:
        raise BadSpec(f"transform.function: {failure}") from failure
    path = getattr(module, "__file__", None)
    if path is not None and not path.startswith((sys.prefix, sys.base_prefix)):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # no types
    return module


def _with_topic(rows: DataFrame, topic: str) -> DataFrame:
    """Name the topic, which a sink of several asks for."""
    return rows if "topic" in rows.columns else rows.withColumn("topic", functions.lit(topic))


def _settings(spec: PipelineSpec) -> SinkSettings:
    if not isinstance(spec.sink, TopicSink):
        return SinkSettings()
    return SinkSettings(
        transaction_timeout_ms=spec.sink.transaction_timeout_ms,
        row_bytes_max=spec.sink.row_bytes_max,
    )
