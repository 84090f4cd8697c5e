"""Metrics of a process that runs sinks of Spark or Ray Data."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

BATCH_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)

TABLE = Table(
    "Sinks",
    Scope.JOB,
    "Reported by the process that writes batches exactly once: `raylog pipeline run --metrics`, or "
    "any program that exports `raylog.sink.counts.SinkCollector`. Brokers do not report these.",
)
BATCHES = TABLE.counter(
    "raylog_sink_batches_total",
    "Batches by `outcome`: `written`, `repeated` (already written before) or `failed`.",
    "sink",
    "outcome",
)
ROWS = TABLE.counter("raylog_sink_rows_total", "Rows of the batches written.", "sink")
RUNS = TABLE.counter(
    "raylog_sink_runs_total",
    "Runs of the tasks that write a batch; more than batches if some had to be written again.",
    "sink",
)
SECONDS = TABLE.histogram(
    "raylog_sink_batch_seconds",
    "Time from the start of a batch until it was committed.",
    "sink",
    bounds=BATCH_SECONDS,
)
LAST = TABLE.gauge(
    "raylog_sink_last_batch_time_seconds",
    "Commit time of the last batch, in seconds since the Unix epoch; 0 before the first.",
    "sink",
)
