"""Tables in and out over real sockets on an embedded broker."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import sys
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest

from raylog.client import (
    EARLIEST,
    AsyncClient,
    AsyncProducer,
    BlockingClient,
    Codec,
    ConsumerSettings,
    NewTopic,
    Producer,
    ProducerSettings,
    TopicPartition,
)
from raylog.client.arrow import encoding
from raylog.client.arrow.decoding import Bodies
from raylog.client.arrow.encoding import Rows, encode_bodies
from raylog.client.arrow.headers import HEADERS_TYPE
from raylog.client.consumer.blocking import BlockingConsumer
from raylog.client.errors import InvalidTable, RecordTooLarge
from raylog.client.producer.partitioner import partition_of_key
from raylog.extras import MissingExtra
from raylog.wire.errors import InvalidRecord, UnknownTopicOrPartition
from raylog.wire.record import decode_records

names = (f"table-{number}" for number in itertools.count())


@pytest.fixture
def topic(client: BlockingClient) -> str:
    name = next(names)
    client.create_topics([NewTopic(name, partitions=3)])
    return name


def keys_of(topic: str) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): EARLIEST for partition in range(3)}


def read(consumer: BlockingConsumer, count: int, **limits: int) -> pa.Table:
    """The next `count` records or more."""
    tables: list[pa.Table] = []
    for _ in range(200):
        tables.append(consumer.poll_table(200, **limits))
        if sum(table.num_rows for table in tables) >= count:
            break
    return pa.concat_tables(tables)


def fill(client: BlockingClient, topic: str, count: int, codec: Codec = Codec.NONE) -> None:
    with client.producer(ProducerSettings(codec=codec, batch_bytes=4_000)) as producer:
        for number in range(count):
            key = None if number % 5 == 0 else b"key-%d" % number
            value = None if number % 7 == 0 else b"%d" % number * 30
            headers = [("n", b"%d" % number)] if number % 100 == 0 else ()
            producer.send(topic, value, key, headers, 1_000_000 + number, number % 3)


@pytest.mark.parametrize("codec", Codec)
def test_a_table_holds_what_records_hold(client: BlockingClient, topic: str, codec: Codec) -> None:
    fill(client, topic, 2_000, codec)
    consumer = client.consumer()
    consumer.assign(keys_of(topic))
    table = read(consumer, 2_000)
    assert [consumer.position(key) for key in keys_of(topic)] == [667, 667, 666]
    assert table.num_rows == 2_000
    consumer.assign(keys_of(topic))
    consumer.seek(TopicPartition(topic, 0), 0)
    other = client.consumer()
    other.assign(keys_of(topic))
    expected: list[list[object]] = []
    while len(expected) < 2_000:
        for found in other.poll(200):
            for offset, timestamp, kept, value, headers in found.records:
                place = (found.topic, found.partition, offset, timestamp)
                expected.append([*place, kept, value, list(headers)])
    fields = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    times = table["timestamp"].cast(pa.int64())
    rows = [
        [*(row[name] for name in fields[:-1]), [tuple(pair.values()) for pair in row["headers"]]]
        for row in table.set_column(3, "timestamp", times).to_pylist()
    ]
    assert sorted(rows, key=itemgetter(1, 2)) == sorted(expected, key=itemgetter(1, 2))
    consumer.close()
    other.close()


def test_limits_end_a_table_within_a_batch_and_the_next_goes_on(
    client: BlockingClient, topic: str
) -> None:
    fill(client, topic, 2_000)
    consumer = client.consumer()
    consumer.assign(keys_of(topic))
    found = [read(consumer, 1, max_records=100)]
    while sum(table.num_rows for table in found) < 2_000:
        found.append(read(consumer, 1, max_bytes=2_000))
    assert all(table.num_rows < 250 for table in found)
    table = pa.concat_tables(found)
    places = set(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert len(places) == table.num_rows == 2_000
    assert consumer.poll_table(0).num_rows == 0
    assert consumer.poll_table(0).schema == table.schema
    consumer.close()


def test_a_table_begins_at_the_position(client: BlockingClient, topic: str) -> None:
    fill(client, topic, 300)
    consumer = client.consumer()
    consumer.assign({TopicPartition(topic, 1): 17})
    assert read(consumer, 83)["offset"].to_pylist() == list(range(17, 100))
    consumer.close()


def test_aborted_records_are_not_in_the_table(client: BlockingClient, topic: str) -> None:
    with client.producer(ProducerSettings(transactional_id=topic)) as producer:
        producer.init_transactions()
        for ends in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for _ in range(10):
                producer.send(topic, ends.__name__.encode(), partition=0)
            ends()
    consumer = client.consumer(ConsumerSettings(read_committed=True))
    consumer.assign({TopicPartition(topic, 0): EARLIEST})
    table = read(consumer, 10)
    assert table["value"].to_pylist() == [b"commit_transaction"] * 10
    consumer.close()


def test_a_position_stays_in_front_of_records_that_cannot_be_read(
    client: BlockingClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, topic, 30)

    def broken(_: Bodies) -> object:
        raise InvalidRecord("planted")

    consumer = client.consumer()
    key = TopicPartition(topic, 2)
    consumer.assign({key: 3})
    with monkeypatch.context() as planted:
        planted.setattr(Bodies, "columns", broken)
        with pytest.raises(InvalidRecord, match="planted"):
            read(consumer, 1)
    assert consumer.position(key) == 3
    assert read(consumer, 7)["offset"].to_pylist() == list(range(3, 10))
    consumer.close()


def test_pandas_and_polars_follow(client: BlockingClient, topic: str) -> None:
    fill(client, topic, 300)
    consumer = client.consumer()
    consumer.assign(keys_of(topic))
    table = read(consumer, 300)
    frame = table.to_pandas()
    assert frame["value"].tolist() == table["value"].to_pylist()
    assert str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"
    shown = pl.from_arrow(table)
    assert isinstance(shown, pl.DataFrame)
    assert shown["key"].to_list() == table["key"].to_pylist()
    assert shown["topic"].to_list() == [topic] * 300
    consumer.close()


def test_the_asyncio_consumer_returns_tables(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    fill(client, topic, 300)

    async def main() -> int:
        async with AsyncClient(bootstrap) as asynchronous:
            consumer = asynchronous.consumer()
            consumer.assign(keys_of(topic))
            count = 0
            while count < 300:
                count += (await consumer.poll_table()).num_rows
            await consumer.close()
            return count

    assert asyncio.run(main()) == 300


def test_without_arrow_its_extra_is_named(
    client: BlockingClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = client.consumer()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"raylog\[arrow\]"):
        consumer.poll_table(0)
    consumer.close()


# -- tables out ----------------------------------------------------------------------------------


def rows_of(consumer: BlockingConsumer, topic: str, count: int) -> list[dict[str, Any]]:
    """What is in a topic, by partition and offset."""
    consumer.assign(keys_of(topic))
    rows: list[dict[str, Any]] = read(consumer, count).to_pylist()
    consumer.close()
    return sorted(rows, key=itemgetter("partition", "offset"))


def test_a_table_comes_back_as_it_was_sent(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    count = 5_000
    table = pa.table(
        {
            "key": [None if n % 9 == 0 else f"key-{n % 100}" for n in range(count)],
            "value": [None if n % 11 == 0 else b"%d" % n for n in range(count)],
            "at": pa.array(range(10**9, 10**9 + count), pa.timestamp("s", "UTC")),
            "headers": [[{"key": "n", "value": b"%d" % n}] * (n % 3) for n in range(count)],
        }
    )
    with Producer(bootstrap, batch_size=5_000) as producer:
        assert producer.send_table(topic, table, headers="headers", timestamp="at") == count
    rows = rows_of(client.consumer(), topic, count)
    assert len(rows) == count
    for partition in range(3):
        found = [row for row in rows if row["partition"] == partition and row["key"] is not None]
        expected = [
            row
            for row in table.to_pylist()
            if row["key"] is not None and partition_of_key(row["key"].encode(), 3) == partition
        ]
        assert [row["key"] for row in found] == [row["key"].encode() for row in expected]
        for name, given in (("value", "value"), ("timestamp", "at"), ("headers", "headers")):
            assert [row[name] for row in found] == [row[given] for row in expected]
    assert {row["partition"] for row in rows if row["key"] is None} == {0, 1, 2}


def test_times_of_a_zone_that_is_not_known_here(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    at = pa.array([10**15 + 1_999], pa.timestamp("us", "Nowhere/Else"))
    with Producer(bootstrap) as producer:
        producer.send_table(topic, pa.table({"value": ["x"], "at": at}), timestamp="at")
    (row,) = rows_of(client.consumer(), topic, 1)
    assert row["timestamp"] == datetime.datetime.fromtimestamp(10**9 + 0.001, datetime.UTC)


def test_a_part_of_a_table_costs_as_much_as_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are encoded one after the other; each may lie in one large array with all others."""
    written = encoding._written
    lengths: list[int] = []

    def counted(fields: list[Any]) -> pa.BinaryArray:
        found = written(fields)
        lengths.append(len(found))
        return found

    monkeypatch.setattr(encoding, "_written", counted)
    count, begin, size = 10_000, 5_000, 10
    headers = pa.array([[("n", b"%d" % n)] * (n % 3) for n in range(count)], HEADERS_TYPE)
    values = pa.array([b"v"] * count, pa.binary())
    part = Rows(
        None, values.slice(begin, size), np.zeros(size, np.int64), headers.slice(begin, size)
    )
    (body,) = encode_bodies(part, [0])
    records = list(decode_records(bytes(body.data), size, 0, 0))
    assert [record.headers or [] for record in records] == [
        [("n", b"%d" % n)] * (n % 3) for n in range(begin, begin + size)
    ]
    assert max(lengths) <= 2 * size


def test_send_table_refuses_other_types(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for wrong in ({"value": ["x"]}, None, pd.DataFrame({"value": ["x"]})):
            expected = f"expected a pyarrow.Table or RecordBatch, found {type(wrong).__name__}"
            with pytest.raises(InvalidTable, match=expected):
                producer.send_table(topic, wrong)


TEXT = ["a", None, "ccc", ""]
LARGE = pa.array([2**64 - 1], pa.uint64())
LATE = pa.array([2**62], pa.timestamp("s"))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TEXT, pa.string()),
        pa.array(TEXT, pa.large_string()),
        pa.array(TEXT, pa.string_view()),
        pa.array(TEXT, pa.binary()),
        pa.array(TEXT, pa.large_binary()),
        pa.array(TEXT, pa.binary_view()),
        pa.array(TEXT).dictionary_encode(),
        pa.chunked_array([pa.array(["x", *TEXT])[1:], pa.array([], pa.string())]),
    ],
    ids=str,
)
def test_every_type_of_text_and_bytes_is_taken(
    bootstrap: str, client: BlockingClient, topic: str, column: pa.Array
) -> None:
    with Producer(bootstrap) as producer:
        table = pa.table({"key": column, "value": column})
        assert producer.send_table(topic, table, partition=1) == 4
        fixed = pa.array([b"12", None], pa.binary(2))
        assert (
            producer.send_table(
                topic, pa.table({"v": fixed, "w": pa.nulls(2)}), "v", "w", partition=2
            )
            == 2
        )
    rows = rows_of(client.consumer(), topic, 6)
    assert [row["value"] for row in rows[:4]] == [b"a", None, b"ccc", b""]
    assert [row["key"] for row in rows[:4]] == [b"a", None, b"ccc", b""]
    assert [(row["key"], row["value"]) for row in rows[4:]] == [(None, b"12"), (None, None)]


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        ({"other": ["x"]}, {}, "expected one column 'value', found other"),
        ({"value": [1]}, {}, "expected strings or bytes, found int64"),
        ({"value": ["x"]}, {"key": "key"}, "expected one column 'key'"),
        ({"value": ["x"], "h": [1]}, {"headers": "h"}, "expected list"),
        ({"value": ["x"], "h": [[None]]}, {"headers": "h"}, "expected"),
        ({"value": ["x"], "h": [[{"key": None, "value": b""}]]}, {"headers": "h"}, "with names"),
        ({"value": ["x"], "at": ["x"]}, {"timestamp": "at"}, "expected timestamps"),
        ({"value": ["x"], "at": [-5]}, {"timestamp": "at"}, "from 1970 on, found -5"),
        ({"value": ["x"], "p": ["x"]}, {"partition": "p"}, "expected integers"),
        ({"value": ["x"], "p": [-1]}, {"partition": "p"}, "expected partitions, found -1"),
        (
            {"value": ["x"], "p": [2**31]},
            {"partition": "p"},
            "expected partitions, found 2147483648",
        ),
        (
            {"value": ["x"], "p": LARGE},
            {"partition": "p"},
            f"expected partitions, found {2**64 - 1}",
        ),
        ({"value": ["x"]}, {"partition": -1}, "expected a partition or a column of them, found -1"),
        ({"value": ["x"]}, {"partition": 2**70}, "expected a partition or a column of them"),
        ({"value": ["x"], "at": LARGE}, {"timestamp": "at"}, "'at': expected times of 64 bits"),
        ({"value": ["x"], "at": LATE}, {"timestamp": "at"}, "'at': expected times of 64 bits"),
    ],
)
def test_invalid_table_columns_are_refused(
    bootstrap: str, topic: str, columns: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with Producer(bootstrap) as producer:
        with pytest.raises(InvalidTable, match=message):
            producer.send_table(topic, pa.table(columns), **arguments)
        assert producer.delivered_count == 0


def test_nothing_of_a_table_is_sent_if_a_row_is_too_large_or_has_no_partition(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    with Producer(bootstrap, max_request_size=10_000) as producer:
        with pytest.raises(RecordTooLarge):
            producer.send_table(topic, pa.table({"value": ["x"] * 10 + ["x" * 10_001]}))
        with pytest.raises(UnknownTopicOrPartition):
            producer.send_table(topic, pa.table({"value": ["x", "y"], "p": [0, 3]}), partition="p")
        producer.send_table(
            topic, pa.table({"value": ["last", "y"], "p": [2, None]}), partition="p"
        )
    rows = rows_of(client.consumer(), topic, 2)
    assert sorted(row["value"] for row in rows) == [b"last", b"y"]


def test_a_table_larger_than_the_buffer_waits_for_room(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    table = pa.table({"value": [b"%07d" % n * 100 for n in range(20_000)]})  # 14 MB
    with Producer(bootstrap, buffer_memory=1_000_000, batch_size=100_000) as producer:
        assert producer.send_table(topic, table) == 20_000
        assert producer.statistics().buffer_bytes <= 1_100_000
    found = {row["value"] for row in rows_of(client.consumer(), topic, 20_000)}
    assert found == set(table["value"].to_pylist())


def test_a_table_is_part_of_a_transaction(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    with Producer(bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for word, end in (("no", producer.abort_transaction), ("yes", producer.commit_transaction)):
            producer.begin_transaction()
            producer.send_table(topic, pa.table({"value": [word] * 100}))
            end()
    committed = client.consumer(ConsumerSettings(read_committed=True))
    assert [row["value"] for row in rows_of(committed, topic, 100)] == [b"yes"] * 100


def test_the_partitioner_of_the_application_is_asked(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    def by_length(_: str, key: bytes | None, *rest: object) -> int:
        return len(key or b"")

    with Producer(bootstrap, partitioner=by_length) as producer:
        producer.send_table(topic, pa.table({"key": ["a", "", "bb"], "value": ["1", "0", "2"]}))
    rows = rows_of(client.consumer(), topic, 3)
    assert [(row["partition"], row["value"]) for row in rows] == [(0, b"0"), (1, b"1"), (2, b"2")]


@pytest.mark.parametrize("name", ["default", "round_robin"])
def test_rows_go_where_the_setting_partitioner_says(
    client: BlockingClient, topic: str, name: str
) -> None:
    keys = [None, b"", b"a", b"bb", b"ccc"] * 60
    with client.producer(ProducerSettings(partitioner=name)) as producer:
        for key in keys:
            producer.send(topic, b"records", key)
        producer.send_table(topic, pa.table({"key": keys, "value": ["table"] * len(keys)}))
    rows = rows_of(client.consumer(), topic, 2 * len(keys))
    places: dict[bytes, dict[bytes | None, set[int]]] = {b"records": {}, b"table": {}}
    for row in rows:
        places[row["value"]].setdefault(row["key"], set()).add(row["partition"])
    if name == "round_robin":
        assert all(found == {0, 1, 2} for found in places[b"table"].values())
    else:
        for key in (b"", b"a", b"bb", b"ccc"):
            assert places[b"table"][key] == places[b"records"][key]


def test_the_asyncio_producer_takes_tables(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    table = pa.table({"value": ["x" * 100] * 50_000})

    async def main() -> int:
        async with AsyncProducer(bootstrap, buffer_memory=500_000) as producer:
            return await producer.send_table(topic, table.to_batches()[0])

    assert asyncio.run(main()) == 50_000
    assert len(rows_of(client.consumer(), topic, 50_000)) == 50_000
