"""Many partitions on one broker: their costs, and what happens when descriptors run out.

`make scale` uses 1,000 partitions; the figures are at the end of the report.
"""

import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from raylog.actors.names import BROKER, CONTROLLER, REPLICA
from raylog.wire.errors import ErrorCode
from tests.support.ray_clusters import DEADLINE_S, NewCluster, Note, RayCluster, create, wait_until
from tests.support.sequenced import SequencedProducer
from tests.support.usage import Holdings, holdings
from tests.support.wire_client import WireClient

PARTITIONS = int(os.environ.get("RAYLOG_SCALE", "200"))
SINGLE_REQUESTS = PARTITIONS if PARTITIONS >= 1000 else 50
BYTES_MAX = 100 * 1024
DESCRIPTORS_MAX = 4
"""Both for a partition, over all processes of the cluster."""
LISTED_S = 1.0
REPLICAS = 2
"""Processes that share the partitions."""


class Held(NamedTuple):
    """What the processes held before the partitions were created."""

    pids: list[int]
    holdings: Holdings

    def now(self) -> Holdings:
        """What they hold now; a spare that has started since is none of them."""
        return holdings(self.pids)


def pids(cluster: RayCluster) -> list[int]:
    """Controller, broker and all children, once none is being started."""

    def found() -> list[int]:
        children = [child.pid for child in cluster.status().children]
        return [] if 0 in children else children

    children = wait_until(found, "all children to run")
    return [cluster.pid(CONTROLLER), cluster.pid(BROKER), *children]


def started(new_cluster: NewCluster) -> tuple[RayCluster, Held]:
    """A broker whose replica processes all run and have served once, and what they hold."""
    cluster = new_cluster(settings={"replica.actors.max": str(REPLICAS)})
    cluster.start()
    create(cluster.bootstrap, "first", 2 * REPLICAS)
    write_and_read(cluster, [("first", at) for at in range(2 * REPLICAS)])
    return cluster, Held(processes := pids(cluster), holdings(processes))


def create_all(cluster: RayCluster, topics: list[NewTopic]) -> float:
    """Create topics in one request; returns the seconds it took."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    began = time.monotonic()
    for created in admin.create_topics(topics, operation_timeout=DEADLINE_S).values():
        created.result(DEADLINE_S)
    return time.monotonic() - began


def listed(cluster: RayCluster) -> tuple[dict[str, int], float]:
    """Partition counts by topic, and the seconds it took."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.list_topics("first", timeout=DEADLINE_S)  # it is connected then
    began = time.monotonic()
    topics = admin.list_topics(timeout=DEADLINE_S).topics
    took_s = time.monotonic() - began
    ours = {name: topic for name, topic in topics.items() if not name.startswith("__")}
    return {name: len(topic.partitions) for name, topic in ours.items()}, took_s


def write_and_read(cluster: RayCluster, partitions: Sequence[tuple[str, int]]) -> None:
    """One record to each partition, and back."""
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for topic, partition in partitions:
        producer.produce(topic, b"v", partition=partition, on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    assert not errors
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none"}
    consumer = Consumer(settings | {"enable.auto.commit": "false"})
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in partitions])
    seen: set[tuple[str | None, int | None]] = set()

    def read() -> bool:
        seen.update((m.topic(), m.partition()) for m in consumer.consume(500, 0.1))
        return len(seen) == len(partitions)

    wait_until(read, "a record of each partition")
    assert seen == set(partitions)
    consumer.close()


def assert_affordable(held: Held, partitions: int, note: Note) -> None:
    before, after = held.holdings, held.now()
    each_bytes = (after.anonymous_bytes - before.anonymous_bytes) / partitions
    each_descriptors = (after.descriptors - before.descriptors) / partitions
    note("bytes_each", round(each_bytes))
    note("descriptors_each", round(each_descriptors, 2))
    assert each_bytes <= BYTES_MAX
    assert each_descriptors <= DESCRIPTORS_MAX


@pytest.mark.long
@pytest.mark.timeout(600)
def test_many_topics(new_cluster: NewCluster, note: Note) -> None:
    cluster, held = started(new_cluster)
    names = [f"topic-{at}" for at in range(PARTITIONS)]
    note("created_s", create_all(cluster, [NewTopic(name, 1) for name in names]))
    topics, listed_s = listed(cluster)
    note("listed_s", listed_s)
    assert topics == dict.fromkeys(names, 1) | {"first": 2 * REPLICAS}
    assert listed_s < LISTED_S
    write_and_read(cluster, [(name, 0) for name in names])
    assert_affordable(held, PARTITIONS, note)

    began = time.monotonic()
    for at in range(SINGLE_REQUESTS):
        create(cluster.bootstrap, f"single-{at}")
    note("created_single_s", (time.monotonic() - began) / SINGLE_REQUESTS)
    assert cluster.stop() == {}
    note("restarted_s", cluster.start())
    assert len(listed(cluster)[0]) == PARTITIONS + SINGLE_REQUESTS + 1
    write_and_read(cluster, [(f"single-{at}", 0) for at in range(SINGLE_REQUESTS)])


@pytest.mark.long
def test_many_partitions(new_cluster: NewCluster, note: Note) -> None:
    cluster, held = started(new_cluster)
    note("created_s", create_all(cluster, [NewTopic("topic", PARTITIONS)]))
    topics, listed_s = listed(cluster)
    note("listed_s", listed_s)
    assert topics == {"topic": PARTITIONS, "first": 2 * REPLICAS}
    assert listed_s < LISTED_S
    write_and_read(cluster, [("topic", at) for at in range(PARTITIONS)])
    assert_affordable(held, PARTITIONS, note)


@contextmanager
def no_more_descriptors(pid: int) -> Iterator[None]:
    """Keep a process from opening anything."""
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    assert limits[0] == limits[1], "actors raise their limit when they start"
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, limits[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


@pytest.mark.long
def test_out_of_descriptors(new_cluster: NewCluster) -> None:
    """A partition that needs one is refused and says why; the others go on, it comes back."""
    apart = {"gateway.in.replica.process": "false"}  # or the gateway would have none either
    cluster = new_cluster(settings={"replica.actors.max": "1", **apart})
    cluster.start()
    create(cluster.bootstrap, "t", 2)
    with WireClient("127.0.0.1", cluster.ports[0]) as client:
        producer = SequencedProducer(client)
        assert producer.send(client, "t", 0, partition=0).error_code == 0
        with no_more_descriptors(cluster.pid(REPLICA)):
            refused = producer.send(client, "t", 0, partition=1)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "Too many open files" in (refused.error_message or "")
            assert producer.send(client, "t", 1, partition=0).base_offset == 1
        assert producer.send(client, "t", 0, partition=1).error_code == 0
