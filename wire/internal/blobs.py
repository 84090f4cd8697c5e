"""Blobs that say in a leading int16 what they are.

A key of an internal topic starts with the number of its kind, a value with its version, and so
do the blobs of the consumer protocol.
"""

from typing import NamedTuple, TypeVar

from raylog.wire.codec import decode, decode_counted, encode
from raylog.wire.errors import DecodeError
from raylog.wire.internal.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from raylog.wire.internal.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from raylog.wire.internal.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from raylog.wire.internal.transactions import (
    CoordinatorEpochKey,
    CoordinatorEpochValue,
    TransactionLogKey,
    TransactionLogValue,
)
from raylog.wire.schema import Buffer, layout_of

T = TypeVar("T")
_PREFIX_BYTES = 2


class RecordKind(NamedTuple):
    """A kind of record in an internal topic. Keys have one version only, 0."""

    number: int
    key: type
    value: type


OFFSETS_TOPIC = {
    kind.number: kind
    for kind in (
        RecordKind(0, LegacyOffsetCommitKey, LegacyOffsetCommitValue),
        RecordKind(1, OffsetCommitKey, OffsetCommitValue),
        RecordKind(2, GroupMetadataKey, GroupMetadataValue),
        RecordKind(3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        RecordKind(4, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        RecordKind(5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        RecordKind(
            6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
        ),
        RecordKind(
            7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue
        ),
        RecordKind(
            8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue
        ),
        RecordKind(10, ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        RecordKind(11, ShareGroupMetadataKey, ShareGroupMetadataValue),
        RecordKind(
            12, ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue
        ),
        RecordKind(13, ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        RecordKind(
            14, ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue
        ),
        RecordKind(15, ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
        RecordKind(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    )
}
"""Kinds of records in `__consumer_offsets`, by number."""

TRANSACTIONS_TOPIC = {
    kind.number: kind
    for kind in (
        RecordKind(0, TransactionLogKey, TransactionLogValue),
        RecordKind(21_057, CoordinatorEpochKey, CoordinatorEpochValue),
    )
}
"""Kinds of records in `__transaction_state`, by number; ours is far from what Kafka may add."""

_NUMBERS = {
    kind.key: kind.number for kind in (*OFFSETS_TOPIC.values(), *TRANSACTIONS_TOPIC.values())
}


BLOB_ELEMENTS_MAX = 50_000
"""Five times the partitions of a large cluster; they are read in 30 ms. What a request may carry
otherwise, 8 MB of empty names, took two seconds."""


def encode_key(key: object) -> bytes:
    """A record's key behind the number of its kind."""
    return _NUMBERS[type(key)].to_bytes(_PREFIX_BYTES, "big") + encode(key, 0)


def encode_value(value: object, version: int) -> bytes:
    """A record's value, or a consumer protocol blob, behind its version."""
    return version.to_bytes(_PREFIX_BYTES, "big") + encode(value, version)


def decode_record(
    kinds: dict[int, RecordKind], key: Buffer, value: Buffer | None
) -> tuple[object, object | None] | None:
    """Key and value of a record; no value is a tombstone.

    None if the kind is unknown: a newer version wrote it, and it is to be passed over.
    """
    kind = kinds.get(_prefix(key))
    if kind is None:
        return None
    found: object = decode(kind.key, 0, key, _PREFIX_BYTES)
    if value is None:
        return found, None
    version = _prefix(value)
    if version not in _versions(kind.value):
        raise DecodeError(f"{kind.value.__name__} of unknown version {version}")
    return found, decode(kind.value, version, value, _PREFIX_BYTES)


def decode_blob(cls: type[T], buf: Buffer) -> T:
    """A consumer protocol blob.

    A version above ours is read as our newest and what follows is ignored: members of one group
    may run different clients, and newer versions only add fields at the end. Clients make blobs,
    and whoever reads them may be an event loop: with more than BLOB_ELEMENTS_MAX topics and
    partitions they cannot be read.
    """
    version = _prefix(buf)
    if version < 0:
        raise DecodeError(f"{cls.__name__} of version {version}")
    newest = _versions(cls)[-1]
    blob, _, _ = decode_counted(cls, min(version, newest), buf, _PREFIX_BYTES, BLOB_ELEMENTS_MAX)
    return blob


def _prefix(buf: Buffer) -> int:
    if len(buf) < _PREFIX_BYTES:
        raise DecodeError(f"{len(buf)} bytes where a version should be")
    return int.from_bytes(buf[:_PREFIX_BYTES], "big", signed=True)


def _versions(cls: type) -> range:
    versions = layout_of(cls).versions
    assert versions is not None
    return versions
