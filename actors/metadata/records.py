"""Records of the metadata log: typed, versioned, msgpack on disk.

A record is written as `[type, version, field, ...]`. Fields are only ever added at the end, with a
default: an older record reads as a newer one, and of a newer one the fields that this build does
not know are ignored. The version says which fields its writer knew. Broker, leader and partition
epochs only grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from raylog.actors.endpoints import Endpoints
from raylog.actors.plain import distinct, taken
from raylog.actors.ports import TopicId
from raylog.wire.errors import KafkaError

NO_LEADER = -1
Voters = tuple[tuple[int, str], ...]
"""Who holds the metadata log: (broker id, directory id) of each."""


class MetadataCorrupt(Exception):
    """Bytes of the metadata log that are no record this build knows."""


@distinct
class LeaderChanged(NamedTuple):
    """A controller took over: the first record of its epoch."""

    controller_epoch: int
    controller: str = ""
    """Name of the actor; empty in records of builds that knew one name only."""
    nonce: int = 0
    """Drawn for this epoch: a history that goes on from an older copy has the same epoch, and
    another nonce. 0 in records of builds that drew none."""
    terms: tuple[tuple[int, int, int], ...] = ()
    """In a snapshot: (epoch, nonce, first offset) of the controllers so far, this one's last."""


@distinct
class ClusterNamed(NamedTuple):
    """The cluster's id, written once by its first controller."""

    cluster_id: str
    metadata_id: str = ""
    """Of this metadata: another when a cluster is founded anew under its id. Empty in records of
    builds that gave none; the next controller gives one then."""


@distinct
class VotersChanged(NamedTuple):
    """The brokers that hold the metadata log, each with the directory it holds it in."""

    voters: Voters
    kept_out: tuple[int, ...] = ()
    """Brokers that somebody has taken the vote from: they do not come to vote by themselves."""


@distinct
class BrokerRegistered(NamedTuple):
    """A broker's process start, known by its broker epoch from now on."""

    broker_id: int
    broker_epoch: int
    host: str
    port: int
    """Of the first endpoint: builds before version 4 knew one."""
    rack: str | None
    directory_id: str
    incarnation: str
    fenced: bool
    build: str = ""
    node_id: str = ""
    endpoints: Endpoints = ()
    """What clients are told to connect to, for each listener; empty in records of builds before
    version 4, which had one listener, PLAINTEXT."""


@distinct
class BrokerUnregistered(NamedTuple):
    """A broker that will not come back was removed (KIP-631)."""

    broker_id: int
    broker_epoch: int


@distinct
class BrokerFenced(NamedTuple):
    """A broker may not lead: its session ended, or it is not caught up yet."""

    broker_id: int
    broker_epoch: int


@distinct
class BrokerUnfenced(NamedTuple):
    """A broker is caught up and may lead."""

    broker_id: int
    broker_epoch: int


@distinct
class BrokerShuttingDown(NamedTuple):
    """A broker asked to stop cleanly and leads nothing more."""

    broker_id: int
    broker_epoch: int


@distinct
class TopicCreated(NamedTuple):
    """A topic; its partitions follow in the same batch."""

    topic_id: TopicId
    name: str


@distinct
class PartitionCreated(NamedTuple):
    """A partition with its first leader, epochs 0; or, in a snapshot, as it stands."""

    topic_id: TopicId
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    incarnations: Mapping[int, str] = {}
    """Broker id to the opening of its log that last counted."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    lacking: tuple[int, ...] = ()


@distinct
class PartitionChanged(NamedTuple):
    """A partition's new state; None leaves a field as it is. The partition epoch rises by one."""

    topic_id: TopicId
    partition: int
    leader: int | None = None
    """A leader, the same or another, raises the leader epoch by one."""
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    incarnations: Mapping[int, str] | None = None
    """Entries that changed."""
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    lacking: tuple[int, ...] | None = None


@distinct
class TopicDeleted(NamedTuple):
    """A topic is gone with its partitions and settings."""

    topic_id: TopicId


@distinct
class ConfigChanged(NamedTuple):
    """A setting of a topic, broker ("" for all) or group; None removes it."""

    resource_type: int
    resource_name: str
    key: str
    value: str | None


@distinct
class FeatureChanged(NamedTuple):
    """A finalized feature level; 0 removes the feature (KIP-584)."""

    name: str
    level: int
    epoch: int
    """Rises with every change: clients ignore what is older than they have seen."""


@distinct
class ProducerIdsAllocated(NamedTuple):
    """Producer ids below `next_producer_id` are given away."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@distinct
class BrokerWanted(NamedTuple):
    """Where a broker shall run, and with what: the supervisor starts it there."""

    broker_id: int
    labels: Mapping[str, str]
    """Of the Ray node that it is for."""
    directory: str
    """Its data directory on that node."""
    settings: Mapping[str, str]
    """What it is started with: listeners and rack among them."""
    cpus: float
    memory_bytes: int
    """What is kept free for it on its node."""
    directory_id: str = ""
    """Of its data directory: no other is taken for it. Empty until a new one has registered."""
    replaced: tuple[str, ...] = ()
    """Ids of directories that were given up: they are never taken again."""


@distinct
class BrokerUnwanted(NamedTuple):
    """A broker shall run no more."""

    broker_id: int


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
    | BrokerWanted
    | BrokerUnwanted
)
"""Any record of the metadata log."""

VERSION = 5
"""Of the records' fields; rises when one is added."""

_KINDS: dict[int, type[Record]] = {
    1: LeaderChanged,
    2: ClusterNamed,
    3: VotersChanged,
    4: BrokerRegistered,
    5: BrokerUnregistered,
    6: BrokerFenced,
    7: BrokerUnfenced,
    8: BrokerShuttingDown,
    9: TopicCreated,
    10: PartitionCreated,
    11: PartitionChanged,
    12: TopicDeleted,
    13: ConfigChanged,
    14: FeatureChanged,
    15: ProducerIdsAllocated,
    16: BrokerWanted,
    17: BrokerUnwanted,
}
"""Types as they are numbered on disk; a number is never given to another type."""
_NUMBERS = {kind: number for number, kind in _KINDS.items()}
_VOTERS_CHANGED = bytes([_NUMBERS[VotersChanged]])
_VERSION_AT = 2
"""Where an encoded record has its version: after the array's length and the type."""
_ARRAY_MASK, _SHORT_ARRAY = 0xF0, 0x90
"""How msgpack begins an array of less than 16 items, which every record is."""


def encode_record(record: Record) -> bytes:
    """The bytes of one record."""
    packed: bytes = msgpack.packb([_NUMBERS[type(record)], VERSION, *record])
    return packed


def voters_in(records: Iterable[bytes]) -> Voters | None:
    """The voter set that encoded records name last; None if they name none."""
    found = None
    for record in records:
        if record[1:2] == _VOTERS_CHANGED and record[0] & _ARRAY_MASK == _SHORT_ARRAY:
            changed = decode_record(record)
            assert isinstance(changed, VotersChanged), "as its number says"
            found = changed.voters
    return found


def newest_version(records: Iterable[bytes]) -> int:
    """The highest version of encoded records; 0 if there are none."""
    versions = [one[_VERSION_AT] for one in records if _is_record(one)]
    return max(versions, default=0)


def _is_record(data: bytes) -> bool:
    return len(data) > _VERSION_AT and data[0] & _ARRAY_MASK == _SHORT_ARRAY


def decode_record(data: bytes) -> Record:
    """The record of its bytes; raises MetadataCorrupt for what is none."""
    try:
        return _record_of(msgpack.unpackb(data, use_list=False, strict_map_key=False))
    except (ValueError, TypeError) as broken:
        raise MetadataCorrupt(f"no metadata record: {data[:32]!r}") from broken


def join_records(encoded: Sequence[bytes]) -> bytes:
    """One value of several encoded records."""
    header: bytes = msgpack.Packer().pack_array_header(len(encoded))
    return b"".join((header, *encoded))


def decode_records(joined: bytes) -> list[Record]:
    """The records that `join_records` has joined; raises MetadataCorrupt for anything else."""
    try:
        values = msgpack.unpackb(joined, use_list=False, strict_map_key=False)
        return list(map(_record_of, values))
    except (ValueError, TypeError) as broken:
        raise MetadataCorrupt(f"no metadata records: {joined[:32]!r}") from broken


def _record_of(values: tuple[Any, ...]) -> Record:
    number, version, *fields = values
    kind = _KINDS.get(number)
    if kind is None:
        raise MetadataCorrupt(
            f"a metadata record of type {number!a:.20} and version {version!a:.20}, this build "
            f"knows types up to {max(_KINDS)} and version {VERSION}"
        )
    if len(fields) > len(kind._fields) and version <= VERSION:
        raise MetadataCorrupt(
            f"a metadata record of version {version} with {len(fields)} fields: expected at most "
            f"{len(kind._fields)} for {kind.__name__}"
        )
    try:
        return taken(kind, fields)
    except KafkaError as broken:
        raise MetadataCorrupt(f"a metadata record of version {version!a:.20}: {broken}") from broken
