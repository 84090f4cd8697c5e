"""The group coordinator's process is killed: groups of real clients go on committing."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import aiokafka
import confluent_kafka
import pytest

from raylog.actors.names import GROUP
from tests.support.kafka_python import kafka, subscribe
from tests.support.ray_clusters import DEADLINE_S, NewCluster, Note, create, slowness, wait_until

TOPIC, PARTITIONS, RECORDS = "shared", 3, 60
SERVES_AGAIN_S = 10.0
T = TypeVar("T")


class Member(Protocol):
    """One consumer in a group, of any client library."""

    def read(self, count: int) -> list[tuple[int, int]]:
        """At least `count` records as (partition, offset)."""

    def commit(self) -> None:
        """Commit what was read; tries again where the client does not."""

    def committed(self) -> int:
        """The sum of the committed offsets."""

    def close(self) -> None:
        """Leave."""


class ConfluentMember:
    """librdkafka, through confluent-kafka."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC])

    def read(self, count: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
            message = self._consumer.poll(0.5)
            if message is not None and not message.error():
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                found.append((partition, offset))
        return found

    def commit(self) -> None:
        _insist(lambda: self._consumer.commit(asynchronous=False), confluent_kafka.KafkaException)

    def committed(self) -> int:
        asked = [confluent_kafka.TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        found = _insist(
            lambda: self._consumer.committed(asked, DEADLINE_S), confluent_kafka.KafkaException
        )
        return sum(max(0, one.offset) for one in found)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember:
    """kafka-python."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=10,
        )
        subscribe(self._consumer, TOPIC)

    def read(self, count: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
            for some in self._consumer.poll(500).values():
                found.extend((record.partition, record.offset) for record in some)
        return found

    def commit(self) -> None:
        _insist(self._consumer.commit, kafka.errors.KafkaError)

    def committed(self) -> int:
        asked = [kafka.TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        return sum(self._consumer.committed(one) or 0 for one in asked)

    def close(self) -> None:
        self._consumer.close()


class AiokafkaMember:
    """aiokafka, on its own event loop, which runs only during calls."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._runner = asyncio.Runner()
        self._consumer = self._runner.run(self._start(bootstrap, group))

    async def _start(self, bootstrap: str, group: str) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=10,
        )
        await consumer.start()
        return consumer

    def read(self, count: int) -> list[tuple[int, int]]:
        return self._runner.run(self._read(count))

    async def _read(self, count: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < count:
                for some in (await self._consumer.getmany(timeout_ms=500)).values():
                    found.extend((record.partition, record.offset) for record in some)
        return found

    def commit(self) -> None:
        _insist(lambda: self._runner.run(self._consumer.commit()), aiokafka.errors.KafkaError)

    def committed(self) -> int:
        return self._runner.run(self._committed())

    async def _committed(self) -> int:
        asked = [aiokafka.TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        return sum([await self._consumer.committed(one) or 0 for one in asked])

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


def _insist(ask: Callable[[], T], refused: type[Exception]) -> T:
    """Ask again while the coordinator is away: not every client does so itself."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return ask()
        except refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)  # as an application would


def _produce(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.parametrize(
    "member",
    [
        ConfluentMember,
        pytest.param(KafkaPythonMember, marks=pytest.mark.long),
        pytest.param(AiokafkaMember, marks=pytest.mark.long),
    ],
)
def test_a_group_commits_and_resumes_over_a_killed_coordinator(
    new_cluster: NewCluster, member: Callable[[str, str], Member], note: Note
) -> None:
    cluster = new_cluster(settings={"group.initial.rebalance.delay.ms": "0"})
    cluster.start()
    create(cluster.bootstrap, TOPIC, PARTITIONS)
    _produce(cluster.bootstrap)
    first = member(cluster.bootstrap, "group")
    read = first.read(RECORDS // 2)
    first.commit()
    assert first.committed() == len(read)
    slow = slowness()
    killed = cluster.kill(GROUP)
    began = time.monotonic()
    assert first.committed() == len(read), "no commit is lost"
    answered_s = time.monotonic() - began
    cluster.until_succeeded(GROUP, killed)
    if len(read) < RECORDS:
        read += first.read(RECORDS - len(read))
    first.commit()
    committed_s = time.monotonic() - began
    first.close()
    assert sorted(read) == sorted((i % PARTITIONS, i // PARTITIONS) for i in range(RECORDS))

    second = member(cluster.bootstrap, "group")
    wait_until(lambda: second.committed() == RECORDS, "the commits")
    _produce(cluster.bootstrap)
    again = second.read(RECORDS)
    second.close()
    per_partition = RECORDS // PARTITIONS
    assert min(offset for _, offset in again) == per_partition, "nothing is read twice"
    note("answered_s", answered_s)
    note("committed_s", committed_s)
    assert max(answered_s, committed_s) < SERVES_AGAIN_S * slow
