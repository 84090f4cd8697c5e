"""Plain data that actors hand one another through calls and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from raylog.actors.plain import message
from raylog.storage.partition_file import TopicNote

TopicId = NewType("TopicId", bytes)
"""16 bytes; a topic recreated under its old name has another."""

PartitionKey = tuple[TopicId, int]
"""(topic id, partition index): how one partition is named on links and in tables."""


message(TopicNote)


@message
@dataclass(frozen=True, slots=True)
class OpenPartition:
    """Broker to Replica: open the log of one partition replica, as a new incarnation."""

    topic_id: TopicId
    topic: str
    partition: int
    directory: str
    """The partition's directory; made if missing."""
    config: dict[str, str]
    """The topic's resolved configuration, Kafka's keys, every key present."""
    settings: dict[str, str] = field(default_factory=dict)
    """The topic's own settings, for the file `partition.json`."""
    was_open: bool = False
    """Whether this broker has had a log of it open: one that is made now lacks its records."""
    lacks: bool = False
    """Whether the metadata says that the replica lacks records that it had."""
    noted: TopicNote = field(default_factory=TopicNote)
    """For the same file."""


@message
@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Broker to Replica: what the partitions of a topic obey."""

    topic_id: TopicId
    config: dict[str, str]
    """Resolved, every key present."""
    settings: dict[str, str] = field(default_factory=dict)
    """The topic's own."""
    noted: TopicNote = field(default_factory=TopicNote)


@message
@dataclass(frozen=True, slots=True)
class OpenedPartition:
    """Replica to Broker: the outcome of OpenPartition."""

    topic_id: TopicId
    partition: int
    log_start_offset: int = 0
    log_end_offset: int = 0
    error: str | None = None
    """What went wrong, for a person; None when the log is open."""
    whole: bool = True
    """False if it lacks records that it held before it was damaged, or lost."""


@message
@dataclass(frozen=True, slots=True)
class PartitionLeadership:
    """Broker to Replica: who leads a partition, as committed metadata says."""

    topic_id: TopicId
    partition: int
    leader: int
    """Broker id, or -1 for none."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    """Assigned ones, the preferred leader first; during a reassignment, old and new."""
    isr: tuple[int, ...]
    incarnations: Mapping[int, str]
    """Broker id to the opening of its log that last counted (KIP-903)."""


@message
@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Replica to Broker: one partition's figures, for status and DescribeLogDirs."""

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
    """False while it lacks records that it held before it was damaged, or lost."""
    trouble: str = ""
    """Why its disk refused the newest write, or failed; empty: it took it."""


@message
@dataclass(frozen=True, slots=True)
class Route:
    """Broker to Gateway: which Replica actor has a partition of this broker open."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    replica_name: str
    replica_address: str
    directory: str
    """Where its segments are, for the gateway's read-only maps."""
    leads: bool = True
    """Whether it leads; else consumers may read there what is committed (KIP-392)."""


@message
@dataclass(frozen=True, slots=True)
class RouteUpdate:
    """Broker to Gateway: routes that came or changed, and partitions no longer served here."""

    added: list[Route] = field(default_factory=list)
    removed: list[PartitionKey] = field(default_factory=list)


@message
@dataclass(frozen=True, slots=True)
class LogDirStatus:
    """Broker to Gateway (`describe_log_dirs`): what one data directory holds."""

    path: str
    total_bytes: int
    """Of the volume it is on."""
    usable_bytes: int
    partitions: list[PartitionStatus] = field(default_factory=list)
    offline: bool = False
    """Whether its disk failed."""
