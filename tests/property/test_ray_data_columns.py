"""Columns decoded from many batches equal what the ordinary decoder returns for each."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raylog.client.arrow.decoding import Bodies
from raylog.client.cluster import TopicPartition
from raylog.ray_data.columns import SCHEMA, rows_of
from raylog.wire.compression import Codec
from raylog.wire.errors import CorruptMessage, InvalidRecord
from raylog.wire.record import decode_records
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
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
RECORDS = st.lists(
    st.builds(Record, st.just(0), st.integers(-1, 2**45), BLOBS, BLOBS, HEADERS),
    min_size=1,
    max_size=30,
)
BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""The first array imports pandas, which takes a second on a busy machine."""
BATCHES = st.lists(
    st.tuples(RECORDS, st.sampled_from(Codec), st.sampled_from(TimestampType)), max_size=3
)


def columns(*batches: bytes) -> pa.RecordBatch:
    bodies = Bodies(str(KEY), 1_000_000)
    for batch in batches:
        bodies.add(read_header(batch), memoryview(batch))
    return rows_of(KEY, bodies.columns())


def as_rows(found: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows with timestamps as numbers."""
    index = SCHEMA.get_field_index("timestamp")
    times = found.column("timestamp").cast(pa.int64())
    rows: list[dict[str, Any]] = found.set_column(index, "timestamp", times).to_pylist()
    return rows


def expected(batch: bytes) -> list[dict[str, Any]]:
    kind = int(read_header(batch).timestamp_type)
    return [
        {
            "topic": KEY.topic,
            "partition": KEY.partition,
            "offset": record.offset,
            "timestamp": None if record.timestamp == -1 else record.timestamp,
            "timestamp_type": kind,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for record in decode_batch(batch)
    ]


@BUSY
@given(BATCHES)
def test_columns_hold_what_decode_batch_reads(
    parts: list[tuple[list[Record], Codec, TimestampType]],
) -> None:
    batches = []
    offset = 7
    for records, codec, kind in parts:
        batches.append(encode_batch(records, base_offset=offset, codec=codec, timestamp_type=kind))
        offset += len(records)
    assert as_rows(columns(*batches)) == [row for batch in batches for row in expected(batch)]


@BUSY
@given(RECORDS, st.data())
def test_cleaned_batch_keeps_its_offsets(records: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(records, base_offset=100)
    kept = [record for record in decode_batch(batch) if data.draw(st.booleans())]
    cleaned = encode_like(read_header(batch), kept)
    assert as_rows(columns(cleaned)) == expected(cleaned)


@BUSY
@given(RECORDS, st.data())
def test_damage_is_found_or_harmless(records: list[Record], data: st.DataObject) -> None:
    """What the ordinary decoder takes for whole is whole, what is not raises INVALID_RECORD."""
    batch = encode_batch(records)
    body = bytearray(batch[BATCH_OVERHEAD:])
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(1, len(body))) :]
    found = None
    with contextlib.suppress(InvalidRecord):
        found = columns(assemble(read_header(batch), bytes(body)))
    try:
        whole = list(decode_records(bytes(body), len(records), 0, 0))
    except InvalidRecord:
        assert found is None
    else:
        assert found is not None
        assert found.column("value").to_pylist() == [record.value for record in whole]


def test_a_wrong_crc_is_refused() -> None:
    batch = bytearray(encode_batch([Record(0, 0, b"k", b"v", [])]))
    batch[-1] ^= 1
    with pytest.raises(CorruptMessage):
        columns(bytes(batch))
