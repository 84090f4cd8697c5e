"""Interceptors with unmodified clients: idempotent producers whose records are dropped, codecs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

aiokafka = pytest.importorskip("aiokafka")
confluent_kafka = pytest.importorskip("confluent_kafka")
kafka = pytest.importorskip("kafka")

from confluent_kafka.admin import (  # noqa: E402 - behind the skips
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from raylog.actors.interceptors.api import ENTRY_POINT_GROUP  # noqa: E402 - behind the skips
from raylog.testing import EmbeddedBroker  # noqa: E402 - behind the skips
from tests.support.plugins import installed  # noqa: E402 - behind the skips

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "masking-interceptor"
CODE = """
    import time
    from raylog.actors.interceptors.api import Interceptor

    class DropOdd(Interceptor):
        name = "drop-odd"
        def on_produce(self, topic, records):
            return [one for one in records if int(one.value) % 2 == 0]

    class DropAll(Interceptor):
        name = "drop-all"
        def on_produce(self, topic, records):
            return []

    class HideOdd(Interceptor):
        name = "hide-odd"
        def on_fetch(self, topic, records):
            return [one for one in records if int(one.value) % 2 == 0]

    class Sleepy(Interceptor):
        name = "sleepy"
        def on_produce(self, topic, records):
            time.sleep(0.002)
            return [one._replace(headers=(("seen", b"1"),)) for one in records]

    class Broken(Interceptor):
        name = "broken"
        def on_produce(self, topic, records):
            raise RuntimeError("out of order")
"""
ENTRIES = {
    "drop-odd": "DropOdd",
    "drop-all": "DropAll",
    "hide-odd": "HideOdd",
    "sleepy": "Sleepy",
    "broken": "Broken",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("plugins")
    mask = {"mask": "Mask"}
    with (
        installed(directory / "own", ENTRY_POINT_GROUP, CODE, ENTRIES),
        installed(
            directory / "mask",
            ENTRY_POINT_GROUP,
            (EXAMPLE / "raylog_masking.py").read_text(),
            mask,
            package="raylog_masking",
        ),
        EmbeddedBroker() as running,
    ):
        yield running.bootstrap


def make(broker: str, topic: str, config: Mapping[str, str], partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    new = NewTopic(topic, partitions, 1, config=dict(config))
    admin.create_topics([new])[topic].result(10)


def alter(broker: str, topic: str, **changes: str) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in changes.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker})
    admin.incremental_alter_configs([resource])[resource].result(10)


def send(broker: str, topic: str, values: list[bytes], **settings: Any) -> list[Any]:
    """By librdkafka; each record's offset or error."""
    found: list[Any] = [None] * len(values)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker, "linger.ms": 2, "batch.num.messages": 7} | settings
    )
    for index, value in enumerate(values):

        def delivered(error: Any, message: Any, index: int = index) -> None:
            found[index] = message.offset() if error is None else error

        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    return found


def read_confluent(broker: str, topic: str, end: int) -> list[tuple[int, bytes | None]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker, "group.id": topic, "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes | None]] = []
    while True:
        message = consumer.poll(20)
        assert message is not None, "neither a record nor the end"
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            assert message.offset() == end
            consumer.close()
            return found
        found.append((message.offset(), message.value()))


def read_kafka_python(broker: str, topic: str, end: int) -> list[tuple[int, bytes | None]]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker, auto_offset_reset="earliest")
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found = []
    while consumer.position(partition) < end:
        for records in consumer.poll(1_000).values():
            found += [(record.offset, record.value) for record in records]
    consumer.close()
    return found


def read_aiokafka(broker: str, topic: str, end: int) -> list[tuple[int, bytes | None]]:
    async def read() -> list[tuple[int, bytes | None]]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            found = []
            while await consumer.position(partition) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [(record.offset, record.value) for record in records]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


READERS = {
    "confluent-kafka": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
}

READS = [
    (reader, codec)
    for reader in READERS
    for codec in CODECS
    if (reader, codec) != ("kafka-python", "snappy")  # wants a library that is not installed
]


@pytest.mark.parametrize(("reader", "codec"), READS)
def test_an_idempotent_producer_over_dropped_records(
    broker: str, topic: str, codec: str, reader: str
) -> None:
    make(broker, topic, {"raylog.interceptors": "drop-odd"})
    values = [b"%d" % number for number in range(100)]
    offsets = send(broker, topic, values, **{"enable.idempotence": True, "compression.type": codec})
    assert offsets == list(range(100))
    expected = [(number, b"%d" % number) for number in range(0, 100, 2)]
    assert READERS[reader](broker, topic, 100) == expected


@pytest.mark.parametrize(("reader", "codec"), READS)
def test_readers_get_past_batches_without_records(
    broker: str, topic: str, codec: str, reader: str
) -> None:
    settings = {"enable.idempotence": True, "compression.type": codec}
    make(broker, topic, {"raylog.interceptors": "drop-all"})
    assert send(broker, topic, [b"1"] * 20, **settings) == list(range(20))
    alter(broker, topic, **{"raylog.interceptors": "drop-odd"})
    assert send(broker, topic, [b"2"] * 2, **settings) == [20, 21]
    alter(broker, topic, **{"raylog.interceptors": "drop-all"})
    assert send(broker, topic, [b"3"] * 20, **settings) == list(range(22, 42))
    assert READERS[reader](broker, topic, 42) == [(20, b"2"), (21, b"2")]


@pytest.mark.parametrize(("reader", "codec"), READS)
def test_fetch_interceptor_may_hide_stored_records(
    broker: str, topic: str, codec: str, reader: str
) -> None:
    make(broker, topic, {"raylog.interceptors": "hide-odd"})
    values = [b"%d" % number for number in [*range(30), *[1] * 20]]
    send(broker, topic, values, **{"compression.type": codec})
    expected = [(number, b"%d" % number) for number in range(0, 30, 2)]
    assert READERS[reader](broker, topic, 50) == expected
    alter(broker, topic, **{"raylog.interceptors": ""})
    assert len(READERS[reader](broker, topic, 50)) == 50


def test_the_masking_example(broker: str, topic: str) -> None:
    make(broker, topic, {"raylog.interceptors": "mask", "raylog.interceptor.mask.fields": "card"})
    payment = json.dumps({"id": 1, "cards": [{"card": "4111", "bank": "x"}]}).encode()
    send(broker, topic, [payment, b'{"id": 2}', b"card 4111"], **{"compression.type": "zstd"})
    read = [value or b"" for _, value in read_confluent(broker, topic, 3)]
    assert json.loads(read[0]) == {"id": 1, "cards": [{"card": "***", "bank": "x"}]}
    assert read[1:] == [b'{"id": 2}', b"***"]
    alter(broker, topic, **{"raylog.interceptor.mask.at.rest": "true"})
    send(broker, topic, [payment])
    alter(broker, topic, **{"raylog.interceptors": ""})
    read = [value or b"" for _, value in read_confluent(broker, topic, 4)]
    assert read[0] == payment
    assert b"4111" not in read[3]


def test_kafka_python_learns_why_a_record_is_refused(broker: str, topic: str) -> None:
    option = "raylog.interceptor.json-schema.schema"
    schema = json.dumps({"type": "object", "required": ["id"]})
    make(broker, topic, {"raylog.interceptors": "json-schema", option: schema})
    producer = kafka.KafkaProducer(bootstrap_servers=broker, enable_idempotence=False)
    assert producer.send(topic, b'{"id": 1}').get(10).offset == 0
    with pytest.raises(kafka.errors.KafkaError) as refused:
        producer.send(topic, b"{}").get(10)
    assert isinstance(refused.value, kafka.errors.InvalidRecordError)
    assert producer.send(topic, b'{"id": 2}').get(10).offset == 1
    producer.close()
    assert [value for _, value in read_kafka_python(broker, topic, 2)] == [
        b'{"id": 1}',
        b'{"id": 2}',
    ]


def test_wrong_settings_are_refused_with_the_nearest_name(broker: str, topic: str) -> None:
    with pytest.raises(confluent_kafka.KafkaException, match="did you mean json-schema"):
        make(broker, topic, {"raylog.interceptors": "jsonschema"})
    with pytest.raises(confluent_kafka.KafkaException, match="a schema is needed"):
        make(broker, topic, {"raylog.interceptors": "json-schema"})


def test_order_is_kept_through_threads_and_failures(broker: str, topic: str) -> None:
    make(broker, topic, {"raylog.interceptors": "sleepy"})
    values = [b"%d" % number for number in range(3_000)]
    settings = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 5}
    assert send(broker, topic, values, **settings) == list(range(3_000))
    assert read_confluent(broker, topic, 3_000) == list(enumerate(values))
    alter(broker, topic, **{"raylog.interceptors": "sleepy,broken"})
    errors = send(broker, topic, [b"1"])
    assert errors[0].code() == confluent_kafka.KafkaError.UNKNOWN
    alter(broker, topic, **{"raylog.interceptors": ""})
    assert send(broker, topic, [b"1"]) == [3_000]
