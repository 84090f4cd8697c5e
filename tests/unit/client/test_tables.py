"""Tables in and out over real sockets against an embedded broker."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator
from operator import itemgetter

import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pytest

from raylog.client import (
    EARLIEST,
    AsyncClient,
    BlockingClient,
    Codec,
    ConsumerSettings,
    NewTopic,
    ProducerSettings,
    TopicPartition,
)
from raylog.client.arrow.decoding import Bodies
from raylog.client.consumer.blocking import BlockingConsumer
from raylog.client.errors import MissingExtra
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import InvalidRecord

names = (f"table-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[BlockingClient]:
    with BlockingClient(bootstrap) as client:
        yield client


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
                expected.append([*place, kept, value, headers])
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


def test_what_is_aborted_is_in_no_table(client: BlockingClient, topic: str) -> None:
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
