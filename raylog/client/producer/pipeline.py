"""The steps of a record before it is collected: interceptors, serializers, a partitioner.

A producer with none of them has no pipeline; its records go straight to the accumulator.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from raylog.client.errors import ClientError
from raylog.client.interception import Chain
from raylog.client.interceptors import ProducerRecord, RecordMetadata
from raylog.client.producer.batch import Headers, Listener
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.partitioner import Partitioner
from raylog.client.producer.reports import Observer
from raylog.client.serializers import Serializer


class Serialized(NamedTuple):
    """A serialized record, on its way to the accumulator."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int | None
    partition: int | None
    given: ProducerRecord
    """The record before serialization."""
    listener: Listener | None


class Pipeline:
    """The steps of one producer, in this order. Safe for use by several threads."""

    def __init__(
        self,
        producer: ProducerCore,
        chain: Chain,
        key_serializer: Serializer[Any] | None,
        value_serializer: Serializer[Any] | None,
        partitioner: Partitioner | None,
    ) -> None:
        self.is_per_record = bool(chain or partitioner)
        """Whether each record must go through the pipeline alone."""
        self._producer = producer
        self._chain = chain
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self.partitioner = partitioner

    def serialized(self, record: ProducerRecord, listener: Listener | None) -> Serialized:
        """Run interceptors and serializers; a serializer's exception is passed on."""
        if self._chain:
            record = self._chain.on_send(record)
            listener = self._acknowledging(listener)
        try:
            key = self.serialized_key(record.topic, record.key, record.headers)
            value = self.serialized_value(record.topic, record.value, record.headers)
        except Exception as error:
            self._refused(record, error)
            raise
        return Serialized(
            record.topic,
            value,
            key,
            record.headers,
            record.timestamp_ms,
            record.partition,
            record,
            listener,
        )

    def append(self, record: Serialized) -> bool:
        """Choose the partition and add to the accumulator; raises like ProducerCore.append."""
        topic, value, key, headers, timestamp_ms, partition, given, listener = record
        if partition is None and self.partitioner is not None:
            partitions = self._producer.partitions(topic)
            chosen = self.partitioner(topic, key, given.key, given.value, partitions)
            partition = _checked(chosen, topic, len(partitions))
        return self._producer.append(topic, value, key, headers, timestamp_ms, partition, listener)

    def refused(self, record: Serialized, error: Exception) -> None:
        """Tell interceptors about a record that was not accepted."""
        self._refused(record.given, error)

    def serialized_key(self, topic: str, key: object, headers: Headers) -> bytes | None:
        """Return the bytes of a key."""
        if key is None or self._key_serializer is None:
            return key  # type: ignore[return-value]  # the core rejects other types
        return self._key_serializer(topic, key, headers)

    def serialized_value(self, topic: str, value: object, headers: Headers) -> bytes | None:
        """Return the bytes of a value."""
        if value is None or self._value_serializer is None:
            return value  # type: ignore[return-value]  # as above
        return self._value_serializer(topic, value, headers)

    def close(self) -> None:
        """Close the interceptors."""
        self._chain.close()

    def _acknowledging(self, listener: Listener | None) -> Listener:
        """Return a listener that first tells interceptors of the result, then calls `listener`."""
        chain = self._chain
        if listener is None:
            return Observer(chain.on_acknowledgement)

        def acknowledged(metadata: RecordMetadata, failure: Exception | None) -> None:
            chain.on_acknowledgement(metadata, failure)
            listener(metadata, failure)

        return acknowledged

    def _refused(self, record: ProducerRecord, error: Exception) -> None:
        if self._chain:
            partition = -1 if record.partition is None else record.partition
            nowhere = RecordMetadata(record.topic, partition, -1, -1)
            self._chain.on_acknowledgement(nowhere, error)


def _checked(chosen: int, topic: str, count: int) -> int:
    """Return a partitioner's result as an int; raises ClientError if it is not a partition."""
    try:
        partition = operator.index(chosen)
    except TypeError:
        partition = -1
    if not 0 <= partition < count:
        raise ClientError(
            f"expected the partitioner to return one of {count} partitions of {topic!r}, "
            f"found {chosen!r}"
        )
    return int(partition)
