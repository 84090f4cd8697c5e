"""Schemas in a producer: keys and values in the wire format, ids in headers, tombstones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.client import BlockingClient, ConsumerSettings, Producer, TopicPartition
from raylog.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    EncodingFailed,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    SchemaRegistry,
)
from raylog.client.schemas.framing import KEY_HEADER, VALUE_HEADER
from raylog.wire.records import Record
from tests.worlds.servers import registry as fake_registry

USER = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with fake_registry.running() as fake, SchemaRegistry(fake.url) as client:
        yield client


def read(bootstrap: str, topic: str, count: int) -> list[Record]:
    with BlockingClient(bootstrap) as client:
        consumer = client.consumer(ConsumerSettings())
        partitions = client.describe_topic(topic).partitions
        consumer.assign({TopicPartition(topic, number): 0 for number in partitions})
        found: list[Record] = []
        while len(found) < count:
            found += [record for group in consumer.poll(500) for record in group.records]
    return found


def test_keys_and_values_and_tombstones(bootstrap: str, registry: SchemaRegistry) -> None:
    with Producer(
        bootstrap,
        key_serializer=AvroSerializer(registry, '"string"', key=True),
        value_serializer=JsonSchemaSerializer(registry, '{"type":"object"}'),
    ) as producer:
        producer.send("both", {"n": 1}, "a")
        producer.send("both", None, "a")
    first, gone = read(bootstrap, "both", 2)
    assert (first.key, gone.value) == (gone.key, None)
    assert first.key is not None
    assert first.value is not None
    assert AvroDeserializer(registry, key=True)("both", first.key) == "a"
    assert JsonSchemaDeserializer(registry)("both", first.value) == {"n": 1}
    assert sorted(registry.subjects()) == ["both-key", "both-value"]


def test_ids_in_headers(bootstrap: str, registry: SchemaRegistry) -> None:
    headers: list[tuple[str, bytes | None]] = [("own", b"1")]
    with Producer(
        bootstrap,
        key_serializer=AvroSerializer(registry, '"int"', key=True, schema_id_place="header"),
        value_serializer=AvroSerializer(registry, USER, schema_id_place="header"),
    ) as producer:
        producer.send("headed", {"name": "x"}, 5, headers)
        producer.send("headed", {"name": "y"}, 5, headers)
        with pytest.raises(EncodingFailed, match="expected headers as a list"):
            producer.send("headed", {"name": "z"}, 5)
    for record, name in zip(read(bootstrap, "headed", 2), "xy", strict=True):
        assert [header[0] for header in record.headers] == ["own", KEY_HEADER, VALUE_HEADER]
        assert (record.key, record.value) == (b"\x0a", b"\x02" + name.encode())
        value = AvroDeserializer(registry)("headed", record.value or b"", record.headers)
        assert value == {"name": name}


def test_a_value_that_does_not_fit_is_reported_to_who_sends_it(
    bootstrap: str, registry: SchemaRegistry
) -> None:
    with Producer(bootstrap, value_serializer=AvroSerializer(registry, USER)) as producer:
        with pytest.raises(EncodingFailed, match="does not fit its Avro schema User"):
            producer.send("fits", {"nick": "x"})
        producer.send("fits", {"name": "x"})
    (record,) = read(bootstrap, "fits", 1)
    assert AvroDeserializer(registry)("fits", record.value or b"") == {"name": "x"}
