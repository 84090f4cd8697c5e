"""What Replica processes tell: logs and replication."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

FLUSH_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

TABLE = Table(
    "Logs and replication",
    Scope.PROCESS,
    "Reported by each Replica process of the partitions in it. A process gives the first "
    "`metrics.topics.max` topics that it opens series of their own, and tells of all others "
    'together as `topic="(others)"`.',
)
BYTES_IN = TABLE.counter(
    "raylog_topic_bytes_in_total", "Bytes of batches appended by leaders.", "topic"
)
RECORDS_IN = TABLE.counter(
    "raylog_topic_records_in_total", "Records appended by leaders, markers included.", "topic"
)
BATCHES_IN = TABLE.counter(
    "raylog_topic_batches_in_total", "Batches appended by leaders, markers included.", "topic"
)
LOG_BYTES = TABLE.gauge(
    "raylog_log_size_bytes", "Bytes of all replicas' segments here, leaders and followers.", "topic"
)
SEGMENTS = TABLE.gauge("raylog_log_segments", "Segments of all replicas here.")
PARTITIONS = TABLE.gauge(
    "raylog_partitions",
    "Replicas here by `state`: `leader`, `follower`, or `idle` (the partition has no leader).",
    "state",
)
UNDER_REPLICATED = TABLE.gauge(
    "raylog_under_replicated_partitions", "Led here, with replicas that are not in sync."
)
UNDER_MIN_ISR = TABLE.gauge(
    "raylog_under_min_isr_partitions",
    "Led here, with fewer in sync than min.insync.replicas: acks=all is refused.",
)
AT_MIN_ISR = TABLE.gauge(
    "raylog_at_min_isr_partitions", "Led here, with exactly min.insync.replicas in sync."
)
ISR_CHANGES = TABLE.counter(
    "raylog_isr_changes_total",
    "Times that replicas left (`shrink`) or joined (`expand`) the in-sync replicas of a partition "
    "led here, within one leader's time.",
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
    "Records that the furthest follower of a partition led here lacks, as far as it has told.",
)
WAITING = TABLE.gauge(
    "raylog_replica_waiting",
    "Who waits here: writes that are not replicated (`produce`), fetches without records "
    "(`fetch`), followers' fetches (`follower`).",
    "kind",
)
FLUSHES = TABLE.histogram(
    "raylog_log_flush_seconds",
    "How long flushes of logs took (fdatasync), where settings of a topic ask for them or a "
    "segment was full.",
    bounds=FLUSH_SECONDS,
)
CLEANED = TABLE.counter(
    "raylog_cleaner_runs_total",
    "Logs compacted, by `outcome`: `done`, or `failed` (it is tried again).",
    "outcome",
)
CLEANER_SECONDS = TABLE.counter("raylog_cleaner_seconds_total", "Time that compacting took.")
CLEANER_BYTES = TABLE.counter(
    "raylog_cleaner_reclaimed_bytes_total", "Bytes by which compaction has made logs smaller."
)
CLEANER_LOGS = TABLE.gauge("raylog_cleaner_candidates", "Logs that may have to be compacted soon.")
