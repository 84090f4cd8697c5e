"""Ray workers and tasks on three nodes, one of which is killed: nothing is lost or reordered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.actors.runtime import ray_node
from raylog.actors.runtime.ray_node import LocalRay
from raylog.client import (
    EARLIEST,
    BlockingClient,
    CommittedOffset,
    ConsumerSettings,
    NewTopic,
    TopicPartition,
)
from raylog.client.parallel import ParallelConsumer
from raylog.eos import RestartPolicy, process
from raylog.testing import EmbeddedBroker
from raylog.wire.record import Record
from tests.support.parallel_functions import note_place, with_place
from tests.support.ray_clusters import NewNode, Note, kill, wait_until

PARTITIONS = 3
KEYS = 20
RECORDS = 1_200
DEADLINE_S = 150
SESSION_MS = 6_000


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[BlockingClient]:
    with BlockingClient(bootstrap) as made:
        yield made


@pytest.fixture
def nodes(local_ray: Path, new_node: NewNode) -> list[LocalRay]:
    """The head and two more, once Ray spreads work over all of them."""
    import ray  # Ray reads its environment when it is imported

    (head,) = ray_node.running_nodes(local_ray.parent)
    found = [head, new_node(1), new_node(2)]
    place = ray.remote(num_cpus=0, scheduling_strategy="SPREAD")(
        lambda: ray.get_runtime_context().get_node_id()
    )
    wait_until(
        lambda: len(set(ray.get([place.remote() for _ in range(6)]))) == len(found),
        "work on all nodes",
        DEADLINE_S,
    )
    return found


def fill(client: BlockingClient, topic: str, value: bytes = b"") -> None:
    client.create_topics([NewTopic(topic, PARTITIONS)])
    with client.producer() as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d|%s" % (number, value), b"k%d" % (number % KEYS))


def read(client: BlockingClient, topic: str) -> list[Record]:
    """All committed records."""
    keys = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    ends = client.list_offsets(dict.fromkeys(keys, -1), read_committed=True)
    consumer = client.consumer(ConsumerSettings(read_committed=True))
    consumer.assign(dict.fromkeys(keys, EARLIEST))
    found: list[Record] = []
    while any(consumer.position(key) < end.offset for key, end in ends.items()):
        for some in consumer.poll(1_000):
            found += some.records
    consumer.close()
    return found


def by_key(values: list[tuple[str, int]]) -> dict[str, list[int]]:
    """Numbers by key, in order, each where it came first."""
    found: dict[str, dict[int, None]] = {}
    for key, number in values:
        found.setdefault(key, {})[number] = None
    return {key: list(numbers) for key, numbers in found.items()}


EXPECTED = {f"k{key}": list(range(key, RECORDS, KEYS)) for key in range(KEYS)}


@pytest.mark.timeout(400)
def test_workers_of_a_killed_node_are_replaced(
    nodes: list[LocalRay], client: BlockingClient, bootstrap: str, tmp_path: Path, note: Note
) -> None:
    path = tmp_path / "noted"
    path.touch()
    fill(client, "work", str(path).encode())

    def noted() -> list[list[str]]:
        return [line.split() for line in path.read_text().splitlines()]

    consumer = ParallelConsumer(
        bootstrap,
        ["work"],
        note_place,
        group_id="work",
        worker_kind="ray",
        workers=6,
        auto_offset_reset="earliest",
        ray_options={"num_cpus": 0},
    )
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        wait_until(
            lambda: len({line[2] for line in noted()}) == 3, "workers on all nodes", DEADLINE_S
        )
        wait_until(lambda: consumer.statistics().processed > RECORDS // 10, "work", DEADLINE_S)
        victim = next(node for node in nodes[1:] if node.node_id in {one[2] for one in noted()})
        done = consumer.statistics().processed
        assert done < RECORDS // 2, "the node is killed in the middle"
        kill(victim)
        began = time.monotonic()
        wait_until(lambda: consumer.statistics().processed == RECORDS, "the rest", DEADLINE_S)
        note("rest_s", time.monotonic() - began)
    finally:
        consumer.stop()
        thread.join(DEADLINE_S)
    found = consumer.statistics()
    assert found.workers_lost > 0
    assert found.dead_lettered == 0
    assert by_key([(key, int(number)) for key, number, _ in noted()]) == EXPECTED
    ends = client.list_offsets({TopicPartition("work", index): -1 for index in range(PARTITIONS)})
    assert client.group_offsets("work") == {
        key: CommittedOffset(end.offset) for key, end in ends.items() if end.offset
    }


@pytest.mark.timeout(400)
def test_tasks_of_a_killed_node_are_started_again_and_each_result_is_there_once(
    nodes: list[LocalRay], client: BlockingClient, bootstrap: str, note: Note
) -> None:
    fill(client, "calls")
    client.create_topics([NewTopic("bills", PARTITIONS)])
    with process(
        "calls",
        "bills",
        with_place,
        group="phones",
        config=bootstrap,
        kind="ray",
        restart=RestartPolicy(backoff_ms=100.0),
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
        actor_options={"num_cpus": 0},
    ) as running:
        running.scale(3)
        joined = {node.node_id: node for node in nodes[1:]}

        def seen() -> list[LocalRay]:
            """Nodes that results came from, without the head."""
            places = {(one.value or b"").split(b"|")[1].decode() for one in read(client, "bills")}
            return [node for place, node in joined.items() if place in places]

        victim = wait_until(seen, "results of a node that joined", DEADLINE_S)[0]
        assert len(read(client, "bills")) < RECORDS * 3 // 4, "the node is killed in the middle"
        kill(victim)
        began = time.monotonic()
        wait_until(lambda: len(read(client, "bills")) >= RECORDS, "all results", DEADLINE_S)
        note("rest_s", time.monotonic() - began)
        wait_until(lambda: running.restarts > 0, "a restart", DEADLINE_S)
    found = read(client, "bills")
    assert len(found) == RECORDS
    values = [((one.key or b"").decode(), int((one.value or b"").split(b"|")[0])) for one in found]
    assert by_key(values) == EXPECTED
