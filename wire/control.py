"""Control records, which brokers write into partitions next to the records of applications."""

import struct
from enum import IntEnum
from typing import NamedTuple

from raylog.wire.buffers import Buffer
from raylog.wire.errors import InvalidRecord
from raylog.wire.records import NO_LEADER_EPOCH, Record, encode_batch

_VERSION = 0
_KEY = struct.Struct(">hh")  # version, type
_END_TXN_MARKER = struct.Struct(">hi")  # version, coordinator epoch


class ControlType(IntEnum):
    """The type of a control record, which is the second number of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The end of a transaction in one partition."""

    is_commit: bool
    coordinator_epoch: int


def encode_end_txn_marker(
    marker: EndTxnMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Encode the control batch that commits or aborts a producer's open transaction (KIP-98)."""
    control_type = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    key = _KEY.pack(_VERSION, control_type)
    value = _END_TXN_MARKER.pack(_VERSION, marker.coordinator_epoch)
    return encode_batch(
        [Record(0, timestamp_ms, key, value, [])],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )


def decode_control_key(key: Buffer | None) -> ControlType | None:
    """The type of a control record. None for an unknown type or version, which readers skip."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord("control record without a key of version and type")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"control record of version {version}")
    return ControlType(number) if number in iter(ControlType) else None


def decode_end_txn_marker(record: Record) -> EndTxnMarker | None:
    """Decode the marker in a control record. Returns None if it has another type."""
    control_type = decode_control_key(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_MARKER.size:
        raise InvalidRecord("end-of-transaction marker without version and epoch")
    _, coordinator_epoch = _END_TXN_MARKER.unpack_from(record.value)
    return EndTxnMarker(control_type is ControlType.COMMIT, coordinator_epoch)
