"""One pipeline on a session: its query, and the handling of each micro-batch.

A batch and its dead letters are one transaction. A batch's dead letters cannot go through the
query's own plan, which may aggregate; that plan reports where they are (`observed`). So once the
rows are computed, the blocks with dead letters are read again, between the batch's offsets in
Spark's checkpoint, and those records that do not parse are written after the rows. If rows land as
files, their dead letters are in a separate transaction of the same batch; both skip what is done.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING

from raylog.client import ClientSettings, parse_bootstrap
from raylog.client.closing import Closing
from raylog.raydp_jobs.checkpoints import BatchSource, batch_source
from raylog.raydp_jobs.columns import record_columns
from raylog.raydp_jobs.parts import BatchPart
from raylog.raydp_jobs.pipelines.dead_letters import dead_letters, refuse
from raylog.raydp_jobs.pipelines.failures import failing_as
from raylog.raydp_jobs.pipelines.landing import Landing, check_columns
from raylog.raydp_jobs.pipelines.observed import Observer, counted, reads_all
from raylog.raydp_jobs.pipelines.output import records
from raylog.raydp_jobs.pipelines.reading import SOURCE, bad_rows, ranges_of, views
from raylog.raydp_jobs.pipelines.spec import (
    AVAILABLE_NOW,
    BadSpec,
    ParquetSink,
    PipelineSpec,
    TopicSink,
    Transform,
)
from raylog.raydp_jobs.pipelines.topics import check_topics
from raylog.raydp_jobs.sink import (
    ExactlyOnceSink,
    SinkSettings,
    identified,
    running_query,
    source_options,
)
from raylog.sink.clusters import Clusters
from raylog.sink.writer import WriterSettings
from raylog.wire.compression import Codec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class StopAsked(Exception):
    """Ends the query before a batch that has not begun."""


class Pipeline(Closing):
    """A pipeline; at most one query at a time."""

    def __init__(
        self,
        spec: PipelineSpec,
        spark: SparkSession,
        bootstrap: str,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        """`confirm` raises if another run now holds the pipeline.

        It is called in each batch, after writers of earlier runs are fenced.
        """
        self.spec = spec
        self._confirm = confirm
        self.failure: Exception | None = None
        """Why a batch was not written; Spark reports that only as text."""
        self.is_stopping = False
        """Whether no further batch may begin."""
        self._spark, self._bootstrap = spark, bootstrap
        self._clusters = Clusters(ClientSettings(parse_bootstrap(bootstrap)))
        self._checkpoint = spec.checkpoint.absolute()
        self._observer: Observer | None = None
        self._is_started = threading.Event()
        """Set once there is an observer, which is created after the query that calls `_process`."""
        topics = spec.written_topics()
        self._sink = (
            ExactlyOnceSink(bootstrap, topics, spec.name, settings=sink_settings(spec))
            if topics
            else None
        )

    def start(self) -> StreamingQuery:
        """Start the query; raise BadSpec or PipelineFailed for errors found at the start."""
        check_topics(self._bootstrap, self.spec)
        sources = views(self._spark, self._bootstrap, self.spec)
        rows = transformed(self._spark, self.spec.transform, sources)
        if not rows.isStreaming:
            raise BadSpec("transform: it reads none of the sources")
        if isinstance(self.spec.sink, TopicSink):
            records(rows, self.spec.sink)
        is_all_read = reads_all(rows)
        if isinstance(self.spec.sink, ParquetSink):
            check_columns(rows)
            rows = counted(rows)
        writer = rows.writeStream.foreachBatch(self._process).queryName(self.spec.name)
        writer = writer.outputMode(self.spec.output_mode)
        writer = writer.option("checkpointLocation", f"file://{self._checkpoint}")
        if self.spec.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=self.spec.trigger)
        with failing_as(BadSpec, "transform"):
            query = writer.start()
        self._observer = Observer(query, is_all_read)
        self._is_started.set()
        return query

    def close(self) -> None:
        """Close the sink's connections."""
        if self._sink is not None:
            self._sink.close()

    def _process(self, rows: DataFrame, batch_id: int) -> None:
        """Process a batch; called by `foreachBatch`."""
        if self.is_stopping:
            raise StopAsked
        self._is_started.wait()
        try:
            self._write(rows, batch_id)
        except Exception as failure:
            self.failure = failure
            raise

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch and its dead letters unless they are written."""
        source = self._source(rows.sparkSession, batch_id)
        letters = partial(self._letters, rows.sparkSession, source)
        of_letters = [] if self.spec.dead_letters is None else [self.spec.dead_letters]
        if isinstance(self.spec.sink, TopicSink):
            assert self._sink is not None, "there is a topic to write to"
            wanted = record_columns(records(rows, self.spec.sink))
            parts = [
                BatchPart([], self._confirm),
                BatchPart([self.spec.sink.topic], lambda: wanted),
                BatchPart(of_letters, letters),
            ]
            self._sink.write_parts(parts, source)
            return
        checked = cache(letters)  # once the rows have landed, reading again could miss some
        self._land(rows, source, checked)
        if self._sink is not None:
            parts = [BatchPart([], self._confirm), BatchPart(of_letters, checked)]
            self._sink.write_parts(parts, source)

    def _land(
        self, rows: DataFrame, source: BatchSource, letters: Callable[[], DataFrame | None]
    ) -> None:
        """Land a batch unless it has landed."""
        assert isinstance(self.spec.sink, ParquetSink), "the rows go to a folder"
        assert self._observer is not None, "the query runs"
        self._confirm()

        def check() -> None:
            self._confirm()
            letters()  # raises if there are any without a topic for them

        landing = Landing(self.spec.sink.path.absolute())
        landing.write(rows, source, self._observer.made, check)

    def _source(self, spark: SparkSession, batch_id: int) -> BatchSource:
        """Return what the batch has read."""
        if self._sink is not None:
            return self._sink.source_of(spark, self._read_checkpoint, batch_id)
        source = batch_source(self._read_checkpoint, batch_id, running_query(spark))
        found = identified(spark, source.sources, self._clusters)
        return replace(source, sources=tuple(found))

    def _letters(self, spark: SparkSession, source: BatchSource) -> DataFrame | None:
        """Return records for the dead-letter topic; without that topic, raise if there are any."""
        assert self._observer is not None, "the query runs"
        ranges = ranges_of(source_options(spark, SOURCE) or [], source.sources, self.spec)
        bad = bad_rows(spark, self._bootstrap, self.spec, ranges, self._observer)
        if bad is None:
            return None
        if self.spec.dead_letters is None:
            refuse(bad)
            return None
        bytes_max = sink_settings(self.spec).row_bytes_max
        return record_columns(dead_letters(bad, self.spec.name, bytes_max))

    def _read_checkpoint(self, name: str) -> str | None:
        path = self._checkpoint / name
        return path.read_text() if path.exists() else None


def transformed(
    spark: SparkSession, transform: Transform, views: Mapping[str, DataFrame]
) -> DataFrame:
    """Apply SQL or the function to the views; raise BadSpec."""
    from pyspark.sql import DataFrame

    if transform.sql is not None:
        for name, view in views.items():
            view.createOrReplaceTempView(name)
        with failing_as(BadSpec, "transform.sql"):
            return spark.sql(transform.sql)
    assert transform.function is not None, "the model asks for one of both"
    module_name, _, name = transform.function.partition(":")
    module = _import(module_name)
    function = getattr(module, name, None)
    if not callable(function):
        raise BadSpec(f"transform.function: {module_name} has no function {name}")
    with failing_as(BadSpec, "transform.function"):
        found = function(spark, dict(views))
    if not isinstance(found, DataFrame):
        kind = type(found).__name__
        raise BadSpec(f"transform.function: expected a DataFrame from {name}, found {kind}")
    return found


def _import(name: str) -> ModuleType:
    """Import a function's module. Unless it is installed, executors get its functions by value.

    So their nodes do not need the module, and do not execute it, which might start a session.
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


def sink_settings(spec: PipelineSpec) -> SinkSettings:
    """Return the settings for writing to a pipeline's topics."""
    if not isinstance(spec.sink, TopicSink):
        return SinkSettings()
    return SinkSettings(
        transaction_timeout_ms=spec.sink.transaction_timeout_ms,
        row_bytes_max=spec.sink.row_bytes_max,
        writer=WriterSettings(
            codec=Codec[spec.sink.compression.upper()], codec_level=spec.sink.compression_level
        ),
    )
