"""Records of a batch: what is written, what is read, what is refused."""

import pytest

from raylog.client.arrow.decoding import Bodies
from raylog.wire.compression import Codec, compress
from raylog.wire.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from raylog.wire.records import (
    Record,
    TimestampType,
    body_of,
    check_crc,
    check_produced,
    compressed,
    decode_batch,
    encode_batch,
    encode_like,
    iter_records,
    read_header,
    set_max_timestamp,
    validate_records,
)
from raylog.wire.walk import Patience
from tests.support.batches import NOW_MS, raw_batch, raw_record, sized, varint

RECORDS = [
    Record(0, NOW_MS, b"key", b"value", [("name", b"content"), ("none", None), ("", b"")]),
    Record(1, NOW_MS - 70, None, None, ()),
    Record(2, NOW_MS + 10_000_000, b"", b"", [("ключ", b"\x00\xff")]),
    Record(3, NOW_MS, b"k" * 9_000, b"v" * 70_000, ()),
]


def walk(buf: bytes, *, needs_keys: bool = False) -> None:
    """Everything Apache Kafka checks about records, within a day around NOW_MS."""
    validate_records(
        buf,
        read_header(buf),
        needs_keys=needs_keys,
        earliest_ms=NOW_MS - 86_400_000,
        latest_ms=NOW_MS + 86_400_000,
    )


# -- round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back(codec: Codec) -> None:
    buf = encode_batch(RECORDS, codec=codec)

    assert decode_batch(buf) == RECORDS
    assert decode_batch(memoryview(b"ab" + buf + b"cd"), 2) == RECORDS
    assert check_produced(buf).codec is codec
    walk(buf)


def test_bytes_of_a_batch() -> None:
    records = [Record(0, NOW_MS, b"k", b"v", ()), Record(0, NOW_MS + 300, None, b"w" * 100, ())]

    assert encode_batch(records) == raw_batch(
        raw_record(),
        raw_record(1, time_delta=300, key=None, value=b"w" * 100),
        max_timestamp=NOW_MS + 300,
    )


def test_header_of_an_encoded_batch() -> None:
    header = read_header(
        encode_batch(
            RECORDS,
            base_offset=1_000,
            codec=Codec.LZ4,
            producer_id=1,
            producer_epoch=2,
            base_sequence=3,
            is_transactional=True,
            leader_epoch=4,
        )
    )

    assert header.base_offset == 1_000
    assert header.last_offset_delta == 3
    assert header.record_count == 4
    assert header.partition_leader_epoch == 4
    assert header.base_timestamp == NOW_MS
    assert header.max_timestamp == NOW_MS + 10_000_000
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)
    assert header.is_transactional
    assert header.codec is Codec.LZ4


def test_records_are_numbered_from_the_base_offset() -> None:
    decoded = decode_batch(encode_batch(RECORDS[1:], base_offset=70))

    assert [record.offset for record in decoded] == [70, 71, 72]


def test_a_batch_of_log_append_time_has_one_time() -> None:
    buf = encode_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)

    assert {record.timestamp for record in decode_batch(buf)} == {NOW_MS + 10_000_000}


def test_records_can_be_taken_one_by_one() -> None:
    records = iter_records(encode_batch(RECORDS))

    assert next(records) == RECORDS[0]
    assert list(records) == RECORDS[1:]


def test_header_names_that_are_not_utf8_are_shown_as_java_shows_them() -> None:
    buf = raw_batch(raw_record(headers=varint(1) + sized(b"a\xff") + sized(b"v")))

    assert decode_batch(buf)[0].headers == [("a�", b"v")]


def test_negative_lengths_are_null_and_record_attributes_mean_nothing() -> None:
    content = b"\x7f" + varint(0) + varint(0) + varint(-2) + varint(-3) + b"\x00"

    assert decode_batch(raw_batch(sized(content))) == [Record(0, NOW_MS, None, None, ())]


def test_timestamps_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidRecord):
        encode_batch([Record(0, 2**63, None, b"", ())])


# -- batches that lie ----------------------------------------------------------------------------

MALFORMED = {
    "count above the records": raw_batch(raw_record(), count=2, last_offset_delta=1),
    "count below the records": raw_batch(raw_record(), raw_record(1), count=1, last_offset_delta=0),
    "empty body": raw_batch(raw_record(), body=b""),
    "bytes behind the records": raw_batch(raw_record(), body=raw_record() + b"zz"),
    "length above the record": raw_batch(raw_record(length=50)),
    "length below the record": raw_batch(raw_record(length=3)),
    "length negative": raw_batch(raw_record(length=-9)),
    "key beyond the batch": raw_batch(sized(b"\x00\x00\x00" + varint(100) + b"k" + sized(b"v"))),
    "value of 2^62 bytes": raw_batch(sized(b"\x00\x00\x00\x01" + varint(2**62) + b"v\x00")),
    "negative header count": raw_batch(raw_record(headers=varint(-1))),
    "huge header count": raw_batch(raw_record(headers=varint(1_000_000))),
    "header without a name": raw_batch(raw_record(headers=varint(1) + varint(-1) + varint(0))),
    "varint without end": raw_batch(raw_record(), body=b"\xff" * 40),
    "varint of 65 bits": raw_batch(raw_record(), body=b"\x80" * 9 + b"\x02" + b"\x00" * 40),
}


@pytest.mark.parametrize("buf", MALFORMED.values(), ids=MALFORMED)
def test_malformed_records_are_invalid(buf: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decode_batch(buf)
    with pytest.raises(InvalidRecord):
        walk(buf)


LARGE = {
    "an offset delta of 32 bits": raw_batch(raw_record(2**31)),
    "a negative offset delta": raw_batch(raw_record(-1)),
    "a negative offset delta of two bytes": raw_batch(raw_record(-100)),
    "a negative offset delta in each record": raw_batch(*[raw_record(-3)] * 20),
    "a time above 64 bits": raw_batch(raw_record(time_delta=1), base_timestamp=2**63 - 1),
    "a time below 64 bits": raw_batch(raw_record(time_delta=-1), base_timestamp=-(2**63)),
    "a time difference that is too large": raw_batch(raw_record(time_delta=2**63 - 1)),
    "times above 64 bits": raw_batch(
        *[raw_record(delta, time_delta=delta) for delta in range(20)], base_timestamp=2**63 - 10
    ),
}


@pytest.mark.parametrize("buf", LARGE.values(), ids=LARGE)
def test_offsets_and_times_that_no_log_has_are_invalid(buf: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decode_batch(buf)
    bodies = Bodies("t-0", 1_000_000)
    bodies.add(read_header(buf), memoryview(buf))
    with pytest.raises(InvalidRecord):
        bodies.columns()


def test_with_the_time_of_its_append_the_times_of_records_do_not_count() -> None:
    buf = raw_batch(
        raw_record(time_delta=-1),
        attributes=TimestampType.LOG_APPEND_TIME << 3,
        base_timestamp=-(2**63),
    )
    assert [record.timestamp for record in decode_batch(buf)] == [NOW_MS]
    bodies = Bodies("t-0", 1_000_000)
    bodies.add(read_header(buf), memoryview(buf))
    assert bodies.columns().timestamps.tolist() == [NOW_MS]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("body", [raw_record(), raw_record() + raw_record(1) + raw_record(2)])
def test_compressed_records_of_another_number_are_invalid(codec: Codec, body: bytes) -> None:
    buf = raw_batch(raw_record(), raw_record(1), attributes=codec, body=compress(codec, body))

    check_produced(buf)
    with pytest.raises(InvalidRecord):
        walk(buf)
    with pytest.raises(InvalidRecord):
        decode_batch(buf)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("body", [raw_record(), b"", b"\x01", b"\xff" * 100])
def test_records_that_are_not_compressed_as_declared_are_corrupt(codec: Codec, body: bytes) -> None:
    with pytest.raises((CorruptMessage, MessageTooLarge)):
        decode_batch(raw_batch(raw_record(), attributes=codec, body=body))


def test_unknown_codec_and_bad_crc() -> None:
    with pytest.raises(UnsupportedCompressionType):
        decode_batch(raw_batch(raw_record(), attributes=6))
    with pytest.raises(CorruptMessage):
        decode_batch(raw_batch(raw_record(), crc=0))


def test_decompression_is_bounded() -> None:
    buf = encode_batch([Record(0, 0, None, b"\x00" * 1_000_000, ())], codec=Codec.ZSTD)

    assert decode_batch(buf, max_bytes=1_000_020)[0].value == b"\x00" * 1_000_000
    with pytest.raises(MessageTooLarge):
        decode_batch(buf, max_bytes=1_000_000)
    with pytest.raises(MessageTooLarge):
        validate_records(buf, read_header(buf), max_bytes=1_000_000)


# -- validate_records ----------------------------------------------------------------------------

# Apache Kafka stores the first three when they are not compressed, and readers see offsets that are
# not the batch's; tests/differential/test_batches.py has more.
REFUSED_BY_WALK: dict[str, tuple[bytes, type[KafkaError]]] = {
    "offset deltas 0, 2": (raw_batch(raw_record(), raw_record(2)), InvalidRecord),
    "offset deltas 0, 0": (raw_batch(raw_record(), raw_record()), InvalidRecord),
    "offset deltas 0, -1": (raw_batch(raw_record(), raw_record(-1)), InvalidRecord),
    "two hours more than allowed ahead": (
        raw_batch(raw_record(time_delta=93_600_000)),
        InvalidTimestamp,
    ),
    "second of three records too old": (
        raw_batch(raw_record(), raw_record(1, time_delta=-93_600_000), raw_record(2)),
        InvalidTimestamp,
    ),
    "timestamp -2": (
        raw_batch(raw_record(), base_timestamp=-2, max_timestamp=-2),
        InvalidTimestamp,
    ),
}


@pytest.mark.parametrize(("buf", "refusal"), REFUSED_BY_WALK.values(), ids=REFUSED_BY_WALK)
def test_walk_refuses_what_the_header_does_not_show(buf: bytes, refusal: type[KafkaError]) -> None:
    check_produced(buf)
    with pytest.raises(refusal):
        walk(buf)


def test_a_record_without_a_timestamp_has_no_wrong_one() -> None:
    walk(raw_batch(raw_record(), base_timestamp=-1, max_timestamp=-1))


def test_compacted_topics_need_keys() -> None:
    walk(raw_batch(raw_record(key=None)))
    walk(raw_batch(raw_record(key=b"")), needs_keys=True)
    with pytest.raises(InvalidRecord):
        walk(raw_batch(raw_record(), raw_record(1, key=None)), needs_keys=True)


CLAIMS = (NOW_MS + 5, -1, 0, NOW_MS, NOW_MS + 99, -(2**63), 2**63 - 1)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("claim", CLAIMS)
def test_the_largest_time_is_found_whatever_the_header_says(codec: Codec, claim: int) -> None:
    body = raw_record(time_delta=1) + raw_record(1, time_delta=5) + raw_record(2, time_delta=3)
    buf = bytearray(
        raw_batch(
            body=compress(codec, body) if codec else body,
            count=3,
            last_offset_delta=2,
            attributes=codec,
            max_timestamp=claim,
        )
    )
    found = validate_records(buf, read_header(buf), earliest_ms=NOW_MS, latest_ms=NOW_MS + 5)
    assert found == (body, NOW_MS + 5)
    set_max_timestamp(buf, NOW_MS + 5)
    assert check_produced(buf).max_timestamp == NOW_MS + 5
    assert [record.timestamp - NOW_MS for record in decode_batch(buf)] == [1, 5, 3]


@pytest.mark.parametrize(
    ("base", "deltas", "largest"),
    [(-1, (0, 0), -1), (0, (0, 0), 0), (-1000, (0, -5), -1), (NOW_MS, (0, -NOW_MS - 1), NOW_MS)],
)
def test_the_largest_of_odd_times(base: int, deltas: tuple[int, ...], largest: int) -> None:
    records = [raw_record(n, time_delta=delta) for n, delta in enumerate(deltas)]
    buf = raw_batch(*records, base_timestamp=base, max_timestamp=7)
    found = validate_records(buf, read_header(buf))
    assert found is not None
    assert found.max_timestamp == largest


def test_a_base_out_of_range_is_no_records_time() -> None:
    """Apache Kafka looks at records only."""
    ahead = 10**12
    records = [raw_record(n, time_delta=n - ahead) for n in range(3)]
    walk(raw_batch(*records, base_timestamp=NOW_MS + ahead, max_timestamp=-1))


def test_records_without_times_are_no_reason_to_refuse_the_others() -> None:
    records = [raw_record(), raw_record(1, time_delta=-NOW_MS - 1)]
    walk(raw_batch(*records))
    with pytest.raises(InvalidTimestamp) as refusal:
        walk(raw_batch(*records, raw_record(2, time_delta=-NOW_MS)))
    assert [position for position, _ in refusal.value.record_errors] == [2]


def test_refused_records_are_named_up_to_a_number() -> None:
    buf = encode_batch([Record(0, NOW_MS, None, b"", ())] * 10_050)
    with pytest.raises(InvalidRecord, match="and 997 more") as refusal:
        walk(buf, needs_keys=True)
    assert len(refusal.value.record_errors) == 1_000


def test_patience_is_for_naming_too() -> None:
    buf = encode_batch([Record(0, NOW_MS, None, b"", ())] * 100)
    header = read_header(buf)
    assert validate_records(buf, header, patience=Patience(99)) is not None
    assert validate_records(buf, header, needs_keys=True, patience=Patience(99)) is None
    with pytest.raises(InvalidRecord):
        validate_records(buf, header, needs_keys=True, patience=Patience(100))


# -- batches made from batches -------------------------------------------------------------------


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_reencoding_changes_the_codec_and_nothing_else(source: Codec, target: Codec) -> None:
    buf = encode_batch(
        RECORDS,
        base_offset=9,
        codec=source,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        is_transactional=True,
        leader_epoch=8,
    )

    again = compressed(
        read_header(buf), body_of(memoryview(buf), read_header(buf), 1 << 20), target
    )

    before, after = read_header(buf), read_header(again)
    assert after.codec is target
    assert decode_batch(again) == decode_batch(buf)
    assert after._replace(attributes=0, crc=0, batch_length=0) == before._replace(
        attributes=0, crc=0, batch_length=0
    )


def test_dropped_records_leave_gaps() -> None:
    buf = encode_batch(
        RECORDS,
        base_offset=100,
        codec=Codec.GZIP,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        leader_epoch=2,
    )
    header = read_header(buf)
    kept = [decode_batch(buf)[1], decode_batch(buf)[3]]

    again = encode_like(header, kept)

    check_crc(again, read_header(again))
    assert decode_batch(again) == kept
    assert [record.offset for record in kept] == [101, 103]
    assert read_header(again)._replace(crc=0, batch_length=0) == header._replace(
        crc=0, batch_length=0, record_count=2, max_timestamp=NOW_MS
    )


def test_a_batch_may_lose_all_its_records() -> None:
    header = read_header(encode_batch(RECORDS, base_offset=100, base_sequence=7, producer_id=5))

    emptied = encode_like(header, [])

    assert decode_batch(emptied) == []
    assert read_header(emptied).next_offset == 104
    assert read_header(emptied).last_sequence == 10


def test_log_append_time_survives_other_records() -> None:
    buf = encode_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    kept = decode_batch(buf)[:1]

    assert decode_batch(encode_like(read_header(buf), kept)) == kept
