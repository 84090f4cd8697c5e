"""A topic's resolved configuration as the replica needs it, and the cleaner's."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.config import BrokerSettings
from raylog.actors.replica.throttle import (
    NONE_THROTTLED,
    ThrottledReplicas,
    throttled_replicas,
)
from raylog.storage.config import LogConfig


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """What a partition replica obeys."""

    log: LogConfig
    compact: bool
    """Whether only the latest record of a key is kept for ever (cleanup.policy)."""
    log_append_time: bool
    """Whether records are stamped with the time of the append (message.timestamp.type)."""
    min_isr: int = 1
    """Replicas in sync without which acks=all is refused (min.insync.replicas)."""
    leader_throttled: ThrottledReplicas = NONE_THROTTLED
    """What followers fetch throttled (leader.replication.throttled.replicas)."""
    follower_throttled: ThrottledReplicas = NONE_THROTTLED
    """What fetches throttled (follower.replication.throttled.replicas)."""
    transactions_verified: bool = True
    """Whether transactions must hold the partition before their producer, of an older version,
    writes to it (KIP-890, transaction.partition.verification.enable)."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """What a broker's cleaner obeys."""

    enabled: bool = True
    backoff_ms: int = 15_000
    memory_bytes: int = 128 * 1024 * 1024
    """Bound of what it knows of keys at a time."""
    bytes_per_second: float = float("inf")
    """Bound of what it reads and writes."""


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """What leaders and followers of each replica process obey; times in ms."""

    lag_ms_max: int = 30_000
    """After which a follower that has not caught up leaves the in-sync replicas."""
    session_ms: int = 6_000
    """Without a word from any follower or the controller for so long, a leader serves no client."""
    wait_ms_max: int = 500
    """For how long a leader may keep a follower's request when there is nothing new."""
    min_bytes: int = 1
    partition_bytes_max: int = 1024 * 1024
    """Of one partition in one answer, unless its first batch is larger."""
    response_bytes_max: int = 10 * 1024 * 1024
    backoff_ms: int = 1_000
    """Between attempts after a failure, at most."""
    quota_window_ms: int = 1_000
    """What the rate of throttled replicas allows in this time may move at once (KIP-73)."""
    quota_windows: int = 11
    """For as many windows at most is waited after more has moved than that."""


def replication_settings(broker: BrokerSettings) -> ReplicationSettings:
    """What a broker's settings say about replication."""
    return ReplicationSettings(
        lag_ms_max=broker.number("replica.lag.time.max.ms"),
        session_ms=broker.number("broker.session.timeout.ms"),
        wait_ms_max=broker.number("replica.fetch.wait.max.ms"),
        min_bytes=broker.number("replica.fetch.min.bytes"),
        partition_bytes_max=broker.number("replica.fetch.max.bytes"),
        response_bytes_max=broker.number("replica.fetch.response.max.bytes"),
        backoff_ms=broker.number("replica.fetch.backoff.ms"),
        quota_window_ms=1_000 * broker.number("replication.quota.window.size.seconds"),
        quota_windows=broker.number("replication.quota.window.num"),
    )


def cleaner_settings(broker: BrokerSettings) -> CleanerSettings:
    """What a broker's settings say about cleaning."""
    rate = broker.raw("log.cleaner.io.max.bytes.per.second")
    assert rate is not None, "it has a default"
    return CleanerSettings(
        enabled=broker.flag("log.cleaner.enable"),
        backoff_ms=broker.number("log.cleaner.backoff.ms"),
        memory_bytes=broker.number("log.cleaner.dedupe.buffer.size"),
        bytes_per_second=float(rate),
    )


def partition_config(config: dict[str, str]) -> PartitionConfig:
    """Read Kafka's keys, all of which must be present.

    A compacted topic's segments are closed in time for max.compaction.lag.ms, as in Kafka.
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
