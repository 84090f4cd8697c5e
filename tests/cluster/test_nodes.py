"""Brokers on several Ray nodes: one node ends and comes back with its data; the others go on."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.names import broker_name, supervisor_name
from raylog.actors.runtime import ray_node
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.actors.runtime.ray_node import actors_named
from raylog.actors.supervisor.actor import ensure_supervisor
from raylog.actors.supervisor.rules.desired import DesiredCluster, share_name
from raylog.wire.errors import KafkaError
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.load import Reader, Writer, assert_nothing_lost
from tests.support.ray_clusters import (
    DEADLINE_S,
    NewCluster,
    NewNode,
    Note,
    create,
    kill,
    slowness,
    wait_until,
)
from tests.support.wire_client import WireClient

if TYPE_CHECKING:
    from raylog.actors.runtime.ray import RayRuntime

SOME = 100
GOES_ON_S = 1.0
FENCED_S = 8.0
"""broker.session.timeout.ms, and a heartbeat to notice it by."""

LABELS = {"raylog-broker": "0"}


def leader(port: int, topic: str) -> int:
    """Who leads partition 0, as a broker knows it."""
    with WireClient("127.0.0.1", port) as client:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        (partition,) = client.ask(asked, 9).topics[0].partitions
    assert isinstance(partition.leader_id, int)
    return partition.leader_id


def write(bootstrap: str, topic: str) -> None:
    """SOME records, all acknowledged."""
    errors = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(SOME):
        producer.produce(topic, str(number), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [None] * SOME


def test_a_node_ends_and_comes_back(
    new_cluster: NewCluster, local_ray: Path, new_node: NewNode, note: Note
) -> None:
    (head,) = ray_node.running_nodes(local_ray.parent)
    nodes = [head, new_node(1), new_node(2)]
    cluster = new_cluster(brokers=3, nodes=[node.node_id for node in nodes])
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    placed = [
        NewTopic("steady", 2, replica_assignment=[[0], [2]]),
        NewTopic("held", 1, replica_assignment=[[1]]),
    ]
    for created in admin.create_topics(placed).values():
        created.result(DEADLINE_S)
    write(cluster.bootstrap, "held")
    survivors = f"127.0.0.1:{cluster.ports[0]},127.0.0.1:{cluster.ports[2]}"
    with Reader(survivors, "steady", 2) as reader, Writer(survivors, "steady", 2) as writer:
        writer.until_acknowledged(SOME)
        slow = slowness()
        kill(nodes[1])
        went_on_s = writer.until_acknowledged()
        note("went_on_s", went_on_s)
        began = time.monotonic()
        wait_until(lambda: leader(cluster.ports[0], "held") == -1, "the broker to be fenced")
        fenced_s = time.monotonic() - began
        note("fenced_s", fenced_s)
        assert went_on_s < GOES_ON_S * slow
        assert fenced_s < FENCED_S * slow
        create(survivors, "new", 4)
        write(survivors, "new")

        gone = f"{cluster.cluster_id}/broker/1/"
        wait_until(
            lambda: not any(actor.name.startswith(gone) for actor in cluster.actors()),
            "Ray to miss the node",
        )
        note("back_s", cluster.start_one(1, new_node(1).node_id))
        assert leader(cluster.ports[0], "held") == 1
        write(cluster.bootstrap, "held")
        writer.until_acknowledged(SOME)
        writer.finish()
        assert_nothing_lost(writer, reader)
    with Reader(cluster.bootstrap, "held", 1) as again:
        again.until_read({0: 2 * SOME})
        assert [number for _, number in again.seen[0]] == [*range(SOME), *range(SOME)]
    assert cluster.stop() == {}


async def serves(runtime: "RayRuntime", name: str) -> int:
    """Wait until a broker serves; returns its process."""
    async with asyncio.timeout(2 * DEADLINE_S):
        while True:
            try:
                await runtime.call(name, "ready", 5_000, timeout_ms=10_000)
                return (await runtime.find(name)).pid
            except (ActorGone, PeerLost, PeerTimeout, KafkaError):
                await runtime.sleep(0.1)


@pytest.mark.timeout(600)
def test_a_labelled_node_that_returns_under_another_id_gets_its_broker_back(
    driver: Callable[[], "RayRuntime"],
    local_ray: Path,
    new_node: NewNode,
    cluster_id: str,
    tmp_path: Path,
    note: Note,
) -> None:
    """Also where Ray has forgotten the broker: then the supervisor starts it."""
    from raylog.actors.runtime import ray_places

    name = broker_name(cluster_id, 0)
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    wanted = BrokerWanted(0, LABELS, str(tmp_path / "broker-0"), settings, 0.1, 50 << 20)
    cluster = DesiredCluster(cluster_id, (wanted,), ((0, "d" * 22),), secret_source=str(local_ray))

    async def story() -> None:
        runtime = driver()
        await runtime.kv_put(cluster.key, cluster.to_bytes())
        await ensure_supervisor(runtime, cluster_id)
        node = new_node(1, LABELS)
        first = await serves(runtime, name)
        kill(node)
        began = time.monotonic()
        node = new_node(2, LABELS)
        while (second := await serves(runtime, name)) == first:
            await runtime.sleep(0.1)
        note("back_s", time.monotonic() - began)
        assert (await runtime.find(name)).node_id == node.node_id
        await runtime.end_for_good(name)
        while await serves(runtime, name) == second:
            await runtime.sleep(0.1)
        async with asyncio.timeout(DEADLINE_S):  # noted when the metadata has told it
            while not (tmp_path / "broker-0" / "wanted.json").exists():
                await runtime.sleep(0.1)

    async def end() -> None:
        runtime = driver()
        await runtime.end_for_good(supervisor_name(cluster_id))
        for actor in actors_named(f"{cluster_id}/"):
            await runtime.end_for_good(actor.name)

    try:
        asyncio.run(story())
    finally:
        asyncio.run(end())
        ray_places.release(share_name(cluster_id, 0))
