"""What a client interceptor is (KIP-42): it sees records when they are sent and when they are read.

A client takes interceptors as objects, or by name: a package registers a class that is made without
arguments.

    [project.entry-points."raylog.client.interceptors"]
    audit = "my_package.audit:AuditInterceptor"

Interceptors run in the order given, each on what the one before it returned. What one raises is
logged and the record goes on as it was, as in Kafka's clients: an interceptor never loses a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from raylog.client.admin.groups import CommittedOffset
    from raylog.client.cluster import TopicPartition

ENTRY_POINT_GROUP = "raylog.client.interceptors"


class ProducerRecord(NamedTuple):
    """A record as the caller gave it: before serializers and the partitioner."""

    topic: str
    value: object
    key: object = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    """-1 if unknown: acks=0, or a repeat of a batch that the broker no longer remembers."""
    timestamp_ms: int
    """The record's own, or the broker's time where the topic says LogAppendTime."""


class ConsumerRecord(NamedTuple):
    """One record as it was read: key and value are what the deserializers returned."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: object
    value: object
    headers: Sequence[tuple[str, bytes | None]]


class ClientInterceptor:
    """Inherit from it: what is not overridden lets everything pass."""

    def configure(self, settings: Mapping[str, object]) -> None:
        """Take the client's settings, by Kafka's names; raise ValueError to refuse them."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """See a record before it is serialized; called by the thread that sends."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        """See a record's end; the offset is -1 if it failed. Called by the sender's thread."""

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """See records before `poll` returns them."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """See offsets that were committed."""

    def close(self) -> None:
        """Release what is held; called when the client closes."""
