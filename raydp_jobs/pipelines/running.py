"""Runs a pipeline until it is stopped: sessions, progress, the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from raylog.raydp_jobs.checkpoints import NoCheckpoint
from raylog.raydp_jobs.pipelines.executors import Executors, executors_of
from raylog.raydp_jobs.pipelines.failures import BatchNotWritten, PipelineFailed, first_line
from raylog.raydp_jobs.pipelines.pipeline import Pipeline
from raylog.raydp_jobs.pipelines.register import Displaced, HeldRun, RunTopic
from raylog.raydp_jobs.pipelines.runs import (
    FAILED,
    FINISHED,
    RUNNING,
    STOPPED,
    STOPPING,
    RunState,
    StopRequest,
)
from raylog.raydp_jobs.pipelines.spec import PipelineSpec, SparkPart
from raylog.raydp_jobs.pipelines.state import refuse_older_run
from raylog.raydp_jobs.session import (
    NoCluster,
    SessionOpen,
    SparkSettings,
    local_session,
    spark_session,
)
from raylog.sink.batches import BatchFailed, SourceMismatch, StateLost
from raylog.sink.state import StateUnreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S = 0.1
_CONFIGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.showConsoleProgress": "false",
}
_REPORT_EVERY_S = 1.0
"""If batches end more often, they are reported with the next beat."""
_PATIENCE_S = 120.0
"""How long a batch waits for confirmation that the run holds the pipeline, if brokers are down."""
_TASKS_PER_CORE = 2
"""Shuffle partitions per core; Spark's default of 200 would mean as many state stores."""


@dataclass(slots=True)
class Control:
    """Requests to a run, from any thread."""

    tell: Callable[[str], None] = lambda _: None
    """Takes progress messages."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _give_up: threading.Event = field(default_factory=threading.Event)

    def stop_requested(self, request: StopRequest) -> None:
        """Handle a stop request from the pipeline's topic."""
        self.stop()
        if request.is_now:
            self._give_up.set()

    def stop(self) -> None:
        """End after the batch that is being written."""
        self._stop.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the run is to end."""
        return self._stop.is_set()

    @property
    def gives_up(self) -> bool:
        """Whether the run is to end without completing the current batch."""
        return self._give_up.is_set()

    def pause(self) -> None:
        """Wait a moment, or until a stop is requested."""
        if self.is_stopping:
            time.sleep(_LOOK_S)
        else:
            self._stop.wait(_LOOK_S)


@contextmanager
def session_of(
    name: str, part: SparkPart, *, data: Path | None = None, address: str | None = None
) -> Iterator[SparkSession]:
    """Open a pipeline's session: on the cluster that runs on `data`, or on the Ray at `address`.

    With neither, it runs in a JVM of this process.

    Raises JavaMissing, JarsMissing or PipelineFailed.
    """
    if data is None and address is None:
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
        session = spark_session(data, settings, address=address)
    try:
        with session as spark:
            yield spark
    except (NoCluster, SessionOpen) as failure:
        raise PipelineFailed(str(failure)) from failure
    except (ConnectionError, Py4JNetworkError) as failure:
        raise PipelineFailed("Spark's JVM has ended; the next run goes on") from failure


def configs_of(part: SparkPart, cores: int) -> dict[str, str]:
    """Return Spark's settings for a pipeline; those of its file take precedence."""
    return {
        **_CONFIGS,
        "spark.sql.shuffle.partitions": str(_TASKS_PER_CORE * cores),
        **part.configs,
    }


class Run:
    """One run of a pipeline in this process, reported in the pipeline's topic."""

    def __init__(self, spec: PipelineSpec, control: Control, topic: RunTopic) -> None:
        """Take the pipeline; raise PipelineFailed if another process runs it."""
        refuse_older_run(spec.name, spec.checkpoint)
        self.spec, self.control = spec, control
        self.held = HeldRun(topic, control.stop_requested, control.tell)
        self._seen = ""
        """The start time of the newest trigger that was handled."""
        self._reported_at = 0.0

    @property
    def state(self) -> RunState:
        """The run's reported state."""
        return self.held.state

    def on(self, spark: SparkSession, bootstrap: str) -> None:
        """Run until stopped or, with the trigger `available-now`, until everything is read.

        Raises BadSpec, or the error that ended the query.
        """
        self._raise_lost()
        if self.control.is_stopping:
            return
        confirm = partial(self.held.confirm, _PATIENCE_S)
        with Pipeline(self.spec, spark, bootstrap, confirm) as pipeline:
            query = pipeline.start()
            self._note(replace(self.state, state=RUNNING))
            self.control.tell(f"{self.spec.name} runs")
            try:
                self._watch(pipeline, query, executors_of(spark))
            finally:
                query.stop()
            self._look(query)
            _raise_failure(pipeline, query)

    def end(self, failure: BaseException | None) -> None:
        """Report how the run ended."""
        error = None if failure is None else first_line(failure)
        if failure is None:
            state = STOPPED if self.control.is_stopping else FINISHED
        else:
            state = STOPPED if isinstance(failure, KeyboardInterrupt) else FAILED
        with suppress(Displaced):  # another run holds the pipeline
            self._note(replace(self.state, state=state, error=error))
        self.held.close()

    def _watch(self, pipeline: Pipeline, query: StreamingQuery, executors: Executors) -> None:
        """Report batches until the query ends. It is stopped between batches."""
        while query.isActive:
            self._look(query)
            self._raise_lost()
            executors.check()
            if self.control.gives_up:
                raise KeyboardInterrupt
            if self.control.is_stopping:
                if not pipeline.is_stopping:
                    pipeline.is_stopping = True
                    self.control.tell("stopping after the batch that is being written")
                    self._note(replace(self.state, state=STOPPING))
                if not query.status["isTriggerActive"]:
                    return
            self.control.pause()

    def _look(self, query: StreamingQuery) -> None:
        """Report new batches."""
        newest = query.lastProgress
        if newest is None or newest["timestamp"] == self._seen:
            return
        self._seen = newest["timestamp"]
        for progress in query.recentProgress:
            known = self.state.batch_id
            if "addBatch" not in progress["durationMs"]:
                continue  # it had no data to write
            if known is None or progress["batchId"] > known:
                now = time.monotonic()
                is_due = now - self._reported_at >= _REPORT_EVERY_S
                if is_due:
                    self._reported_at = now
                state = self.state.after(progress, round(time.time() * 1000))
                self._note(state, at_once=is_due)
                self.control.tell(self.state.describe())

    def _note(self, state: RunState, *, at_once: bool = True) -> None:
        self.held.tell(state, at_once=at_once)

    def _raise_lost(self) -> None:
        """Raise why the run cannot continue, if so."""
        if self.held.failure is not None:
            raise self.held.failure


@contextmanager
def noted(spec: PipelineSpec, control: Control, bootstrap: str) -> Iterator[Run]:
    """Start a run and report its end in any case. Raises PipelineFailed if one runs already."""
    with RunTopic(bootstrap, spec.name) as topic:
        run = Run(spec, control, topic)
        try:
            yield run
        except BaseException as failure:
            run.end(failure)
            raise
        run.end(None)


def run_pipeline(
    spec: PipelineSpec, spark: SparkSession, bootstrap: str, control: Control | None = None
) -> RunState:
    """Run a pipeline on a session until it is stopped; return its final state."""
    with noted(spec, control or Control(), bootstrap) as run:
        run.on(spark, bootstrap)
    return run.state


def _raise_failure(pipeline: Pipeline, query: StreamingQuery) -> None:
    """Raise the error that ended the query, unless it was stopped on request."""
    failure: Exception | None = pipeline.failure
    if failure is None and not pipeline.is_stopping:
        failure = query.exception()
    if isinstance(failure, NoCheckpoint | SourceMismatch | StateLost | StateUnreadable):
        raise PipelineFailed(str(failure)) from failure  # the next run would fail in the same way
    if isinstance(failure, BatchFailed | Py4JError | PySparkException):
        raise BatchNotWritten(first_line(failure)) from failure
    if failure is not None:
        raise failure
