"""Batches by their headers alone: reading, iterating, patching."""

import pytest

from raylog.wire.compression import Codec
from raylog.wire.errors import (
    CorruptMessage,
    DecodeError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from raylog.wire.records import (
    BATCH_OVERHEAD,
    TimestampType,
    assign,
    check_crc,
    decode_batch,
    iter_batches,
    read_header,
    set_log_append_time,
)
from tests.support.batches import NOW_MS, raw_batch, raw_record

TWO = raw_batch(
    raw_record(),
    raw_record(1, time_delta=5),
    base_offset=40,
    leader_epoch=3,
    attributes=0x10,
    max_timestamp=NOW_MS + 5,
    producer_id=7,
    producer_epoch=1,
    base_sequence=8,
)


def test_every_field_of_a_header() -> None:
    header = read_header(b"abc" + TWO, 3)

    assert header.base_offset == 40
    assert header.batch_length == len(TWO) - 12
    assert header.partition_leader_epoch == 3
    assert header.magic == 2
    assert header.crc == int.from_bytes(TWO[17:21])
    assert header.attributes == 0x10
    assert header.last_offset_delta == 1
    assert header.base_timestamp == NOW_MS
    assert header.max_timestamp == NOW_MS + 5
    assert header.producer_id == 7
    assert header.producer_epoch == 1
    assert header.base_sequence == 8
    assert header.record_count == 2


def test_derived_fields_of_a_batch_header() -> None:
    header = read_header(TWO)

    assert header.size == len(TWO)
    assert header.last_offset == 41
    assert header.next_offset == 42
    assert header.last_sequence == 9
    assert header.is_transactional
    assert not header.is_control
    assert header.codec is Codec.NONE
    assert header.timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize(
    ("base_sequence", "last_sequence"), [(-1, -1), (0, 1), (2**31 - 2, 2**31 - 1), (2**31 - 1, 0)]
)
def test_sequences_wrap_to_zero(base_sequence: int, last_sequence: int) -> None:
    buf = raw_batch(raw_record(), raw_record(1), base_sequence=base_sequence)

    assert read_header(buf).last_sequence == last_sequence


def test_attribute_bits() -> None:
    assert read_header(raw_batch(attributes=0x20)).is_control
    assert read_header(raw_batch(attributes=0x08)).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert read_header(raw_batch(attributes=0x44)).codec is Codec.ZSTD
    with pytest.raises(UnsupportedCompressionType):
        _ = read_header(raw_batch(attributes=5)).codec


def test_a_batch_that_the_cleaner_emptied_has_a_header() -> None:
    header = read_header(raw_batch(base_offset=10, last_offset_delta=4))

    assert (header.record_count, header.next_offset) == (0, 15)
    assert decode_batch(raw_batch(base_offset=10, last_offset_delta=4)) == []


@pytest.mark.parametrize("size", [0, 1, BATCH_OVERHEAD - 1])
def test_a_cut_header_is_a_decode_error(size: int) -> None:
    with pytest.raises(DecodeError):
        read_header(TWO[:size])
    with pytest.raises(DecodeError):
        read_header(TWO, len(TWO) - size)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_named(magic: int) -> None:
    with pytest.raises(UnsupportedForMessageFormat):
        read_header(raw_batch(raw_record(), magic=magic))


@pytest.mark.parametrize(
    "buf",
    [
        raw_batch(raw_record(), magic=3),
        raw_batch(raw_record(), magic=-1),
        raw_batch(raw_record(), length=48),
        raw_batch(raw_record(), length=-1),
        raw_batch(raw_record(), count=-1),
        raw_batch(raw_record(), last_offset_delta=-2),
        raw_batch(raw_record(), raw_record(), last_offset_delta=0),
        raw_batch(raw_record(), base_offset=-1),
        raw_batch(raw_record(), base_offset=2**63 - 2**31),
        raw_batch(raw_record(), base_offset=2**63 - 1),
    ],
)
def test_impossible_batch_header_is_corrupt(buf: bytes) -> None:
    with pytest.raises(CorruptMessage):
        read_header(buf)


def test_the_largest_base_offset_leaves_room_for_every_delta() -> None:
    header = read_header(raw_batch(base_offset=2**63 - 1 - 2**31, last_offset_delta=2**31 - 1))
    assert header.next_offset == 2**63 - 1


def test_crc_of_a_batch_in_the_middle() -> None:
    buf = b"xx" + TWO + b"yy"
    header = read_header(buf, 2)

    check_crc(buf, header, 2)
    with pytest.raises(CorruptMessage):
        check_crc(buf, header._replace(crc=header.crc ^ 1), 2)
    with pytest.raises(CorruptMessage):
        check_crc(buf[:-3], header, 2)


def test_batches_of_a_fetch_answer_end_before_the_cut_one() -> None:
    answer = TWO + raw_batch(raw_record(), base_offset=42) + TWO[:-1]

    batches = list(iter_batches(answer))

    assert [(header.base_offset, len(view)) for header, view in batches] == [
        (40, len(TWO)),
        (42, len(raw_batch(raw_record()))),
    ]
    assert batches[0][1] == TWO
    assert list(iter_batches(b"")) == []


def test_garbage_between_batches_is_corrupt() -> None:
    batches = iter_batches(TWO + b"\xff" * 100)

    assert next(batches)[1] == TWO
    with pytest.raises(CorruptMessage):
        next(batches)


def test_assigning_an_offset_keeps_the_crc() -> None:
    buf = bytearray(TWO)

    assign(memoryview(buf), 2**40, 9)

    header = read_header(buf)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 9)
    assert buf[8:12] == TWO[8:12]
    assert buf[16:] == TWO[16:]
    assert [record.offset for record in decode_batch(buf)] == [2**40, 2**40 + 1]


def test_log_append_time_is_the_time_of_every_record() -> None:
    buf = bytearray(TWO)

    set_log_append_time(memoryview(buf), NOW_MS + 99)

    header = read_header(buf)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.is_transactional
    # Apache Kafka leaves the base timestamp as the producer set it.
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 99)
    assert [record.timestamp for record in decode_batch(buf)] == [NOW_MS + 99] * 2
