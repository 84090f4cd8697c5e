"""A topic's resolved configuration as the replica needs it."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.storage.config import LogConfig


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """What a partition replica obeys."""

    log: LogConfig
    delete: bool
    """Whether records expire by age and size (cleanup.policy)."""
    log_append_time: bool
    """Whether records are stamped with the time of the append (message.timestamp.type)."""


def partition_config(config: dict[str, str]) -> PartitionConfig:
    """Read Kafka's keys, all of which must be present."""
    return PartitionConfig(
        LogConfig(
            segment_bytes=int(config["segment.bytes"]),
            segment_ms=int(config["segment.ms"]),
            retention_bytes=int(config["retention.bytes"]),
            retention_ms=int(config["retention.ms"]),
            index_interval_bytes=int(config["index.interval.bytes"]),
            max_index_size_bytes=int(config["segment.index.bytes"]),
            flush_messages=int(config["flush.messages"]),
            flush_ms=int(config["flush.ms"]),
            file_delete_delay_ms=int(config["file.delete.delay.ms"]),
            producer_expiration_ms=int(config["producer.id.expiration.ms"]),
        ),
        delete="delete" in config["cleanup.policy"],
        log_append_time=config["message.timestamp.type"] == "LogAppendTime",
    )
