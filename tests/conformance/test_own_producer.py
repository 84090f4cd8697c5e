"""What raylog.client's producers write, read by other libraries, on Raylog and Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raylog.client import Admin, AsyncProducer, NewTopic, Producer, RecordMetadata
from raylog.client.producer.partitioner import partition_of_key
from raylog.wire.record import Record, encode_records
from tests.conformance.clients.base import eventually
from tests.conformance.conftest import OF_KAFKA
from tests.conformance.scenarios import KEEP
from tests.support.kafka_python import kafka

pytestmark = pytest.mark.timeout(300)  # an Apache Kafka starts within the first test's time

PARTITIONS = 3
Found = tuple[Any, ...]
"""Partition, offset, key, value, headers, timestamp."""


@pytest.fixture(params=["raylog", pytest.param("kafka", marks=OF_KAFKA)])
def bootstrap(request: pytest.FixtureRequest, own_clusters: Callable[[str], str]) -> str:
    return own_clusters(request.param)


@pytest.fixture
def made(bootstrap: str, topic: str) -> str:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1, configs=KEEP)])
    return topic


def by_confluent(bootstrap: str, topic: str, count: int) -> list[Found]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "check.crcs": True})
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    found: list[Found] = []
    for _ in range(200):
        for message in consumer.consume(10_000, 0.2):
            assert message.error() is None
            headers = tuple(message.headers() or ())
            place = message.partition(), message.offset()
            found.append((*place, message.key(), message.value(), headers, message.timestamp()[1]))
        if len(found) >= count:
            break
    consumer.close()
    return sorted(found, key=lambda one: one[:2])


def by_kafka_python(bootstrap: str, topic: str, count: int) -> list[Found]:
    found: list[Found] = []
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([kafka.TopicPartition(topic, n) for n in range(PARTITIONS)])
    for _ in range(200):
        for records in consumer.poll(200, max_records=10_000).values():
            for at in records:
                headers = tuple(at.headers)
                place = at.partition, at.offset
                found.append((*place, at.key, at.value, headers, at.timestamp))
        if len(found) >= count:
            break
    consumer.close()
    return sorted(found, key=lambda one: one[:2])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_all_kinds(bootstrap: str, made: str, codec: str) -> None:
    expected: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]]
    expected = [
        (key, value, headers, 1_700_000_000_000 + number)
        for number, (key, value, headers) in enumerate(
            (key, value, headers)
            for key in (None, b"", b"key", b"k" * 300)
            for value in (None, b"", b"value", b"v" * 9_000)
            for headers in ((), (("h", b"1"), ("h", None), ("é", b"")))
        )
    ]
    level = {"gzip": 9, "zstd": 3}.get(codec)
    config: dict[str, object] = {"bootstrap.servers": bootstrap, "compression.type": codec}
    if level is not None:
        config["compression.level"] = level
    with Producer(config, batch_size=4_000) as producer:
        futures = [
            producer.submit(made, value, key, headers, timestamp)
            for key, value, headers, timestamp in expected
        ]
    ends = [future.result(30) for future in futures]
    there = {
        (end.partition, end.offset): record for end, record in zip(ends, expected, strict=True)
    }
    for end, (key, *_) in zip(ends, expected, strict=True):
        if key is not None:
            assert end.partition == partition_of_key(key, PARTITIONS)
    readers = [by_confluent]
    if codec != "snappy":  # for which kafka-python wants a library of its own
        readers.append(by_kafka_python)
    for read in readers:
        found = read(bootstrap, made, len(expected))
        assert {one[:2]: one[2:] for one in found} == there


def test_rows_whole_batches_and_splits(bootstrap: str, made: str) -> None:
    """Batches that the topic does not take whole come in order too."""
    from raylog.client import Resource, ResourceType

    with Admin(bootstrap) as admin:
        admin.alter_configs(Resource(ResourceType.TOPIC, made), {"max.message.bytes": "20000"})

        def is_set() -> bool:
            entries = admin.describe_configs(Resource(ResourceType.TOPIC, made))
            return any(entry.value == "20000" for entry in entries)

        eventually(is_set, "the broker follows the controller")
    rows = [b"%05d" % number * 20 for number in range(2_000)]
    body = encode_records([Record(0, 7, None, row, []) for row in rows[1_500:]], range(500), 7)
    with Producer(bootstrap, linger_ms=100) as producer:
        assert producer.send_rows(made, rows[:1_500], timestamp_ms=7, partition=1) == 1_500
        producer._producer.append_batch(made, 1, body, 500, 7, 7)
    assert producer.statistics().splits > 0
    assert producer.statistics().errors == 0
    for read in (by_confluent, by_kafka_python):
        assert [one[3] for one in read(bootstrap, made, 2_000)] == rows


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_and_callbacks(bootstrap: str, made: str, acks: str) -> None:
    ends: list[tuple[RecordMetadata, Exception | None]] = []

    with Producer(bootstrap) as first:  # nobody hears that a leader is not ready with acks=0
        for partition in range(PARTITIONS):
            first.send_and_wait(made, b"first", partition=partition)

    async def work() -> None:
        async with AsyncProducer(bootstrap, acks=acks, linger_ms=1) as producer:
            for number in range(300):
                await producer.send(
                    made,
                    b"%d" % number,
                    partition=number % PARTITIONS,
                    on_delivery=lambda *end: ends.append(end),
                )

    asyncio.run(asyncio.wait_for(work(), 60))
    assert [failure for _, failure in ends] == [None] * 300
    for partition in range(PARTITIONS):
        offsets = [metadata.offset for metadata, _ in ends if metadata.partition == partition]
        assert offsets == ([-1] * 100 if acks == "0" else list(range(1, 101)))
    found = by_confluent(bootstrap, made, 303)
    for partition in range(PARTITIONS):
        values = [one[3] for one in found if one[0] == partition]
        assert values[1:] == [b"%d" % number for number in range(partition, 300, PARTITIONS)]
