"""A topic's resolved configuration as the replica needs it, and the cleaner's."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.config import BrokerSettings
from raylog.storage.config import LogConfig


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """What a partition replica obeys."""

    log: LogConfig
    delete: bool
    """Whether records expire by age and size (cleanup.policy)."""
    compact: bool
    """Whether only the latest record of a key is kept for ever (cleanup.policy)."""
    log_append_time: bool
    """Whether records are stamped with the time of the append (message.timestamp.type)."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """What the cleaner of each replica process obeys."""

    enabled: bool = True
    backoff_ms: int = 15_000
    memory_bytes: int = 64 * 1024 * 1024
    """Bound of what it knows of keys at a time."""
    bytes_per_second: float = float("inf")
    """Bound of what it reads and writes."""


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
            min_cleanable_dirty_ratio=float(config["min.cleanable.dirty.ratio"]),
            delete_retention_ms=int(config["delete.retention.ms"]),
            min_compaction_lag_ms=int(config["min.compaction.lag.ms"]),
            max_compaction_lag_ms=lag_ms,
        ),
        delete="delete" in config["cleanup.policy"],
        compact=compact,
        log_append_time=config["message.timestamp.type"] == "LogAppendTime",
    )
