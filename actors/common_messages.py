"""Messages that actors exchange through calls and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from raylog.actors.message import message
from raylog.storage.partition_file import TopicNote

TopicId = NewType("TopicId", bytes)
"""16 bytes. A topic that is recreated under the same name gets another id."""

PartitionKey = tuple[TopicId, int]
"""(topic id, partition index): identifies a partition on links and in tables."""


message(TopicNote)


@message
@dataclass(frozen=True, slots=True)
class OpenPartition:
    """Broker to Replica: open the log of a partition's replica, as a new incarnation."""

    topic_id: TopicId
    topic: str
    partition: int
    directory: str
    """The partition's directory, created if missing."""
    config: dict[str, str]
    """The topic's resolved configuration, with every Kafka key."""
    settings: dict[str, str] = field(default_factory=dict)
    """The topic's own settings, for the file `partition.json`."""
    was_open: bool = False
    """Whether this broker has had a log for it open: a newly created one lacks its records."""
    lacks: bool = False
    """Whether the replica lacks records that it had, according to the metadata."""
    noted: TopicNote = field(default_factory=TopicNote)
    """For the same file."""


@message
@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Broker to Replica: the configuration of a topic's partitions."""

    topic_id: TopicId
    config: dict[str, str]
    """Resolved, with every key."""
    settings: dict[str, str] = field(default_factory=dict)
    """The topic's own settings."""
    noted: TopicNote = field(default_factory=TopicNote)


@message
@dataclass(frozen=True, slots=True)
class OpenedPartition:
    """Replica to Broker: the result of OpenPartition."""

    topic_id: TopicId
    partition: int
    log_start_offset: int = 0
    log_end_offset: int = 0
    error: str | None = None
    """The error message, or None if the log is open."""
    whole: bool = True
    """False if it lacks records that it held before it was damaged or lost."""


@message
@dataclass(frozen=True, slots=True)
class PartitionLeadership:
    """Broker to Replica: the leader of a partition according to committed metadata."""

    topic_id: TopicId
    partition: int
    leader: int
    """Broker id, or -1 for none."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    """Assigned replicas, the preferred leader first; during a reassignment, old and new ones."""
    isr: tuple[int, ...]
    incarnations: Mapping[int, str]
    """The last accepted incarnation of the log by broker id (KIP-903)."""


@message
@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Replica to Broker: the state of one partition, for status and DescribeLogDirs."""

    topic_id: TopicId
    topic: str
    partition: int
    leader_epoch: int
    is_leader: bool
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segments: int
    offline: bool = False
    """Whether its disk failed."""
    whole: bool = True
    """False while it lacks records that it held before it was damaged or lost."""
    trouble: str = ""
    """Why the last write failed, or the disk; empty if the write succeeded."""


@message
@dataclass(frozen=True, slots=True)
class Route:
    """Broker to Gateway: which Replica actor has opened a partition of this broker."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    replica_name: str
    replica_address: str
    directory: str
    """Where its segments are, for the gateway's read-only maps."""
    leads: bool = True
    """Whether it is the leader; otherwise consumers may read committed records there (KIP-392)."""


@message
@dataclass(frozen=True, slots=True)
class RouteUpdate:
    """Broker to Gateway: new or changed routes, and partitions no longer served here."""

    added: list[Route] = field(default_factory=list)
    removed: list[PartitionKey] = field(default_factory=list)


@message
@dataclass(frozen=True, slots=True)
class LogDirStatus:
    """Broker to Gateway (`describe_log_dirs`): the contents of one data directory."""

    path: str
    total_bytes: int
    """Size of its volume."""
    usable_bytes: int
    partitions: list[PartitionStatus] = field(default_factory=list)
    offline: bool = False
    """Whether its disk failed."""
