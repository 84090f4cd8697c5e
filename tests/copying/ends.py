"""The two ends of the copy job: the producer of the source, and the reader of the sink."""

from __future__ import annotations

import time
from typing import Generic, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.librdkafka import PASSING, QUICK
from tests.support.ray_clusters import DEADLINE_S
from tests.support.working import Working

IN_FLIGHT_MAX = 20_000
STEP_S = 0.02


class Taker(Protocol):
    """A judge of records, which come in order."""

    def take(self, partition: int, offset: int, value: bytes) -> None:
        """Judge one record."""


J = TypeVar("J", bound=Taker)


class Source(Working):
    """An idempotent producer that writes 0, 1, 2, … to each partition, at a fixed rate."""

    def __init__(
        self, bootstrap: str, topic: str, *, partitions: int, records: int, records_per_s: float
    ) -> None:
        super().__init__()
        self.acknowledged = 0
        self.sent = {
            partition: len(range(partition, records, partitions)) for partition in range(partitions)
        }
        """Partition to the number of records that it has in the end."""
        self.records = records
        self._partitions = partitions
        self._topic = topic
        self._records_per_s = records_per_s
        self._producer = Producer(
            QUICK
            | {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": "true",
                "linger.ms": "5",
                "message.timeout.ms": str(int(DEADLINE_S * 1000)),
            }
        )

    @property
    def is_written(self) -> bool:
        """Whether everything is acknowledged."""
        return self.acknowledged == self.records

    def work(self) -> None:
        """Write all records, or until `ending`."""
        began, written = time.monotonic(), 0
        while written < self.records and not self.ending.is_set():
            due = min(self.records, int((time.monotonic() - began) * self._records_per_s))
            for number in range(written, min(due, written + IN_FLIGHT_MAX - len(self._producer))):
                index, partition = divmod(number, self._partitions)
                value = str(index).encode()
                self._producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._delivered
                )
                written = number + 1
            self._producer.poll(STEP_S)
        while not (self.is_written or self.failures or self.ending.is_set()):
            self._producer.poll(STEP_S)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(f"the source was not written: {error}")


def _sink_consumer(bootstrap: str, topic: str, partitions: int) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "none",
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": "true",
        "fetch.wait.max.ms": "100",
    }
    consumer = Consumer(settings | QUICK)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    return consumer


class SinkReader(Working, Generic[J]):
    """A read_committed consumer of the whole sink, which passes all records to a judge."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, judge: J) -> None:
        super().__init__()
        self.judge = judge
        self.seen = 0
        self.ended: set[int] = set()
        """Partitions whose end was reached."""
        self.silence_s = 0.0
        """The longest time without a record."""
        self._consumer = _sink_consumer(bootstrap, topic, partitions)
        self._last_at = time.monotonic()

    def work(self) -> None:
        """Read until `ending`."""
        while not self.ending.is_set():
            self._take(self._consumer.consume(2_000, 0.1))
        self._consumer.close()

    def _take(self, messages: list[Message]) -> None:
        before = self.seen
        for message in messages:
            error = message.error()
            if error is None:
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert value is not None
                self.judge.take(_partition(message), offset, value)
                self.seen += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self.ended.add(_partition(message))
            elif error.code() not in PASSING:
                self.failures.append(f"the reader was told {error}")
        if self.seen > before:
            now = time.monotonic()
            self.silence_s = max(self.silence_s, now - self._last_at)
            self._last_at = now


def _partition(message: Message) -> int:
    found = message.partition()
    assert found is not None
    return found
