"""Records of the metadata log: typed, versioned, msgpack on disk.

A record is written as `[type, version, field, ...]`. Fields are only ever added at the end, with a
default, so that an older record reads as a newer one; the version says which fields its writer
knew. Broker, leader and partition epochs only grow.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, get_args

import msgpack

from raylog.actors.ports import TopicId

NO_LEADER = -1


class MetadataCorrupt(Exception):
    """Bytes of the metadata log that are no record this build knows."""


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """A controller took over: the first record of its epoch."""

    type_id: ClassVar[int] = 1
    version: ClassVar[int] = 0
    controller_epoch: int


@dataclass(frozen=True, slots=True)
class ClusterNamed:
    """The cluster's id, written once by its first controller."""

    type_id: ClassVar[int] = 2
    version: ClassVar[int] = 0
    cluster_id: str


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """The brokers that hold the metadata log, each with the directory it holds it in."""

    type_id: ClassVar[int] = 3
    version: ClassVar[int] = 0
    voters: tuple[tuple[int, str], ...]
    """(broker id, directory id)"""


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker's process start, known by its broker epoch from now on."""

    type_id: ClassVar[int] = 4
    version: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int
    host: str
    port: int
    rack: str | None
    directory_id: str
    incarnation: str
    fenced: bool
    build: str = ""
    node_id: str = ""


@dataclass(frozen=True, slots=True)
class BrokerUnregistered:
    """A broker that will not come back was removed (KIP-631)."""

    type_id: ClassVar[int] = 5
    version: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """A broker may not lead: its session ended, or it is not caught up yet."""

    type_id: ClassVar[int] = 6
    version: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerUnfenced:
    """A broker is caught up and may lead."""

    type_id: ClassVar[int] = 7
    version: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class BrokerShuttingDown:
    """A broker asked to stop cleanly and leads nothing more."""

    type_id: ClassVar[int] = 8
    version: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic; its partitions follow in the same batch."""

    type_id: ClassVar[int] = 9
    version: ClassVar[int] = 0
    topic_id: TopicId
    name: str


@dataclass(frozen=True, slots=True)
class PartitionCreated:
    """A partition with its first leader, epochs 0; or, in a snapshot, as it stands."""

    type_id: ClassVar[int] = 10
    version: ClassVar[int] = 0
    topic_id: TopicId
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    incarnations: dict[int, str] = field(default_factory=dict)
    """Broker id to the opening of its log that last counted."""


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """A partition's new state; None leaves a field as it is. The partition epoch rises by one."""

    type_id: ClassVar[int] = 11
    version: ClassVar[int] = 0
    topic_id: TopicId
    partition: int
    leader: int | None = None
    """A leader, the same or another, raises the leader epoch by one."""
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    incarnations: dict[int, str] | None = None
    """Entries that changed."""


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic is gone with its partitions and settings."""

    type_id: ClassVar[int] = 12
    version: ClassVar[int] = 0
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A setting of a topic, broker ("" for all) or group; None removes it."""

    type_id: ClassVar[int] = 13
    version: ClassVar[int] = 0
    resource_type: int
    resource_name: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class FeatureChanged:
    """A finalized feature level; 0 removes the feature (KIP-584)."""

    type_id: ClassVar[int] = 14
    version: ClassVar[int] = 0
    name: str
    level: int
    epoch: int
    """Rises with every change: clients ignore what is older than they have seen."""


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """Producer ids below `next_producer_id` are given away."""

    type_id: ClassVar[int] = 15
    version: ClassVar[int] = 0
    broker_id: int
    broker_epoch: int
    next_producer_id: int


Record = (
    LeaderChanged
    | ClusterNamed
    | VotersChanged
    | BrokerRegistered
    | BrokerUnregistered
    | BrokerFenced
    | BrokerUnfenced
    | BrokerShuttingDown
    | TopicCreated
    | PartitionCreated
    | PartitionChanged
    | TopicDeleted
    | ConfigChanged
    | FeatureChanged
    | ProducerIdsAllocated
)
"""Any record of the metadata log."""

_KINDS: dict[int, type[Record]] = {kind.type_id: kind for kind in get_args(Record)}
_FIELDS = {kind: tuple(f.name for f in fields(kind)) for kind in _KINDS.values()}
_REQUIRED = {
    kind: sum(f.default is MISSING and f.default_factory is MISSING for f in fields(kind))
    for kind in _KINDS.values()
}


def encode_record(record: Record) -> bytes:
    """The bytes of one record."""
    kind = type(record)
    values: list[Any] = [getattr(record, name) for name in _FIELDS[kind]]
    packed: bytes = msgpack.packb([kind.type_id, kind.version, *values])
    return packed


def decode_record(data: bytes) -> Record:
    """The record of its bytes; raises MetadataCorrupt for what is none."""
    try:
        type_id, _version, *values = msgpack.unpackb(data, use_list=False, strict_map_key=False)
        kind = _KINDS[type_id]
    except (ValueError, KeyError, TypeError) as broken:
        raise MetadataCorrupt(f"no metadata record: {data[:32]!r}") from broken
    if not _REQUIRED[kind] <= len(values) <= len(_FIELDS[kind]):
        raise MetadataCorrupt(f"{kind.__name__} with {len(values)} fields")
    return kind(*values)
