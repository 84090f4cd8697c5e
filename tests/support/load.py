"""Clients that write and read all the time while a test disturbs the cluster.

Every record's value is its number within its partition, so order, losses and duplicates show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.librdkafka import PASSING, QUICK
from tests.support.ray_clusters import DEADLINE_S, wait_until
from tests.support.working import Working

IN_FLIGHT_MAX = 200


class _Client(Working):
    """A client of one topic."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__()
        self.partitions = range(partitions)
        self._bootstrap = bootstrap
        self._topic = topic

    def _until(self, look: Callable[[], bool], what: str) -> None:
        wait_until(lambda: self.failures or look(), what)
        assert not self.failures, self.failures[:3]


class Writer(_Client):
    """An idempotent producer with acks=all that writes continuously.

    When it ends, it waits until everything it sent is acknowledged. `pause_s` is the pause between
    two records of a partition.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, pause_s: float = 0.0) -> None:
        super().__init__(bootstrap, topic, partitions)
        self._pause_s = pause_s
        self.acknowledged: dict[int, dict[int, int]] = {p: {} for p in self.partitions}
        """Partition to offset to number."""
        self.implied: dict[int, set[int]] = {p: set() for p in self.partitions}
        """Numbers that librdkafka counts as acknowledged because a later record was."""
        self.sent = dict.fromkeys(self.partitions, 0)
        self._acknowledged_s = dict.fromkeys(self.partitions, 0.0)
        self._longest_s = 0.0

    def longest_s(self) -> float:
        """Return the longest time without an acknowledgement in a partition since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    def work(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "enable.idempotence": "true",
            "acks": "all",
            "linger.ms": "2",
            "message.timeout.ms": str(int(DEADLINE_S * 1000)),
        }
        producer = Producer(settings | QUICK)
        while not self.ending.is_set():
            for partition in self.partitions:
                value = str(self.sent[partition]).encode()
                producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._delivered
                )
                self.sent[partition] += 1
            producer.poll(0.002 + self._pause_s)
            while len(producer) > IN_FLIGHT_MAX and not self.ending.is_set():
                producer.poll(0.05)
        if producer.flush(DEADLINE_S):
            self.failures.append("records neither delivered nor failed")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, offset, number = _numbers(message)
        now = time.monotonic()
        self._longest_s = max(self._longest_s, now - (self._acknowledged_s[partition] or now))
        self._acknowledged_s[partition] = now
        if offset is None:
            self.implied[partition].add(number)
        else:
            self.acknowledged[partition][offset] = number

    def acknowledged_in(self, partition: int) -> int:
        """Return how many records of a partition were acknowledged."""
        return len(self.acknowledged[partition]) + len(self.implied[partition])

    def until_acknowledged(self, more: int = 1) -> float:
        """Wait until `more` records sent from now on are acknowledged in each partition.

        Return how many seconds that took.
        """
        began = time.monotonic()
        # Records that librdkafka has already sent may have been answered before this moment.
        goals = {partition: sent + more for partition, sent in self.sent.items()}
        self._until(
            lambda: all(self.acknowledged_in(p) >= goal for p, goal in goals.items()),
            f"{more} acknowledged records in each partition",
        )
        return time.monotonic() - began


class Reader(_Client):
    """A consumer of all partitions from the beginning, without a group."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic, partitions)
        self.seen: dict[int, list[tuple[int, int]]] = {p: [] for p in self.partitions}
        """Partition to (offset, number), in order of arrival."""

    def work(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "none",
            "enable.auto.commit": "false",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": "100",
        }
        consumer = Consumer(settings | QUICK)
        consumer.assign([TopicPartition(self._topic, p, 0) for p in self.partitions])
        while not self.ending.is_set():
            for message in consumer.consume(500, 0.1):
                self._take(message)
        consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() not in PASSING:
                self.failures.append(str(error))
            return
        partition, offset, number = _numbers(message)
        assert offset is not None
        self.seen[partition].append((offset, number))

    def until_read(self, ends: Mapping[int, int]) -> None:
        """Wait until everything below each partition's end is read."""
        self._until(
            lambda: all(self.seen[p] and self.seen[p][-1][0] >= end - 1 for p, end in ends.items()),
            "all records to be read",
        )


def _numbers(message: Message) -> tuple[int, int | None, int]:
    """Return partition, offset (None if unknown), and the number that the record holds."""
    value, partition, offset = message.value(), message.partition(), message.offset()
    assert value is not None
    assert partition is not None
    return partition, None if offset == OFFSET_INVALID else offset, int(value)


def assert_nothing_lost(writer: Writer, reader: Reader) -> None:
    """Assert that each sent record is there once, in order, at its acknowledged offset."""
    assert not writer.failures, writer.failures[:3]
    reader.until_read({p: max(offsets) + 1 for p, offsets in writer.acknowledged.items()})
    for partition, acknowledged in writer.acknowledged.items():
        seen = reader.seen[partition]
        assert [offset for offset, _ in seen] == list(range(len(seen))), "every offset once"
        assert [number for _, number in seen] == list(range(len(seen))), "every record once"
        assert acknowledged.items() <= dict(seen).items(), "acknowledged records at their offsets"
        assert writer.acknowledged_in(partition) == writer.sent[partition], "everything was acked"
