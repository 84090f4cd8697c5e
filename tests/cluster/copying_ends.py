"""The two ends of the copy job: who fills the source, and who reads the sink, all the time."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.load import QUICK
from tests.support.ray_clusters import DEADLINE_S

IN_FLIGHT_MAX = 20_000
STEP_S = 0.02
PASSING = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
)
"""What librdkafka reports and then mends by itself."""


class Taker(Protocol):
    """Judges records, in the order in which they come."""

    def take(self, partition: int, offset: int, value: bytes) -> None:
        """One record."""


J = TypeVar("J", bound=Taker)


class Working(ABC):
    """Something that works in a thread until the `with` block ends."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.ending = threading.Event()
        self._thread = threading.Thread(target=self.work, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()

    def finish(self) -> None:
        """End the work and wait until that is done."""
        self.ending.set()
        self._thread.join(2 * DEADLINE_S)
        assert not self._thread.is_alive(), f"the {self._thread.name} does not end"

    @abstractmethod
    def work(self) -> None:
        """Until `ending`."""


class Source(Working):
    """An idempotent producer that writes 0, 1, 2, … to each partition, at a pace."""

    def __init__(
        self, bootstrap: str, topic: str, *, partitions: int, records: int, records_per_s: float
    ) -> None:
        super().__init__()
        self.acknowledged = 0
        self.sent = {
            partition: len(range(partition, records, partitions)) for partition in range(partitions)
        }
        """Partition to the records that it has in the end."""
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
        """Whether all is acknowledged."""
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
    """A read_committed consumer of the sink from its beginning, which hands all to a judge."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, judge: J) -> None:
        super().__init__()
        self.judge = judge
        self.seen = 0
        self.ended: set[int] = set()
        """Partitions whose end was come to."""
        self.silence_s = 0.0
        """The longest time without any record."""
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
