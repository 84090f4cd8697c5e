"""Records of the metadata log: typed, versioned, in msgpack on disk.

A record is written as `[type, version, field, ...]`. Fields are only added at the end and have a
default, so an older record can be read as a newer one, and fields of a newer record that this build
does not know are ignored. The version tells which fields its writer knew. Broker, leader and
partition epochs only grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from raylog.actors.common_messages import TopicId
from raylog.actors.endpoints import Endpoints
from raylog.actors.message import distinct, taken
from raylog.wire.errors import KafkaError

NO_LEADER = -1
Voters = tuple[tuple[int, str], ...]
"""The voters of the metadata log, as (broker id, directory id)."""


class MetadataCorrupt(Exception):
    """Bytes in the metadata log that are not a record this build knows."""


@distinct
class LeaderChanged(NamedTuple):
    """A controller took over. The first record of its epoch."""

    controller_epoch: int
    controller: str = ""
    """Name of the actor; empty in records of builds that knew only one name."""
    nonce: int = 0
    """Drawn for this epoch: a history that continues from an older copy has the same epoch, but
    another nonce. 0 in records of older builds."""
    terms: tuple[tuple[int, int, int], ...] = ()
    """In a snapshot: (epoch, nonce, first offset) of the controllers so far, including this one."""


@distinct
class ClusterNamed(NamedTuple):
    """The cluster's id, written once by its first controller."""

    cluster_id: str
    metadata_id: str = ""
    """Id of this metadata; a cluster that is founded again has another. Empty in records of older
    builds; then the next controller assigns one."""


@distinct
class VotersChanged(NamedTuple):
    """The voters of the metadata log, with their directories."""

    voters: Voters
    kept_out: tuple[int, ...] = ()
    """Brokers whose voter was removed by an operator. They do not become voters automatically."""


@distinct
class BrokerRegistered(NamedTuple):
    """A broker's process has started; its broker epoch identifies it from now on."""

    broker_id: int
    broker_epoch: int
    host: str
    port: int
    """Port of the first endpoint; builds before version 4 knew only one."""
    rack: str | None
    directory_id: str
    incarnation: str
    fenced: bool
    build: str = ""
    node_id: str = ""
    endpoints: Endpoints = ()
    """The advertised endpoint of each listener; empty in records of builds before version 4,
    which had one listener, PLAINTEXT."""


@distinct
class BrokerUnregistered(NamedTuple):
    """A broker that will not come back was removed (KIP-631)."""

    broker_id: int
    broker_epoch: int


@distinct
class BrokerFenced(NamedTuple):
    """A broker may not lead: its session expired, or it has not caught up yet."""

    broker_id: int
    broker_epoch: int


@distinct
class BrokerUnfenced(NamedTuple):
    """A broker has caught up and may lead."""

    broker_id: int
    broker_epoch: int


@distinct
class BrokerShuttingDown(NamedTuple):
    """A broker has requested a clean shutdown and no longer leads."""

    broker_id: int
    broker_epoch: int


@distinct
class TopicCreated(NamedTuple):
    """A topic; its partitions follow in the same batch."""

    topic_id: TopicId
    name: str


@distinct
class PartitionCreated(NamedTuple):
    """A new partition with its first leader and epochs 0; in a snapshot, its current state."""

    topic_id: TopicId
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    incarnations: Mapping[int, str] = {}
    """Broker id to the last opening of its log that counted."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    lacking: tuple[int, ...] = ()


@distinct
class PartitionChanged(NamedTuple):
    """Changes of a partition; None leaves a field unchanged. Increments the partition epoch."""

    topic_id: TopicId
    partition: int
    leader: int | None = None
    """A leader, even the same one, increments the leader epoch."""
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    incarnations: Mapping[int, str] | None = None
    """Changed entries."""
    adding_replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    lacking: tuple[int, ...] | None = None


@distinct
class TopicDeleted(NamedTuple):
    """A topic was deleted, with its partitions and settings."""

    topic_id: TopicId


@distinct
class ConfigChanged(NamedTuple):
    """A setting of a topic, a broker ("" for all) or a group; None removes it."""

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
    """Incremented by every change, so that clients ignore older levels than they have seen."""


@distinct
class ProducerIdsAllocated(NamedTuple):
    """All producer ids below `next_producer_id` are allocated."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@distinct
class BrokerWanted(NamedTuple):
    """Where a broker should run, and with what. The supervisor starts it there."""

    broker_id: int
    labels: Mapping[str, str]
    """Labels of its Ray node."""
    directory: str
    """Its data directory on that node."""
    settings: Mapping[str, str]
    """Its start-up settings, including listeners and rack."""
    cpus: float
    memory_bytes: int
    """Resources reserved for it on its node."""
    directory_id: str = ""
    """Id of its data directory, the only one it may use. Empty until a new one has registered."""
    replaced: tuple[str, ...] = ()
    """Ids of directories that were given up and are never accepted again."""


@distinct
class BrokerUnwanted(NamedTuple):
    """A broker should no longer run."""

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
"""Version of the records; incremented when a field is added."""

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
"""Types by their number on disk. A number is never reused."""
_NUMBERS = {kind: number for number, kind in _KINDS.items()}
_VOTERS_CHANGED = bytes([_NUMBERS[VotersChanged]])
_VERSION_AT = 2
"""The version's position in an encoded record: after the array's length and the type."""
_ARRAY_MASK, _SHORT_ARRAY = 0xF0, 0x90
"""The first byte of a msgpack array of less than 16 items, which every record is."""


def encode_record(record: Record) -> bytes:
    """Encode one record."""
    packed: bytes = msgpack.packb([_NUMBERS[type(record)], VERSION, *record])
    return packed


def voters_in(records: Iterable[bytes]) -> Voters | None:
    """Return the last voter set in encoded records; None if there is none."""
    found = None
    for record in records:
        if record[1:2] == _VOTERS_CHANGED and record[0] & _ARRAY_MASK == _SHORT_ARRAY:
            changed = decode_record(record)
            assert isinstance(changed, VotersChanged), "as its number says"
            found = changed.voters
    return found


def newest_version(records: Iterable[bytes]) -> int:
    """Return the highest version of encoded records; 0 if there are none."""
    versions = [
        one[_VERSION_AT]
        for one in records
        if len(one) > _VERSION_AT and one[0] & _ARRAY_MASK == _SHORT_ARRAY
    ]
    return max(versions, default=0)


def decode_record(data: bytes) -> Record:
    """Decode one record; raises MetadataCorrupt if the bytes are not a record."""
    try:
        return _record_of(msgpack.unpackb(data, use_list=False, strict_map_key=False))
    except (ValueError, TypeError) as broken:
        raise MetadataCorrupt(f"no metadata record: {data[:32]!r}") from broken


def join_records(encoded: Sequence[bytes]) -> bytes:
    """Join encoded records into one value."""
    header: bytes = msgpack.Packer().pack_array_header(len(encoded))
    return b"".join((header, *encoded))


def decode_records(joined: bytes) -> list[Record]:
    """Decode the result of `join_records`; raises MetadataCorrupt for anything else."""
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
