"""One call of the user's function: its argument, and the outcome of what it returns or raises."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from raylog.client.cluster import TopicPartition
from raylog.client.interceptors import ConsumerRecord, ProducerRecord
from raylog.client.parallel.effects import Done, Outcome
from raylog.client.parallel.letters import as_first_read, size_of
from raylog.client.parallel.policy import Failure, FailureKind
from raylog.client.serializers import Deserializer, Headers, Serializer
from raylog.wire.record import Record

_TRACEBACK_LINES = 30


@dataclass(frozen=True, slots=True)
class Job:
    """The function with its serializers and limits; sent to processes and actors as a whole.

    Each run decodes the records again, so a retry never sees what an earlier run did to a record.
    """

    fn: Callable[[Any], Any]
    as_batch: bool = False
    """Whether the function takes a list of records."""
    keeps_results: bool = False
    """Whether the function's results are produced."""
    key_deserializer: Deserializer[object] | None = None
    value_deserializer: Deserializer[object] | None = None
    key_serializer: Serializer[Any] | None = None
    value_serializer: Serializer[Any] | None = None
    retry_topics: frozenset[str] = frozenset()
    """Retry topics: their records are passed with their original topic, partition and offset."""
    sink: str | None = None
    """The topic of results that name none, and of plain values.

    A plain value gets the key of its source record, except in batches.
    """
    record_bytes_max: int = 1_000_000
    """A larger result fails its own record, rather than everything sent together with it."""

    def run(self, key: TopicPartition, records: Sequence[Record]) -> Outcome:
        """Call the function; turn any exception into a Failure."""
        try:
            result = self.fn(self._argument(key, records))
            return Done(self._outputs(result, records[0].key))
        except BaseException as raised:  # noqa: BLE001  # not even SystemExit may end a worker
            return failure_of(raised)

    async def run_async(self, key: TopicPartition, records: Sequence[Record]) -> Outcome:
        """Like `run`, for a coroutine function."""
        try:
            result = await self.fn(self._argument(key, records))
            return Done(self._outputs(result, records[0].key))
        except BaseException as raised:  # noqa: BLE001  # as above, and cancellation
            return failure_of(raised)

    def _argument(self, key: TopicPartition, records: Sequence[Record]) -> object:
        """Build the function's argument."""
        shown = [self._shown(key, record) for record in records]
        return shown if self.as_batch else shown[0]

    def _shown(self, key: TopicPartition, record: Record) -> ConsumerRecord:
        if key.topic in self.retry_topics:
            key, record = as_first_read(key, record)
        headers = tuple(record.headers)
        made: list[object] = []
        for data, decode in (
            (record.key, self.key_deserializer),
            (record.value, self.value_deserializer),
        ):
            made.append(
                data if data is None or decode is None else decode(key.topic, data, headers)
            )
        return ConsumerRecord(
            key.topic, key.partition, record.offset, record.timestamp, made[0], made[1], headers
        )

    def _outputs(self, result: object, key: bytes | None) -> tuple[ProducerRecord, ...]:
        """Convert the function's result to records to produce."""
        if not self.keeps_results or result is None:
            return ()
        is_one = isinstance(result, ProducerRecord | bytes | str) or not isinstance(
            result, Iterable
        )
        several: Iterable[object] = (result,) if is_one else result  # type: ignore[assignment]  # an Iterable unless it is one
        return tuple(self._output(one, key) for one in several)

    def _output(self, one: object, default_key: bytes | None) -> ProducerRecord:
        if not isinstance(one, ProducerRecord):
            if self.sink is None:
                raise TypeError(
                    f"expected ProducerRecord or None from the function, found {type(one).__name__}"
                )
            made = ProducerRecord(self.sink, one, None if self.as_batch else default_key)
            return self._checked(made, made.key)
        key = _bytes("key", one.topic, one.key, one.headers, self.key_serializer)
        return self._checked(one, key)

    def _checked(self, one: ProducerRecord, key: object) -> ProducerRecord:
        topic = one.topic or self.sink
        if not topic:
            raise ValueError("expected a topic in a ProducerRecord, found none")
        headers = tuple(one.headers)
        value = _bytes("value", topic, one.value, headers, self.value_serializer)
        made = one._replace(topic=topic, key=key, value=value, headers=headers)
        if size_of(made) > self.record_bytes_max:
            raise ValueError(
                f"expected a result of at most {self.record_bytes_max} bytes "
                f"(max_record_bytes), found {size_of(made)}"
            )
        return made


def failure_of(raised: BaseException, kind: FailureKind = FailureKind.RAISED) -> Failure:
    """Describe an exception; its own code may be broken, and its `__str__` may raise."""
    raised_type = type(raised)
    name = f"{raised_type.__module__}.{raised_type.__qualname__}".removeprefix("builtins.")
    try:
        text = str(raised)
        lines = traceback.format_exception(raised)
    except Exception:  # noqa: BLE001  # a __str__ that raises
        text, lines = "(its text cannot be had)", []
    return Failure(kind, name, text, "".join(lines[-_TRACEBACK_LINES:]))


def _bytes(
    what: str,
    topic: str,
    data: object,
    headers: Headers,
    serializer: Serializer[Any] | None,
) -> bytes | None:
    """Serialize a result's key or value."""
    if data is None:
        return None
    if serializer is not None:
        return serializer(topic, data, headers)
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(
        f"expected bytes as the {what} of a result (or a {what}_serializer), "
        f"found {type(data).__name__}"
    )
