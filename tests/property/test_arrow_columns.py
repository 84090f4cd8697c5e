"""Columns decoded from many batches equal what the ordinary decoder returns for each."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raylog.client.arrow.tables import Rows
from raylog.client.cluster import TopicPartition
from raylog.wire.compression import Codec
from raylog.wire.errors import CorruptMessage, InvalidRecord
from raylog.wire.record import encode_records
from raylog.wire.records import (
    BATCH_OVERHEAD,
    Record,
    TimestampType,
    assemble,
    decode_batch,
    encode_batch,
    encode_like,
    read_header,
)

KEY = TopicPartition("t", 3)
BLOBS = st.none() | st.binary(max_size=70) | st.sampled_from([b"k" * 8_192, b"v" * 63, b"v" * 64])
SHORT_BLOBS = st.none() | st.sampled_from([b"", b"v" * 10, b"v" * 63, b"v" * 70])
HEADERS = st.lists(
    st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=20)), max_size=3
) | st.sampled_from([[("h", b"%d" % n) for n in range(40)]])
TIMES = st.integers(-1, 2**45) | st.sampled_from([2**62, 2**63 - 2])
RECORDS = st.lists(
    st.builds(Record, st.just(0), TIMES, BLOBS, BLOBS, HEADERS), min_size=1, max_size=30
)
ALIKE = st.builds(
    lambda count, key, value, other: [
        Record(0, 1_000 + n // 3, key, value if n != other else b"other", []) for n in range(count)
    ],
    st.integers(1, 150),
    SHORT_BLOBS,
    SHORT_BLOBS,
    st.integers(0, 300),
)
"""Records of equal size, with at most one exception."""
BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
BATCHES = st.lists(
    st.tuples(RECORDS | ALIKE, st.sampled_from(Codec), st.sampled_from(TimestampType)), max_size=3
)


def rows_of(*batches: bytes, from_offset: int = 0) -> list[dict[str, Any]]:
    """The rows decoded from batches in one buffer, as in a fetch response."""
    whole = memoryview(bytearray(b"".join(batches)))
    rows = Rows(batch_bytes_max=1_000_000)
    position = 0
    for batch in batches:
        rows.take(KEY, from_offset, read_header(batch), whole[position : position + len(batch)])
        position += len(batch)
    table = rows.table()
    table.validate(full=True)
    index = table.schema.get_field_index("timestamp")
    times = table.column("timestamp").cast(pa.int64())
    found: list[dict[str, Any]] = table.set_column(index, "timestamp", times).to_pylist()
    return found


def expected(batch: bytes) -> list[dict[str, Any]]:
    return [
        {
            "topic": KEY.topic,
            "partition": KEY.partition,
            "offset": record.offset,
            "timestamp": None if record.timestamp == -1 else record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
        }
        for record in decode_batch(batch)
    ]


@BUSY
@given(BATCHES)
def test_tables_hold_what_decode_batch_reads(
    parts: list[tuple[list[Record], Codec, TimestampType]],
) -> None:
    batches = []
    offset = 7
    for records, codec, kind in parts:
        batches.append(encode_batch(records, base_offset=offset, codec=codec, timestamp_type=kind))
        offset += len(records)
    assert rows_of(*batches) == [row for batch in batches for row in expected(batch)]


@BUSY
@given(RECORDS, st.data())
def test_cleaned_batch_keeps_its_offsets(records: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(records, base_offset=100)
    kept = [record for record in decode_batch(batch) if data.draw(st.booleans())]
    cleaned = encode_like(read_header(batch), kept)
    assert rows_of(cleaned) == expected(cleaned)


@BUSY
@given(RECORDS, st.integers(0, 40))
def test_rows_before_the_position_are_left_out(records: list[Record], from_offset: int) -> None:
    batch = encode_batch(records, base_offset=5)
    found = rows_of(batch, from_offset=from_offset)
    assert found == [row for row in expected(batch) if row["offset"] >= from_offset]


@BUSY
@given(
    RECORDS | ALIKE,
    st.lists(st.integers(0, 2**31 - 1), min_size=150, max_size=150)
    | st.lists(st.integers(-1, 2**40), min_size=150, max_size=150),
    st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 2]),
    st.sampled_from(TimestampType),
)
def test_differences_of_any_sign_and_size(
    records: list[Record], deltas: list[int], base_timestamp: int, kind: TimestampType
) -> None:
    header = read_header(encode_batch(records, timestamp_type=kind))._replace(
        base_offset=2**41, base_timestamp=base_timestamp
    )
    body = encode_records(records, deltas[: len(records)], 2**40)
    assert_alike(assemble(header, body))


@BUSY
@given(RECORDS | ALIKE, st.data())
def test_damage_gives_the_same_rows_or_is_refused(
    records: list[Record], data: st.DataObject
) -> None:
    batch = encode_batch(records)
    body = bytearray(batch[BATCH_OVERHEAD:])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\xff" * 9 + b"\x01", b"\xfe" * 9 + b"\x03"])
        )
        if not body:
            break
    header = read_header(batch)
    count = max(0, header.record_count + data.draw(st.integers(-1, 1)))
    claimed = header._replace(record_count=count, last_offset_delta=len(records))
    assert_alike(assemble(claimed, bytes(body)))


@BUSY
@given(st.binary(max_size=200), st.integers(0, 2**31 - 1))
def test_any_bytes_give_the_same_rows_or_are_refused(body: bytes, count: int) -> None:
    header = read_header(encode_batch([Record(0, 0, None, None, [])]))
    claimed = header._replace(record_count=count, last_offset_delta=max(0, count - 1))
    assert_alike(assemble(claimed, body))


def assert_alike(batch: bytes) -> None:
    """Check that a batch with a correct CRC gives what the ordinary decoder gives."""
    try:
        wanted = expected(batch)
    except InvalidRecord:
        with pytest.raises(InvalidRecord):
            rows_of(batch, from_offset=-(2**63))
        return
    numbers = [row[name] or 0 for row in wanted for name in ("offset", "timestamp")]
    assert all(-(2**63) <= number < 2**63 for number in numbers)
    assert rows_of(batch, from_offset=-(2**63)) == wanted


def test_a_wrong_crc_is_refused() -> None:
    batch = bytearray(encode_batch([Record(0, 0, b"k", b"v", [])]))
    batch[-1] ^= 1
    with pytest.raises(CorruptMessage):
        rows_of(bytes(batch))
