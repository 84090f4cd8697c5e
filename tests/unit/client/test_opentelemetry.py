"""Spans of the interceptor `opentelemetry`, and the contexts it puts into headers."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags

from raylog.client.interceptors import ConsumerRecord, ProducerRecord, RecordMetadata
from raylog.client.opentelemetry import LINKS_MAX, OpenTelemetryInterceptor, extract

Headers = list[tuple[str, bytes | None]]


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(spans: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


@pytest.fixture
def interceptor(provider: TracerProvider) -> OpenTelemetryInterceptor:
    interceptor = OpenTelemetryInterceptor(provider)
    interceptor.configure({"client.id": "c1", "group.id": "g1"})
    return interceptor


def read(headers: Headers, offset: int = 0, topic: str = "t", partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord(topic, partition, offset, 0, None, b"v", headers)


def test_a_record_is_sent_with_the_context_of_its_span(
    interceptor: OpenTelemetryInterceptor, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    given: Headers = [("own", b"1"), ("traceparent", b"stale")]
    with provider.get_tracer("app").start_as_current_span("request") as request:
        sent = interceptor.on_send(ProducerRecord("t", b"value", b"key", given, partition=3))
    assert given == [("own", b"1"), ("traceparent", b"stale")]
    (span, _) = spans.get_finished_spans()
    assert span.context is not None
    assert (span.name, span.kind) == ("send t", SpanKind.PRODUCER)
    assert span.parent == request.get_span_context()
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.client.id": "c1",
        "messaging.consumer.group.name": "g1",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.message.key": "key",
        "messaging.message.body.size": 5,
    }
    flags = span.context.trace_flags
    assert flags & TraceFlags.SAMPLED
    trace_id, span_id = f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"
    assert list(sent.headers) == [
        ("own", b"1"),
        ("traceparent", f"00-{trace_id}-{span_id}-{flags:02x}".encode()),
    ]


def test_consumer_span_links_to_the_producer_span(
    interceptor: OpenTelemetryInterceptor, spans: InMemorySpanExporter
) -> None:
    sent = interceptor.on_send(ProducerRecord("t", b"v"))
    records = [read(list(sent.headers), 7), read([], 8), read([("traceparent", b"\xff")], 9)]
    assert interceptor.on_consume(records) is records
    producing, consuming = spans.get_finished_spans()
    assert (consuming.name, consuming.kind) == ("poll t", SpanKind.CONSUMER)
    assert consuming.attributes is not None
    assert consuming.attributes["messaging.operation.type"] == "receive"
    assert consuming.attributes["messaging.batch.message_count"] == 3
    assert consuming.attributes["messaging.destination.partition.id"] == "0"
    (link,) = consuming.links
    assert producing.context is not None
    assert link.context.trace_id == producing.context.trace_id
    assert link.context.span_id == producing.context.span_id
    assert dict(link.attributes or {}) == {
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 7,
    }


def test_each_topic_has_its_span_and_no_span_loses_links(
    interceptor: OpenTelemetryInterceptor, spans: InMemorySpanExporter
) -> None:
    headers = list(interceptor.on_send(ProducerRecord("t", None)).headers)
    many = [read(headers, offset, partition=offset % 2) for offset in range(LINKS_MAX + 2)]
    interceptor.on_consume([*many, read(headers, topic="other")])
    read_spans = spans.get_finished_spans()[1:]
    assert [(span.name, len(span.links)) for span in read_spans] == [
        ("poll t", LINKS_MAX),
        ("poll t", 2),
        ("poll other", 1),
    ]
    assert all(span.dropped_links == 0 for span in read_spans)
    assert "messaging.destination.partition.id" not in (read_spans[0].attributes or {})


def test_a_record_is_processed_in_the_context_of_its_sender(
    interceptor: OpenTelemetryInterceptor, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    record = read(list(interceptor.on_send(ProducerRecord("t", b"v")).headers))
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span("process", context=extract(record)):
        pass
    sending, processing = spans.get_finished_spans()
    assert processing.parent is not None
    assert sending.context is not None
    assert processing.parent.span_id == sending.context.span_id


def test_a_record_that_failed_has_a_span_with_an_error(
    interceptor: OpenTelemetryInterceptor, spans: InMemorySpanExporter
) -> None:
    interceptor.on_acknowledgement(RecordMetadata("t", 1, 5, 0), None)
    assert not spans.get_finished_spans()
    interceptor.on_acknowledgement(RecordMetadata("t", 1, -1, 0), ValueError("too large"))
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "builtins.ValueError"


def test_where_nothing_records_records_pass_as_they_are() -> None:
    interceptor = OpenTelemetryInterceptor(trace.NoOpTracerProvider())
    record = ProducerRecord("t", b"v")
    assert interceptor.on_send(record) is record
    records = [read([])]
    assert interceptor.on_consume(records) is records


def test_a_trace_that_is_not_sampled_is_passed_on() -> None:
    interceptor = OpenTelemetryInterceptor(TracerProvider(ALWAYS_OFF, shutdown_on_exit=False))
    sent = interceptor.on_send(ProducerRecord("t", b"v"))
    ((name, value),) = sent.headers
    assert name == "traceparent"
    assert value is not None
    assert not int(value[-2:], 16) & TraceFlags.SAMPLED
