"""Turning fetched records into the application's: deserializers and interceptors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Generic, cast

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.fetched import ConsumedRecords
from raylog.client.errors import ClientError
from raylog.client.interception import Chain
from raylog.client.interceptors import ConsumerRecord
from raylog.client.serializers import Deserializer
from raylog.wire.collecting import without_collector
from raylog.wire.records import Record

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

_new = tuple.__new__  # half the cost of the generated constructor


class DeserializationFailed(ClientError):
    """A deserializer raised `__cause__`. The position is still at that record: seek past it."""

    def __init__(self, message: str, key: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.partition = key
        self.offset = offset


class Decoding(Generic[K, V]):
    """Converts one consumer's records for the application."""

    def __init__(
        self,
        key_deserializer: Deserializer[K] | None,
        value_deserializer: Deserializer[V] | None,
        interceptors: Chain,
    ) -> None:
        """A deserializer of None leaves bytes unchanged."""
        self._key = key_deserializer
        self._value = value_deserializer
        self._interceptors = interceptors

    def records(
        self,
        groups: Sequence[ConsumedRecords],
        seek: Callable[[TopicPartition, int], None],
    ) -> list[ConsumerRecord[K, V]]:
        """Return the application's records.

        If a deserializer raises, `seek` moves back to that record, and the records before it are
        returned; if there are none, raise DeserializationFailed.
        """
        found: list[ConsumerRecord[K, V]] = []
        failure: DeserializationFailed | None = None
        for group in groups:
            if self._key is None and self._value is None:
                found += self._as_they_are(group)
                continue
            try:
                for record in group.records:
                    found.append(self._record(group.topic, group.partition, record))
            except DeserializationFailed as error:
                seek(error.partition, error.offset)
                failure = failure or error
        if failure is not None and not found:
            raise failure
        if self._interceptors:
            seen = self._interceptors.on_consume(
                cast("list[ConsumerRecord[object, object]]", found)
            )
            return cast("list[ConsumerRecord[K, V]]", list(seen))
        return found

    @staticmethod
    def _as_they_are(group: ConsumedRecords) -> list[ConsumerRecord[K, V]]:
        """Convert records without deserializers: add topic and partition to each `Record`."""
        fields = map((group.topic, group.partition).__add__, group.records)
        with without_collector():
            return list(map(_new, repeat(ConsumerRecord), fields))

    def _record(self, topic: str, partition: int, record: Record) -> ConsumerRecord[K, V]:
        offset, timestamp, key, value, headers = record
        try:
            decoded_key: object = key
            if self._key is not None and key is not None:
                decoded_key = self._key(topic, key, headers)
            decoded_value: object = value
            if self._value is not None and value is not None:
                decoded_value = self._value(topic, value, headers)
        except Exception as error:
            raise DeserializationFailed(
                f"{topic}-{partition} at offset {offset}: {type(error).__name__}: {error}",
                TopicPartition(topic, partition),
                offset,
            ) from error
        return ConsumerRecord(
            topic,
            partition,
            offset,
            timestamp,
            cast("K | None", decoded_key),
            cast("V | None", decoded_value),
            headers,
        )


def decoding(key: object, value: object, interceptors: Chain) -> Decoding[K, V]:
    """Create a `Decoding` from a constructor's arguments; raise InvalidSetting."""
    if key is not None or value is not None:
        from raylog.client.callables import check_serializers

        check_serializers(key_deserializer=key, value_deserializer=value)
    return Decoding(
        cast("Deserializer[K] | None", key), cast("Deserializer[V] | None", value), interceptors
    )
