"""Blobs that start with an int16 type or version.

A key of an internal topic starts with the number of its kind, a value with its version, and so do
the blobs of the consumer protocol.
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
    """A kind of records in an internal topic. Keys only have version 0."""

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
        RecordKind(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    )
}
"""The kinds of records in `__consumer_offsets`, by number. Kafka uses 10 to 15 for share groups."""

TRANSACTIONS_TOPIC = {
    kind.number: kind
    for kind in (
        RecordKind(0, TransactionLogKey, TransactionLogValue),
        RecordKind(21_057, CoordinatorEpochKey, CoordinatorEpochValue),
    )
}
"""The kinds of records in `__transaction_state`, by number. Our own is far from Kafka's."""

_NUMBERS = {
    kind.key: kind.number for kind in (*OFFSETS_TOPIC.values(), *TRANSACTIONS_TOPIC.values())
}


BLOB_ELEMENTS_MAX = 50_000
"""Five times the partitions of a large cluster, decoded in 30 ms. Otherwise a request could carry 8
MB of empty names, which took two seconds."""


def encode_key(key: object) -> bytes:
    """Encode a record's key after the number of its kind."""
    return _NUMBERS[type(key)].to_bytes(_PREFIX_BYTES, "big") + encode(key, 0)


def encode_value(value: object, version: int) -> bytes:
    """Encode a record's value, or a consumer protocol blob, after its version."""
    return version.to_bytes(_PREFIX_BYTES, "big") + encode(value, version)


def decode_record(
    kinds: dict[int, RecordKind], key: Buffer, value: Buffer | None
) -> tuple[object, object | None] | None:
    """Decode key and value of a record. A record without a value is a tombstone.

    Returns None if the kind is unknown. A newer build wrote it, and readers skip it.
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
    """Decode a consumer protocol blob.

    A newer version is read as the newest known one, and the rest is ignored: members of one group
    may run different clients, and newer versions only add fields at the end. Blobs come from
    clients and may be read in an event loop, so more than BLOB_ELEMENTS_MAX topics and partitions
    are refused.
    """
    version = _prefix(buf)
    if version < 0:
        raise DecodeError(f"{cls.__name__} of version {version}")
    newest = _versions(cls)[-1]
    blob, _, _ = decode_counted(cls, min(version, newest), buf, _PREFIX_BYTES, BLOB_ELEMENTS_MAX)
    return blob


def _prefix(buf: Buffer) -> int:
    if len(buf) < _PREFIX_BYTES:
        raise DecodeError(f"{len(buf)} bytes, expected a version")
    return int.from_bytes(buf[:_PREFIX_BYTES], "big", signed=True)


def _versions(cls: type) -> range:
    versions = layout_of(cls).versions
    assert versions is not None
    return versions
