"""One pipeline on a session: its query, and what becomes of each micro-batch.

A batch and its dead letters are one transaction. The dead letters of a batch cannot pass the
query's own plan, which may aggregate; that plan tells where they are (`observed`). So once the rows
are made, what is near them is read again, between the offsets that Spark's checkpoint names for
that very batch, and those that do not parse are written behind the rows. Rows that land as files
have their dead letters in a transaction of the same batch beside: both skip what is done.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

from raylog.client import ClientSettings, parse_bootstrap
from raylog.client.closing import Closing
from raylog.raydp_jobs.checkpoints import BatchSource, batch_source
from raylog.raydp_jobs.clusters import Clusters
from raylog.raydp_jobs.parts import BatchPart
from raylog.raydp_jobs.pipelines.dead_letters import dead_letters, refuse
from raylog.raydp_jobs.pipelines.failures import told_as
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
from raylog.raydp_jobs.rows import record_columns
from raylog.raydp_jobs.sink import (
    ExactlyOnceSink,
    SinkSettings,
    identified,
    running_query,
    source_options,
)
from raylog.raydp_jobs.writer import WriterSettings
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
        """`confirm` raises if another run has the pipeline now.

        It is called in each batch, once writers of earlier runs are fenced.
        """
        self.spec = spec
        self._confirm = confirm
        self.failure: Exception | None = None
        """Why a batch was not written; Spark tells of it as text only."""
        self.is_stopping = False
        """Whether no other batch is to begin."""
        self._spark, self._bootstrap = spark, bootstrap
        self._clusters = Clusters(ClientSettings(parse_bootstrap(bootstrap)))
        self._checkpoint = spec.checkpoint.absolute()
        self._observer: Observer | None = None
        self._is_started = threading.Event()
        """Whether there is an observer, which comes after the query that calls us."""
        topics = spec.written_topics()
        self._sink = (
            ExactlyOnceSink(bootstrap, topics, spec.name, settings=sink_settings(spec))
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
        with told_as(BadSpec, "transform"):
            query = writer.start()
        self._observer = Observer(query, is_all_read)
        self._is_started.set()
        return query

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
        is_new = self._land(rows, source, letters)
        if self._sink is not None:
            parts = [
                BatchPart([], self._confirm),
                BatchPart(of_letters, partial(letters, is_observed=is_new)),
            ]
            self._sink.write_parts(parts, source)

    def _land(
        self, rows: DataFrame, source: BatchSource, letters: Callable[[], DataFrame | None]
    ) -> bool:
        """Land a batch; returns whether it was new."""
        assert isinstance(self.spec.sink, ParquetSink), "the rows go to a folder"
        assert self._observer is not None, "the query runs"
        self._confirm()

        def check() -> None:
            self._confirm()
            if self._sink is None:
                letters()  # there must be none

        landing = Landing(self.spec.sink.path.absolute())
        return landing.write(rows, source, self._observer.made, check)

    def _source(self, spark: SparkSession, batch_id: int) -> BatchSource:
        """What the batch has read."""
        if self._sink is not None:
            return self._sink.source_of(spark, self._read_checkpoint, batch_id)
        source = batch_source(self._read_checkpoint, batch_id, running_query(spark))
        found = identified(spark, source.sources, self._clusters)
        return replace(source, sources=tuple(found))

    def _letters(
        self, spark: SparkSession, source: BatchSource, *, is_observed: bool = True
    ) -> DataFrame | None:
        """Records for the topic of dead letters; without one there must be none.

        `is_observed`: whether the rows of the batch were made in this run of it.
        """
        assert self._observer is not None, "the query runs"
        told = self._observer.bad if is_observed else lambda _: None
        ranges = ranges_of(source_options(spark, SOURCE) or [], source.sources, self.spec)
        bad = bad_rows(spark, self._bootstrap, self.spec, ranges, told)
        if bad is None:
            return None
        if self.spec.dead_letters is None:
            refuse(bad)
            return None
        return record_columns(dead_letters(bad, self.spec.name))

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


def sink_settings(spec: PipelineSpec) -> SinkSettings:
    """How a pipeline's topics are written to."""
    if not isinstance(spec.sink, TopicSink):
        return SinkSettings()
    return SinkSettings(
        transaction_timeout_ms=spec.sink.transaction_timeout_ms,
        row_bytes_max=spec.sink.row_bytes_max,
        writer=WriterSettings(
            codec=Codec[spec.sink.compression.upper()], codec_level=spec.sink.compression_level
        ),
    )
