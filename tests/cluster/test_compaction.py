"""Readers of a compacted topic get the latest record of every key, whatever was removed."""

import asyncio
from collections.abc import Iterator

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from raylog.testing import EmbeddedBroker
from tests.support.ray_clusters import wait_until

Found = list[tuple[int, bytes | None, bytes | None]]
RECORDS = 20_000
KEYS = 97
CLEANED_S = 60.0
"""Records are cleaned once they are known to be durable, which a checkpoint notes every 10 s."""


@pytest.fixture(scope="module")
def compacted() -> Iterator[tuple[str, dict[bytes, tuple[int, bytes | None]]]]:
    """Address of a broker with a topic `c` that was cleaned, and the latest offset and value."""
    with EmbeddedBroker(settings={"log.cleaner.backoff.ms": "100"}) as broker:
        config = {
            "cleanup.policy": "compact",
            "internal.segment.bytes": "20000",
            "min.cleanable.dirty.ratio": "0.01",
        }
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("c", 1, config=config)])["c"].result()
        latest: dict[bytes, tuple[int, bytes | None]] = {}
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "batch.num.messages": 20,
                "compression.type": "lz4",
                "enable.idempotence": True,
            }
        )
        for number in range(RECORDS):
            key = b"k%d" % (number * number % KEYS)
            value = b"v%d" % number if number % 13 else None
            latest[key] = number, value
            producer.produce("c", value, key)
            producer.poll(0)
        producer.flush()
        wait_until(lambda: len(confluent(broker.bootstrap)) < RECORDS // 4, "compaction", CLEANED_S)
        yield broker.bootstrap, latest


def confluent(bootstrap: str) -> Found:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("c", 0, 0)])
    found: Found = []
    while (message := consumer.poll(10)) is not None:
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        offset = message.offset()
        assert offset is not None
        found.append((offset, message.key(), message.value()))
    consumer.close()
    return found


def aio(bootstrap: str) -> Found:
    async def read() -> Found:
        partition = aiokafka.TopicPartition("c", 0)
        found: Found = []
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            while await consumer.position(partition) < RECORDS:
                for records in (await consumer.getmany(timeout_ms=1_000)).values():
                    found += [(record.offset, record.key, record.value) for record in records]
        return found

    return asyncio.run(read())


@pytest.mark.parametrize("read", [confluent, pytest.param(aio, marks=pytest.mark.long)])
def test_every_client_reads_past_what_is_gone(
    compacted: tuple[str, dict[bytes, tuple[int, bytes | None]]], read: object
) -> None:
    bootstrap, latest = compacted
    assert callable(read)
    found = read(bootstrap)
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    assert {key: (offset, value) for offset, key, value in found} == latest
