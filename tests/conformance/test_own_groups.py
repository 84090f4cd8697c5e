"""Groups in which our consumer and other clients' consumers are members together."""

import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest

from raylog.client import BlockingClient, Consumer, NewTopic
from tests.conformance.conftest import Target
from tests.support.kafka_python import kafka, subscribe

PARTITIONS = 4
PATIENCE_S = 60.0
Poll = Callable[[], set[int]]
"""Polls another client's member once; the partitions that it has."""
Member = tuple[Poll, Callable[[], Any]]


def _confluent(strategy: str) -> Callable[[str, str, str], Member]:
    def start(bootstrap: str, topic: str, group: str) -> Member:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                **({"group.protocol": "consumer"} if strategy == "consumer" else {}),
                **({} if strategy == "consumer" else {"partition.assignment.strategy": strategy}),
            }
        )
        consumer.subscribe([topic])

        def poll() -> set[int]:
            consumer.poll(0.1)
            return {one.partition for one in consumer.assignment()}

        return poll, consumer.close

    return start


def _kafka_python(bootstrap: str, topic: str, group: str) -> Member:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
    )
    subscribe(consumer, topic)

    def poll() -> set[int]:
        consumer.poll(100)
        return {one.partition for one in consumer.assignment()}

    return poll, consumer.close


OTHERS = {
    "confluent-range": (_confluent("range"), {"partition_assignment_strategy": "range"}),
    "confluent-cooperative": (
        _confluent("cooperative-sticky"),
        {"partition_assignment_strategy": "cooperative-sticky"},
    ),
    "confluent-consumer": (_confluent("consumer"), {"group_protocol": "consumer"}),
    "kafka-python-range": (_kafka_python, {"partition_assignment_strategy": "range"}),
}


@pytest.mark.parametrize("leader", [pytest.param("ours", marks=pytest.mark.long), "theirs"])
@pytest.mark.parametrize("kind", OTHERS)
def test_members_of_two_clients_share_a_topic(either: Target, kind: str, leader: str) -> None:
    """Whoever of them divides; each partition has one owner, and who stays gets all."""
    start, own = OTHERS[kind]
    topic, group = f"mixed-{uuid4()}", f"g-{uuid4()}"
    with BlockingClient(either.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    deadline = time.monotonic() + PATIENCE_S
    settings = {"bootstrap_servers": either.bootstrap, "group_id": group, **own}
    theirs: set[int] = set()
    stopping = threading.Event()
    started = threading.Event()

    def live() -> None:
        poll, close = start(either.bootstrap, topic, group)
        while not stopping.is_set():
            found = poll()
            theirs.clear()
            theirs.update(found)
            if found:
                started.set()
        close()
        theirs.clear()

    other = threading.Thread(target=live)
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])

        def until(condition: Callable[[set[int]], bool]) -> None:
            while not condition({key.partition for key in consumer.assignment()}):
                assert time.monotonic() < deadline, (consumer.assignment(), theirs)
                consumer.poll(100)

        if leader == "ours":
            until(lambda ours: len(ours) == PARTITIONS)
            other.start()
        else:
            other.start()
            assert started.wait(PATIENCE_S)
        try:
            until(
                lambda ours: len(ours) == len(theirs) == PARTITIONS // 2 and not ours & set(theirs)
            )
        finally:
            stopping.set()
            while other.is_alive():
                consumer.poll(100)
            other.join()
        until(lambda ours: len(ours) == PARTITIONS)
