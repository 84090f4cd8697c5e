"""Blocks of datasets on their way to partitions, without Ray."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest

from raylog.client.arrow.headers import HEADERS_TYPE
from raylog.client.producer.partitioner import partition_of_key
from raylog.ray_data.rows import record_columns, split_block
from raylog.sink.driver import SinkSettings
from raylog.sink.rows import BadColumns, BadRow, Topics
from raylog.wire.records import Record, decode_batch


def split(table: pa.Table, topics: Topics, number: int = 0) -> dict[int, list[Record]]:
    """Records by output partition."""
    found: dict[int, list[Record]] = {}
    settings = SinkSettings(row_bytes_max=100, rows_per_block=4)
    for target, rows in split_block(table, topics, number, 77, settings):
        found.setdefault(target, []).extend(each._replace(offset=0) for each in decode_batch(rows))
    return found


def test_keys_go_where_kafkas_clients_send_them() -> None:
    keys = [b"%d" % n for n in range(20)]
    found = split(pa.table({"key": keys, "value": keys}), Topics({"t": 3}))
    for target, records in found.items():
        assert [partition_of_key(record.key or b"", 3) for record in records] == [target] * len(
            records
        )
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(numbers), "in the rows' order"
    assert sum(map(len, found.values())) == len(keys)


def test_rows_without_key_begin_elsewhere_in_each_block() -> None:
    table = pa.table({"value": [b"v"] * 5})
    counts = [
        {target: len(records) for target, records in split(table, Topics({"t": 3}), n).items()}
        for n in range(2)
    ]
    assert counts == [{0: 2, 1: 2, 2: 1}, {0: 1, 1: 2, 2: 2}]


def test_all_columns_arrive() -> None:
    headers = [{"key": "h", "value": b"x"}, {"key": "g", "value": None}]
    table = pa.table(
        {
            "topic": pa.array(["a", "b"]),
            "partition": pa.array([None, 1], pa.int64()),
            "key": pa.array([None, "k"], pa.large_string()),
            "value": pa.array([None, "v"]),
            "headers": pa.array([None, headers], HEADERS_TYPE),
            "timestamp": pa.array([None, datetime(1970, 1, 1, 0, 0, 2, 5_999, UTC)]),
            "other": [1, 2],
        }
    )
    assert split(table, Topics({"a": 1, "b": 2})) == {
        0: [Record(0, 77, None, None, ())],
        2: [Record(0, 2_005, b"k", b"v", [("h", b"x"), ("g", None)])],
    }


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"key": ["k"]}, "expected a column 'value', found key"),
        ({"value": [1]}, "'value': expected string or binary, found int64"),
        ({"value": ["v"], "key": [1.5]}, "'key': expected string or binary, found double"),
        ({"value": ["v"], "partition": ["0"]}, "'partition': expected int32, found string"),
        ({"value": ["v"], "headers": [["h"]]}, "'headers': expected list"),
        ({"value": ["v"], "timestamp": [5]}, "'timestamp': expected a timestamp, found int64"),
    ],
)
def test_columns_of_other_types_are_refused(columns: dict[str, list[Any]], text: str) -> None:
    with pytest.raises(BadColumns, match=text):
        record_columns(pa.table(columns))


@pytest.mark.parametrize("table", [pa.table({}), pa.table({"value": pa.array([], pa.float64())})])
def test_a_block_that_a_filter_left_empty_has_no_records(table: pa.Table) -> None:
    """Ray gives it no columns, or columns of any type."""
    assert split(table, Topics({"t": 2})) == {}


def test_a_row_that_is_too_large_is_named() -> None:
    table = pa.table({"value": [b"v", b"v" * 200]})
    with pytest.raises(BadRow, match="row 1 of input partition 6"):
        split(table, Topics({"t": 1}), 6)
