"""The client interceptor `opentelemetry`: traces that continue across topics.

    producer = Producer("127.0.0.1:9092", interceptors=["opentelemetry"])

- `send` creates a PRODUCER span for each record and injects its context into the record's headers,
  with the configured propagators (by default W3C's `traceparent` and `tracestate`). The span shows
  when the record was sent, not when it was acknowledged, because the client does not say which
  record an acknowledgement belongs to. A record that fails gets a second span, with an error.
- `poll` creates a CONSUMER span for each topic, linked to the contexts of its records. A span has
  at most 128 links, so a large poll creates several.
- `extract(record)` returns the context in which to process a record.

Attributes follow OpenTelemetry's semantic conventions for messaging. If no spans are recorded,
records pass unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence, Sequence
from typing import Protocol

from raylog.client.interceptors import (
    ClientInterceptor,
    ConsumerRecord,
    ProducerRecord,
    RecordMetadata,
)
from raylog.extras import needs

with needs("opentelemetry", "the interceptor opentelemetry"):
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

__all__ = ["OpenTelemetryInterceptor", "extract"]

LINKS_MAX = 128
"""OpenTelemetry's SDK keeps this many links per span by default."""
_PARTITION = "messaging.destination.partition.id"
_KEY = "messaging.kafka.message.key"

Headers = Sequence[tuple[str, bytes | None]]
_Attributes = dict[str, str | int]


class WithHeaders(Protocol):
    """A record as returned by `poll`."""

    @property
    def headers(self) -> Headers:
        """Return names and values."""


class _Setter(Setter[MutableSequence[tuple[str, bytes | None]]]):
    """Writes a context into a list of headers; replaces headers of the same name."""

    def set(self, carrier: MutableSequence[tuple[str, bytes | None]], key: str, value: str) -> None:
        carrier[:] = [header for header in carrier if header[0] != key]
        carrier.append((key, value.encode()))


class _Getter(Getter[Headers]):
    """Reads a context from a list of headers."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = [
            value.decode("utf-8", "replace")
            for name, value in carrier
            if name == key and value is not None
        ]
        return found or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_SETTER = _Setter()
_GETTER = _Getter()


def extract(record: WithHeaders) -> Context:
    """Return the context in which a record was sent, to process it in.

    with tracer.start_as_current_span("process", context=extract(record)): ...
    """
    return propagate.extract(record.headers, context=Context(), getter=_GETTER)


class OpenTelemetryInterceptor(ClientInterceptor):
    """Creates spans with the tracer of `provider`, or of the global provider."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("raylog", tracer_provider=provider)
        self._client: _Attributes = {}
        self._sending: dict[str, _Attributes] = {}

    def configure(self, settings: Mapping[str, object]) -> None:
        """Keep the ids of the client and its group."""
        for attribute, name in (
            ("messaging.client.id", "client.id"),
            ("messaging.consumer.group.name", "group.id"),
        ):
            value = settings.get(name, settings.get(name.replace(".", "_")))
            if value is not None:
                self._client[attribute] = str(value)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Create a span and inject its context into the headers."""
        attributes = self._sending.get(record.topic)
        if attributes is None:
            attributes = self._sending[record.topic] = self._common("send", "send", record.topic)
        span = self._tracer.start_span(
            f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        if not span.get_span_context().is_valid:
            return record
        if span.is_recording():
            span.set_attributes(_of_sent(record))
        headers = list(record.headers)
        propagate.inject(headers, context=trace.set_span_in_context(span), setter=_SETTER)
        span.end()
        return record._replace(headers=headers)

    def on_acknowledgement(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        """Record an error span for a record that was not written."""
        if failure is None:
            return
        attributes = self._common("send", "send", metadata.topic)
        attributes["error.type"] = f"{type(failure).__module__}.{type(failure).__qualname__}"
        if metadata.partition >= 0:
            attributes[_PARTITION] = str(metadata.partition)
        span = self._tracer.start_span(
            f"send {metadata.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        span.set_status(Status(StatusCode.ERROR, str(failure)))
        span.end()

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """Create a span for each topic, linked to the senders of its records."""
        if not records:
            return records
        first_span = self._polled(records[0].topic)
        if not first_span.is_recording():
            return records
        begun: Span | None = first_span
        topics: dict[str, list[ConsumerRecord]] = {}
        for record in records:
            topics.setdefault(record.topic, []).append(record)
        for topic, of_topic in topics.items():
            for first in range(0, len(of_topic), LINKS_MAX):
                span, begun = begun or self._polled(topic), None
                _describe(span, of_topic[first : first + LINKS_MAX])
                span.end()
        return records

    def _polled(self, topic: str) -> Span:
        """Start a span for records of one topic."""
        attributes = self._common("poll", "receive", topic)
        return self._tracer.start_span(
            f"poll {topic}", kind=SpanKind.CONSUMER, attributes=attributes
        )

    def _common(self, name: str, kind: str, topic: str) -> _Attributes:
        return {
            "messaging.system": "kafka",
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            "messaging.destination.name": topic,
            **self._client,
        }


def _of_sent(record: ProducerRecord) -> _Attributes:
    """Return the attributes of a sent record: its key if it is text, but never its value."""
    attributes: _Attributes = {}
    if record.partition is not None:
        attributes[_PARTITION] = str(record.partition)
    if isinstance(record.key, str):
        attributes[_KEY] = record.key
    elif isinstance(record.key, bytes) and record.key.isascii():
        attributes[_KEY] = record.key.decode()
    if record.value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    elif isinstance(record.value, bytes):
        attributes["messaging.message.body.size"] = len(record.value)
    return attributes


def _describe(span: Span, batch: Sequence[ConsumerRecord]) -> None:
    """Set the number of records and the links to their senders."""
    span.set_attribute("messaging.batch.message_count", len(batch))
    partitions = {record.partition for record in batch}
    if len(partitions) == 1:
        span.set_attribute(_PARTITION, str(partitions.pop()))
    for record in batch:
        sent = trace.get_current_span(extract(record)).get_span_context()
        if sent.is_valid:
            span.add_link(
                sent, {_PARTITION: str(record.partition), "messaging.kafka.offset": record.offset}
            )
