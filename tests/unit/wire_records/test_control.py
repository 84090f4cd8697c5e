"""Control batches: the markers that end transactions."""

import struct

import pytest

from raylog.wire.control import (
    ControlType,
    EndTxnMarker,
    decode_control_key,
    decode_end_txn_marker,
    encode_end_txn_marker,
)
from raylog.wire.errors import InvalidRecord
from raylog.wire.records import Record, check_produced, decode_batch, read_header
from tests.support.batches import NOW_MS


@pytest.mark.parametrize("is_commit", [True, False])
def test_end_of_a_transaction(is_commit: bool) -> None:
    marker = EndTxnMarker(is_commit=is_commit, coordinator_epoch=12)

    buf = encode_end_txn_marker(
        marker,
        producer_id=5,
        producer_epoch=6,
        timestamp_ms=NOW_MS,
        base_offset=70,
        leader_epoch=3,
    )

    header = read_header(buf)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, -1)
    assert (header.base_offset, header.next_offset) == (70, 71)
    assert header.partition_leader_epoch == 3
    (record,) = decode_batch(buf)
    assert record.timestamp == NOW_MS
    assert record.key == struct.pack(">hh", 0, 1 if is_commit else 0)
    assert record.value == struct.pack(">hi", 0, 12)
    assert decode_end_txn_marker(record) == marker


def test_clients_must_not_write_markers() -> None:
    buf = encode_end_txn_marker(
        EndTxnMarker(is_commit=True, coordinator_epoch=0),
        producer_id=5,
        producer_epoch=6,
        timestamp_ms=NOW_MS,
    )
    with pytest.raises(InvalidRecord):
        check_produced(buf)


def test_control_types_of_the_future_are_skipped() -> None:
    assert decode_control_key(struct.pack(">hh", 0, 1)) is ControlType.COMMIT
    assert decode_control_key(struct.pack(">hhi", 1, 0, 9)) is ControlType.ABORT
    assert decode_control_key(struct.pack(">hh", 0, 99)) is None
    assert decode_control_key(struct.pack(">hh", 0, -1)) is None
    for control_type in (2, 99):
        record = Record(0, 0, struct.pack(">hh", 0, control_type), b"", [])
        assert decode_end_txn_marker(record) is None


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_control_records_need_a_key(key: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        decode_control_key(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00"])
def test_markers_need_an_epoch(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        decode_end_txn_marker(Record(0, 0, struct.pack(">hh", 0, 1), value, []))
