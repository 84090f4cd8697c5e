"""The parts of a topic's configuration that a replica uses, and the cleaner's settings."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.config import setting
from raylog.actors.replica.rules.throttle import (
    NONE_THROTTLED,
    ThrottledReplicas,
    throttled_replicas,
)
from raylog.storage.config import LogConfig


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """Topic settings of one partition replica."""

    log: LogConfig
    compact: bool
    """Whether the log is compacted (cleanup.policy)."""
    log_append_time: bool
    """Whether records get the broker's append time (message.timestamp.type)."""
    min_isr: int = 1
    """Minimum ISR size for acks=all (min.insync.replicas)."""
    leader_throttled: ThrottledReplicas = NONE_THROTTLED
    """Replicas that leaders throttle (leader.replication.throttled.replicas)."""
    follower_throttled: ThrottledReplicas = NONE_THROTTLED
    """Replicas that followers throttle (follower.replication.throttled.replicas)."""
    transactions_verified: bool = True
    """Whether an older producer's transaction must already include the partition before the
    producer writes to it (KIP-890, transaction.partition.verification.enable)."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """A broker's settings for its cleaner."""

    enabled: bool = setting("log.cleaner.enable")
    backoff_ms: int = setting("log.cleaner.backoff.ms")
    memory_bytes: int = setting("log.cleaner.dedupe.buffer.size")
    """Limit for the memory that holds keys."""
    bytes_per_second: float = setting("log.cleaner.io.max.bytes.per.second")
    """Limit for reading and writing, in bytes per second."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """A broker's replication settings for its replica processes; times in ms."""

    lag_ms_max: int = setting("replica.lag.time.max.ms")
    """A follower that has not caught up for this long is removed from the ISR."""
    session_ms: int = setting("broker.session.timeout.ms")
    """A leader that hears neither followers nor the controller for this long serves no client."""
    wait_ms_max: int = setting("replica.fetch.wait.max.ms")
    """How long a leader may hold a follower's request when there is nothing new."""
    min_bytes: int = setting("replica.fetch.min.bytes")
    partition_bytes_max: int = setting("replica.fetch.max.bytes")
    """For one partition in one answer, unless its first batch is larger."""
    response_bytes_max: int = setting("replica.fetch.response.max.bytes")
    backoff_ms: int = setting("replica.fetch.backoff.ms")
    """Maximum delay between attempts after a failure."""
    quota_window_ms: int = setting("replication.quota.window.size.seconds", 1_000)
    """Window of the quota: what the rate allows in this time may be sent at once (KIP-73)."""
    quota_windows: int = setting("replication.quota.window.num")
    """A replica that exceeded the quota waits for at most this many windows."""


def partition_config(config: dict[str, str]) -> PartitionConfig:
    """Read Kafka's keys, all of which must be present.

    A compacted topic's segments are closed early enough for max.compaction.lag.ms, as in Kafka.
    """
    compact = "compact" in config["cleanup.policy"]
    segment_ms, lag_ms = int(config["segment.ms"]), int(config["max.compaction.lag.ms"])
    return PartitionConfig(
        LogConfig(
            segment_bytes=int(config["segment.bytes"]),
            segment_ms=min(segment_ms, lag_ms) if compact else segment_ms,
            retention_bytes=int(config["retention.bytes"]),
            retention_ms=int(config["retention.ms"]),
            index_interval_bytes=int(config["index.interval.bytes"]),
            max_index_size_bytes=int(config["segment.index.bytes"]),
            flush_messages=int(config["flush.messages"]),
            flush_ms=int(config["flush.ms"]),
            file_delete_delay_ms=int(config["file.delete.delay.ms"]),
            producer_expiration_ms=int(config["producer.id.expiration.ms"]),
            delete="delete" in config["cleanup.policy"],
            compact=compact,
            min_cleanable_dirty_ratio=float(config["min.cleanable.dirty.ratio"]),
            delete_retention_ms=int(config["delete.retention.ms"]),
            min_compaction_lag_ms=int(config["min.compaction.lag.ms"]),
            max_compaction_lag_ms=lag_ms,
        ),
        compact=compact,
        log_append_time=config["message.timestamp.type"] == "LogAppendTime",
        min_isr=int(config["min.insync.replicas"]),
        leader_throttled=throttled_replicas(config["leader.replication.throttled.replicas"]),
        follower_throttled=throttled_replicas(config["follower.replication.throttled.replicas"]),
        transactions_verified=config["transaction.partition.verification.enable"].lower() == "true",
    )
