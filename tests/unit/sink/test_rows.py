"""Rows on their way to partitions, without Spark."""

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest

from raylog.client.producer.partitioner import partition_of_key
from raylog.sink.rows import BadRow, Splitter, Topics
from raylog.sink.writer import WriterSettings
from raylog.wire.records import Record, decode_batch, read_header

TOPICS = Topics({"a": 3, "b": 2})
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", pa.int64()),
    ]
)


def row(topic: str | None = "a", **columns: Any) -> dict[str, Any]:
    empty = dict.fromkeys(SCHEMA.names)
    return {**empty, "topic": topic, "value": b"v", **columns}


def split(
    *rows: dict[str, Any], topics: Topics = TOPICS, first: int = 0
) -> dict[int, list[Record]]:
    """Records by output partition."""
    found: dict[int, list[Record]] = {}
    for target, block in blocks_of(*rows, topics=topics, first=first):
        found.setdefault(target, []).extend(each._replace(offset=0) for each in decode_batch(block))
    return found


def blocks_of(
    *rows: dict[str, Any], topics: Topics = TOPICS, first: int = 0, rows_at_once: int = 100
) -> list[tuple[int, bytes]]:
    """Output partition and record batch of each block."""
    splitter = Splitter(topics, 100, first, 77, WriterSettings(batch_bytes=150))
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    return list(splitter.split(table.to_batches(rows_at_once)))


def test_targets_are_all_partitions_of_all_topics() -> None:
    names = [str(key) for key in TOPICS.targets()]
    assert names == ["a-0", "a-1", "a-2", "b-0", "b-1"]


def test_the_partition_column_decides() -> None:
    found = split(row("b", partition=1, key=b"k"), row("a", partition=2))
    assert sorted(found) == [2, 4]


def test_keys_go_where_kafkas_clients_send_them() -> None:
    keys = [b"%d" % n for n in range(20)]
    found = split(*(row(key=key) for key in keys))
    for target, records in found.items():
        assert all(partition_of_key(record.key or b"", 3) == target for record in records)
    assert sum(map(len, found.values())) == len(keys)


def test_rows_without_key_take_turns() -> None:
    found = split(*(row() for _ in range(9)), first=1)
    assert {target: len(records) for target, records in found.items()} == {0: 3, 1: 3, 2: 3}


def test_rows_without_key_go_on_where_the_last_ones_ended() -> None:
    targets = [target for target, _ in blocks_of(*(row() for _ in range(6)), rows_at_once=1)]
    assert targets == [0, 1, 2, 0, 1, 2]


def test_blocks_hold_no_more_than_they_may_unless_a_row_does() -> None:
    rows = [row(partition=n % 2, value=b"v" * 40, key=b"%d" % n) for n in range(5)]
    found = blocks_of(*rows, row(partition=1, value=b"v" * 64))
    counts = [(target, read_header(block).record_count) for target, block in found]
    assert counts == [(0, 2), (0, 1), (1, 2), (1, 1)]
    assert all(read_header(block).producer_id == -1 for _, block in found)


def test_no_rows_make_no_blocks() -> None:
    assert blocks_of() == []


def test_a_row_keeps_its_contents_and_its_order() -> None:
    headers = [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    rows = [
        row(partition=0, key=b"k", value=b"1", headers=headers, timestamp=5),
        row(partition=0, value=None),
    ]
    assert split(*rows)[0] == [
        Record(0, 5, b"k", b"1", [("h", b"x"), ("h", None)]),
        Record(0, 77, None, None, ()),
    ]


def test_one_topic_needs_no_column() -> None:
    assert sorted(split(row(None, partition=1), topics=Topics({"only": 2}))) == [1]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(None), "expected a topic of a, b, found None"),
        (row("c"), "expected a topic of a, b, found c"),
        (row(partition=3), "expected a partition of a below 3, found 3"),
        (row(partition=-1), "below 3, found -1"),
        (row(value=b"x" * 87), "122 bytes, expected at most 100"),
        (row(headers=[{"key": "h", "value": b"x" * 70}]), "expected at most 100"),
    ],
)
def test_a_bad_row_is_named_with_its_origin(bad: dict[str, Any], reason: str) -> None:
    bad["key"] = b"who"
    with pytest.raises(BadRow, match=r"row 1 of input partition 7 .*'who'.*: ") as raised:
        split(row(), bad, row(partition=99), first=7)
    assert reason in str(raised.value)
