"""Fetched data, cut into tables at row positions."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import FetchedBatches
from raylog.ray_data.columns import SCHEMA
from raylog.ray_data.planning import OffsetRange
from raylog.ray_data.reading import ReadSettings, TableCutter, decoded
from raylog.wire.control import EndTxnMarker, encode_end_txn_marker
from raylog.wire.records import Record, encode_batch

KEY = TopicPartition("t", 0)


def batch(first: int, count: int, producer: int = -1) -> bytes:
    return encode_batch(
        [Record(0, 5, b"k", b"%d" % n, []) for n in range(first, first + count)],
        base_offset=first,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        is_transactional=producer >= 0,
    )


def abort_marker(offset: int, producer: int) -> bytes:
    return encode_end_txn_marker(
        EndTxnMarker(False, 0),
        producer_id=producer,
        producer_epoch=0,
        timestamp_ms=5,
        base_offset=offset,
    )


def offsets(
    data: bytes, start: int, end: int, aborted: list[tuple[int, int]] | None = None
) -> list[int]:
    block = FetchedBatches(
        KEY,
        memoryview(data),
        from_offset=start,
        high_watermark=100,
        aborted=aborted,
        decompressed_bytes_max=1_000_000,
    )
    wanted = OffsetRange(KEY, start, end)
    return [
        offset
        for rows in decoded(block, wanted, ReadSettings())
        for offset in rows.column("offset").to_pylist()
    ]


def test_neighbouring_ranges_share_no_record_of_a_batch() -> None:
    data = batch(0, 10) + batch(10, 10)
    assert [offsets(data, *ends) for ends in ((0, 4), (4, 13), (13, 20))] == [
        list(range(4)),
        list(range(4, 13)),
        list(range(13, 20)),
    ]


def test_a_range_may_lie_in_a_gap() -> None:
    assert offsets(batch(0, 2) + batch(50, 2), 10, 20) == []


def test_markers_and_what_they_abort_are_left_out() -> None:
    data = batch(0, 2, producer=1) + abort_marker(2, 1) + batch(3, 1)
    assert offsets(data, 0, 4, [(1, 0)]) == [3]
    assert offsets(data, 0, 4) == [0, 1, 3]


SIZES = [10, 500, 0, 30, 1_000, 5_000, 1, 1, 1, 200, 552] * 2


def rows(sizes: list[int]) -> pa.RecordBatch:
    """Rows with values of so many bytes."""
    return pa.RecordBatch.from_pylist([{"value": b"v" * size} for size in sizes], SCHEMA)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 50])
def test_tables_end_where_they_do_however_rows_arrive(step: int) -> None:
    """A task that is run again must hand on the same tables, though fetches never come the same."""
    cutter = TableCutter(600)
    tables: list[pa.Table] = []
    for first in range(0, len(SIZES), step):
        tables += cutter.add(rows(SIZES[first : first + step]))
    if cutter.has_rows:
        tables.append(cutter.rest())
    found = [[len(value) for value in table["value"].to_pylist()] for table in tables]
    assert found[:4] == [[10, 500], [0, 30, 1_000], [5_000], [1, 1, 1, 200, 552]]
    assert sum(found, []) == SIZES  # noqa: RUF017  # few
    assert not cutter.has_rows


def test_a_cutter_without_rows_has_an_empty_table() -> None:
    assert TableCutter(10).rest().schema == SCHEMA
