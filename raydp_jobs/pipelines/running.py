"""Running a pipeline until it is stopped: sessions, progress, the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from raylog.actors.runtime.processes import record_of
from raylog.raydp_jobs.commit import BatchFailed
from raylog.raydp_jobs.pipelines import state as states
from raylog.raydp_jobs.pipelines.failures import BatchNotWritten, PipelineFailed, first_line
from raylog.raydp_jobs.pipelines.pipeline import Pipeline
from raylog.raydp_jobs.pipelines.spec import PipelineSpec, SparkPart
from raylog.raydp_jobs.pipelines.state import RunState, read_state
from raylog.raydp_jobs.session import (
    NoCluster,
    SessionOpen,
    SparkSettings,
    local_session,
    spark_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S = 0.1
_CONFIGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.showConsoleProgress": "false",
}
_TASKS_PER_CORE = 2
"""After a shuffle; Spark's 200 are as many state stores."""


@dataclass(slots=True)
class Control:
    """What the outside wants of a run, from any thread."""

    tell: Callable[[str], None] = lambda _: None
    """Takes progress."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """End after the batch that is being written."""
        self._stop.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it shall end."""
        return self._stop.is_set()

    def pause(self) -> None:
        """Wait a moment, or until it shall end."""
        if self.is_stopping:
            time.sleep(_LOOK_S)
        else:
            self._stop.wait(_LOOK_S)


@contextmanager
def session_of(name: str, part: SparkPart, data: Path | None) -> Iterator[SparkSession]:
    """A pipeline's session: on the cluster that runs on `data`; None: in this process's JVM.

    Raises JavaMissing, JarsMissing, PipelineFailed.
    """
    if data is None:
        configs = configs_of(part, os.cpu_count() or 1)
        session = local_session(name, jars=part.jars, configs=configs)
    else:
        settings = SparkSettings(
            app_name=name,
            executors=part.executors,
            executor_cores=part.executor_cores,
            executor_memory=part.executor_memory,
            placement=part.placement,
            jars=part.jars,
            configs=configs_of(part, part.executors * part.executor_cores),
        )
        session = spark_session(data, settings)
    try:
        with session as spark:
            yield spark
    except (NoCluster, SessionOpen) as failure:
        raise PipelineFailed(str(failure)) from failure
    except (ConnectionError, Py4JNetworkError) as failure:
        raise PipelineFailed("Spark's JVM has ended; the next run goes on") from failure


def configs_of(part: SparkPart, cores: int) -> dict[str, str]:
    """Spark's settings of a pipeline; its own win."""
    return {
        **_CONFIGS,
        "spark.sql.shuffle.partitions": str(_TASKS_PER_CORE * cores),
        **part.configs,
    }


class Run:
    """One run of a pipeline in this process, noted in the checkpoint."""

    def __init__(self, spec: PipelineSpec, control: Control) -> None:
        """Raises PipelineFailed if another process runs it."""
        found = read_state(spec.checkpoint)
        if found is not None and found.is_running:
            raise PipelineFailed(f"{spec.name} is running already, as process {found.pid}")
        this = record_of(spec.name, os.getpid())
        assert this is not None, "this process runs"
        self.spec, self.control = spec, control
        self.state = RunState(
            spec.name, this.pid, this.started, states.STARTING, round(time.time() * 1000)
        )
        self._seen = ""
        """When the newest trigger began that was looked at."""
        self._note(self.state)

    def on(self, spark: SparkSession, bootstrap: str) -> None:
        """Run until it is stopped or, if it is so triggered, has read all.

        Raises BadSpec, and what it fails of.
        """
        if self.control.is_stopping:
            return
        with Pipeline(self.spec, spark, bootstrap) as pipeline:
            query = pipeline.start()
            self._note(replace(self.state, state=states.RUNNING))
            self.control.tell(f"{self.spec.name} runs")
            try:
                self._watch(pipeline, query)
            finally:
                query.stop()
            self._look(query)
            _raise_failure(pipeline, query)

    def end(self, failure: BaseException | None) -> None:
        """Note how it ended."""
        error = None if failure is None else first_line(failure)
        is_wished = failure is None or isinstance(failure, KeyboardInterrupt)
        state = states.STOPPED if is_wished else states.FAILED
        self._note(replace(self.state, state=state, error=error))

    def _watch(self, pipeline: Pipeline, query: StreamingQuery) -> None:
        """Tell of batches until the query ends. It is stopped between batches."""
        while query.isActive:
            self._look(query)
            if self.control.is_stopping:
                if not pipeline.is_stopping:
                    pipeline.is_stopping = True
                    self.control.tell("stopping after the batch that is being written")
                    self._note(replace(self.state, state=states.STOPPING))
                if not query.status["isTriggerActive"]:
                    return
            self.control.pause()

    def _look(self, query: StreamingQuery) -> None:
        """Note and tell batches that are new."""
        newest = query.lastProgress
        if newest is None or newest["timestamp"] == self._seen:
            return
        self._seen = newest["timestamp"]
        for progress in query.recentProgress:
            known = self.state.batch_id
            if "addBatch" not in progress["durationMs"]:
                continue  # nothing was there to be written
            if known is None or progress["batchId"] > known:
                self._note(self.state.after(progress))
                self.control.tell(self.state.told())

    def _note(self, state: RunState) -> None:
        self.state = state
        state.write(self.spec.checkpoint)


@contextmanager
def noted(spec: PipelineSpec, control: Control) -> Iterator[Run]:
    """A run; its end is noted, however it comes."""
    run = Run(spec, control)
    try:
        yield run
    except BaseException as failure:
        run.end(failure)
        raise
    run.end(None)


def run_pipeline(
    spec: PipelineSpec, spark: SparkSession, bootstrap: str, control: Control | None = None
) -> RunState:
    """Run a pipeline on a session until it is stopped; returns what it did."""
    with noted(spec, control or Control()) as run:
        run.on(spark, bootstrap)
    return run.state


def _raise_failure(pipeline: Pipeline, query: StreamingQuery) -> None:
    """Raise what ended the query, if it was not a wish."""
    failure: Exception | None = pipeline.failure
    if failure is None and not pipeline.is_stopping:
        failure = query.exception()
    if isinstance(failure, BatchFailed | Py4JError | PySparkException):
        raise BatchNotWritten(first_line(failure)) from failure
    if failure is not None:
        raise failure
