"""Metrics of Replica processes: logs and replication."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

FLUSH_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

TABLE = Table(
    "Logs and replication",
    Scope.PROCESS,
    "Reported by each Replica process for the partitions in it. A process has separate series for "
    "the first `metrics.topics.max` topics that it opens, and reports all others together as "
    '`topic="(others)"`.',
)
BYTES_IN = TABLE.counter(
    "raylog_topic_bytes_in_total", "Bytes of batches appended by leaders.", "topic"
)
RECORDS_IN = TABLE.counter(
    "raylog_topic_records_in_total", "Records appended by leaders, including markers.", "topic"
)
BATCHES_IN = TABLE.counter(
    "raylog_topic_batches_in_total", "Batches appended by leaders, including markers.", "topic"
)
LOG_BYTES = TABLE.gauge(
    "raylog_log_size_bytes",
    "Bytes of the segments of all replicas in this process, leaders and followers.",
    "topic",
)
SEGMENTS = TABLE.gauge("raylog_log_segments", "Segments of all replicas in this process.")
PARTITIONS = TABLE.gauge(
    "raylog_partitions",
    "Replicas in this process, by `state`: `leader`, `follower` or `idle` (no leader).",
    "state",
)
UNDER_REPLICATED = TABLE.gauge(
    "raylog_under_replicated_partitions", "Partitions led here with replicas that are not in sync."
)
UNDER_MIN_ISR = TABLE.gauge(
    "raylog_under_min_isr_partitions",
    "Partitions led here with fewer in-sync replicas than min.insync.replicas: acks=all fails.",
)
AT_MIN_ISR = TABLE.gauge(
    "raylog_at_min_isr_partitions", "Partitions led here with exactly min.insync.replicas in sync."
)
ISR_CHANGES = TABLE.counter(
    "raylog_isr_changes_total",
    "How often replicas left (`shrink`) or joined (`expand`) the in-sync replicas of a partition "
    "led here, while the leader stayed the same.",
    "topic",
    "change",
)
REPLICATED = TABLE.counter(
    "raylog_replication_bytes_total",
    "Bytes of batches fetched from leaders (`in`) and sent to followers (`out`).",
    "topic",
    "direction",
)
FOLLOWER_LAG = TABLE.gauge(
    "raylog_replica_lag_max_records",
    "Records that the slowest follower of any partition led here has not fetched yet.",
)
WAITING = TABLE.gauge(
    "raylog_replica_waiting",
    "Waiting requests: writes that are not replicated yet (`produce`), consumers' fetches "
    "(`fetch`) and followers' fetches (`follower`).",
    "kind",
)
FLUSHES = TABLE.histogram(
    "raylog_log_flush_seconds",
    "How long flushes of logs (fdatasync) took. A log is flushed when its topic's settings ask for "
    "it, or when a segment is full.",
    bounds=FLUSH_SECONDS,
)
CLEANED = TABLE.counter(
    "raylog_cleaner_runs_total",
    "Compactions of logs, by `outcome`: `done`, or `failed` (the broker tries again).",
    "outcome",
)
CLEANER_SECONDS = TABLE.counter("raylog_cleaner_seconds_total", "Time spent on compaction.")
CLEANER_BYTES = TABLE.counter(
    "raylog_cleaner_reclaimed_bytes_total", "Bytes that compaction removed from logs."
)
CLEANER_LOGS = TABLE.gauge("raylog_cleaner_candidates", "Logs that may be due for compaction.")
