"""Clients that write and read all the time while a test hurts the cluster under them.

Every record's value is its number within its partition, so that order, losses and duplicates show.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.ray_clusters import DEADLINE_S, wait_until

QUICK = {
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "250",
    "retry.backoff.ms": "50",
    "retry.backoff.max.ms": "250",
    "topic.metadata.refresh.fast.interval.ms": "50",
    "log_level": "0",
}
"""A client that looks for its broker more often than is usual, so that we measure the broker."""
IN_FLIGHT_MAX = 200
_PASSING = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
)
"""What librdkafka reports and then mends by itself."""


class _Client:
    """A client in a thread, working until the `with` block ends."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.failures: list[str] = []
        self.partitions = range(partitions)
        self._bootstrap = bootstrap
        self._topic = topic
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name=type(self).__name__, daemon=True)

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
        self._ending.set()
        self._thread.join(2 * DEADLINE_S)
        assert not self._thread.is_alive(), f"the {self._thread.name} does not end"

    def _work(self) -> None:
        raise NotImplementedError

    def _until(self, look: Callable[[], bool], what: str) -> None:
        wait_until(lambda: self.failures or look(), what)
        assert not self.failures, self.failures[:3]


class Writer(_Client):
    """An idempotent producer with acks=all that never rests.

    At its end it waits until everything sent was acknowledged. `pause_s` is a rest between two
    records of a partition.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, pause_s: float = 0.0) -> None:
        super().__init__(bootstrap, topic, partitions)
        self._pause_s = pause_s
        self.acknowledged: dict[int, dict[int, int]] = {p: {} for p in self.partitions}
        """Partition to offset to number."""
        self.implied: dict[int, set[int]] = {p: set() for p in self.partitions}
        """Numbers that librdkafka takes for acknowledged because what it sent later was."""
        self.sent = dict.fromkeys(self.partitions, 0)
        self._heard = dict.fromkeys(self.partitions, 0.0)
        self._longest_s = 0.0

    def longest_s(self) -> float:
        """The longest time that a partition acknowledged nothing since this was asked last."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    def _work(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "enable.idempotence": "true",
            "acks": "all",
            "linger.ms": "2",
            "message.timeout.ms": str(int(DEADLINE_S * 1000)),
        }
        producer = Producer(settings | QUICK)
        while not self._ending.is_set():
            for partition in self.partitions:
                value = str(self.sent[partition]).encode()
                producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._delivered
                )
                self.sent[partition] += 1
            producer.poll(0.002 + self._pause_s)
            while len(producer) > IN_FLIGHT_MAX and not self._ending.is_set():
                producer.poll(0.05)
        if producer.flush(DEADLINE_S):
            self.failures.append("records neither delivered nor failed")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, offset, number = _numbers(message)
        now = time.monotonic()
        self._longest_s = max(self._longest_s, now - (self._heard[partition] or now))
        self._heard[partition] = now
        if offset is None:
            self.implied[partition].add(number)
        else:
            self.acknowledged[partition][offset] = number

    def acknowledged_in(self, partition: int) -> int:
        """How many records of a partition were acknowledged."""
        return len(self.acknowledged[partition]) + len(self.implied[partition])

    def until_acknowledged(self, more: int = 1) -> float:
        """Wait until so many records sent from now on were acknowledged in each partition.

        Returns how long that took in seconds.
        """
        began = time.monotonic()
        # What librdkafka has sent may have been answered before this moment.
        goals = {partition: sent + more for partition, sent in self.sent.items()}
        self._until(
            lambda: all(self.acknowledged_in(p) >= goal for p, goal in goals.items()),
            f"{more} acknowledged records in each partition",
        )
        return time.monotonic() - began


class Reader(_Client):
    """A consumer of all partitions from their beginning, without a group."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic, partitions)
        self.seen: dict[int, list[tuple[int, int]]] = {p: [] for p in self.partitions}
        """Partition to (offset, number), as they came."""

    def _work(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "none",
            "enable.auto.commit": "false",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": "100",
        }
        consumer = Consumer(settings | QUICK)
        consumer.assign([TopicPartition(self._topic, p, 0) for p in self.partitions])
        while not self._ending.is_set():
            for message in consumer.consume(500, 0.1):
                self._take(message)
        consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() not in _PASSING:
                self.failures.append(str(error))
            return
        partition, offset, number = _numbers(message)
        assert offset is not None
        self.seen[partition].append((offset, number))

    def until_read(self, ends: Mapping[int, int]) -> None:
        """Wait until the record before each partition's end was read."""
        self._until(
            lambda: all(self.seen[p] and self.seen[p][-1][0] >= end - 1 for p, end in ends.items()),
            "all records to be read",
        )


def _numbers(message: Message) -> tuple[int, int | None, int]:
    """Partition, offset if it is known, and the number that the record holds."""
    value, partition, offset = message.value(), message.partition(), message.offset()
    assert value is not None
    assert partition is not None
    return partition, None if offset == OFFSET_INVALID else offset, int(value)


def assert_nothing_lost(writer: Writer, reader: Reader) -> None:
    """Every sent record is there once, in order; each acknowledged one at its offset."""
    assert not writer.failures, writer.failures[:3]
    reader.until_read({p: max(offsets) + 1 for p, offsets in writer.acknowledged.items()})
    for partition, acknowledged in writer.acknowledged.items():
        seen = reader.seen[partition]
        assert [offset for offset, _ in seen] == list(range(len(seen))), "every offset once"
        assert [number for _, number in seen] == list(range(len(seen))), "every record once"
        assert acknowledged.items() <= dict(seen).items(), "acknowledged records at their offsets"
        assert writer.acknowledged_in(partition) == writer.sent[partition], "everything was acked"
