"""Schemas and traces from a producer to a consumer, each with its own registry client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from raylog.client import Consumer, Producer
from raylog.client.consumer.decoding import DeserializationFailed
from raylog.client.interceptors import ConsumerRecord
from raylog.client.opentelemetry import OpenTelemetryInterceptor
from raylog.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    DecodingFailed,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from tests.support.protos import message
from tests.worlds.servers import registry as fake_registry
from tests.worlds.servers.registry import FakeRegistry

USER = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry.running() as fake:
        yield fake


def read(consumer: Consumer[Any, Any], topic: str, count: int) -> list[ConsumerRecord[Any, Any]]:
    consumer.subscribe([topic])
    found: list[ConsumerRecord[Any, Any]] = []
    while len(found) < count:
        found += consumer.poll_records(timeout_ms=500)
    return found


def test_from_a_producer_to_a_consumer(bootstrap: str, fake: FakeRegistry) -> None:
    kind = message("shop.Order")
    with SchemaRegistry(fake.url) as writing, SchemaRegistry(fake.url) as reading:
        with Producer(
            bootstrap,
            key_serializer=AvroSerializer(writing, '"string"', key=True),
            value_serializer=ProtobufSerializer(writing, kind),
        ) as producer:
            producer.send("typed", kind(id="7"), "a")
            producer.send("typed", None, "a")
        with Consumer(
            bootstrap,
            group_id="typed",
            key_deserializer=AvroDeserializer(reading, key=True),
            value_deserializer=ProtobufDeserializer(reading, kind),
        ) as consumer:
            order, gone = read(consumer, "typed", 2)
    assert order.value is not None
    assert (order.key, order.value.id) == ("a", "7")
    assert (gone.key, gone.value) == ("a", None)


def test_a_record_that_does_not_decode_is_named_and_may_be_passed(
    bootstrap: str, fake: FakeRegistry
) -> None:
    with SchemaRegistry(fake.url) as registry:
        with Producer(bootstrap) as producer:
            good = AvroSerializer(registry, USER)("poison", {"name": "x"})
            producer.send_and_wait("poison", b"plain text", partition=0)
            producer.send_and_wait("poison", good, partition=0)
        with Consumer(
            bootstrap, group_id="poison", value_deserializer=AvroDeserializer(registry)
        ) as consumer:
            with pytest.raises(DeserializationFailed) as failed:
                read(consumer, "poison", 1)
            assert isinstance(failed.value.__cause__, DecodingFailed)
            consumer.seek(failed.value.partition, failed.value.offset + 1)
            (record,) = consumer.poll_records(timeout_ms=10_000)
    assert record.value == {"name": "x"}


def test_a_trace_goes_on_in_the_consumer(bootstrap: str) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with Producer(bootstrap, interceptors=[OpenTelemetryInterceptor(provider)]) as producer:
        producer.send_and_wait("traced", b"v")
    interceptor = OpenTelemetryInterceptor(provider)
    with Consumer(bootstrap, group_id="tracing", interceptors=[interceptor]) as consumer:
        (record,) = read(consumer, "traced", 1)
    assert [name for name, _ in record.headers] == ["traceparent"]
    sent, polled = (span for span in spans.get_finished_spans() if span.name.endswith(" traced"))
    assert sent.context is not None
    assert [link.context.span_id for link in polled.links] == [sent.context.span_id]
    assert polled.attributes is not None
    assert polled.attributes["messaging.consumer.group.name"] == "tracing"
