"""A whole cluster under virtual time: processes die at random moments, acknowledged records stay.

The gateway is the one actor that cannot be simulated, for it owns sockets; `Port` stands in its
place: it takes the same metadata and routes, and clients of the simulation send through it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from raylog.actors.cluster import plan_cluster, start_cluster, stop_cluster
from raylog.actors.controller.api import CreateTopics, NewTopic
from raylog.actors.gateway.cluster import ClusterView, OpenRoute
from raylog.actors.gateway.maps import read_cold
from raylog.actors.metadata.image import Topic
from raylog.actors.names import controller_name
from raylog.actors.ports import RouteUpdate, TopicId
from raylog.actors.replica.api import (
    FETCH,
    PRODUCE,
    FetchAsk,
    FetchedPartition,
    Interest,
    ProducePart,
    produced,
)
from raylog.actors.roles import role_class
from raylog.actors.runtime.base import Actor, LinkRequest, PeerLost, PeerTimeout, Runtime
from raylog.actors.runtime.sim import SimWorld, simulate
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.records import Record, decode_batch, encode_batch, iter_batches

BROKERS = 2
PARTITIONS = 4
BATCHES = 12
KILLS = 6
ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 30_000
SEEDS = [int(os.environ["SEED"])] if os.environ.get("SEED") else range(20)


class Port:
    """A gateway without sockets."""

    def __init__(self, runtime: Runtime, *, name: str, broker_id: int, **_: object) -> None:
        self.view = ClusterView(runtime, broker_id)
        self._name = name

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.view.close()

    async def ping(self) -> dict[str, Any]:
        return {"name": self._name}

    async def apply_metadata(self, from_offset: int, to_offset: int, records: list[Any]) -> None:
        await self.view.apply_metadata(from_offset, to_offset, records)

    async def apply_routes(self, update: RouteUpdate) -> None:
        await self.view.apply_routes(update)

    def link_received(self, request: LinkRequest) -> None: ...

    def link_lost(self, peer: int) -> None: ...


class Cluster:
    """The cluster of one run, and the clients' record of what was acknowledged."""

    def __init__(self, world: SimWorld, data: Path) -> None:
        self.world = world
        self.data = data
        self.runtime = world.runtime()
        self.random = Random(world.random.random())
        self.acknowledged: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.writers_left = PARTITIONS

    async def start(self) -> None:
        self.plan = plan_cluster(
            self.data,
            self.runtime,
            host="127.0.0.1",
            ports=[0] * BROKERS,
            settings={
                "metadata.log.fsync": "false",
                "replica.actors.max": "2",
                "gateway.in.replica.process": "false",
            },
        )
        await start_cluster(self.runtime, self.plan)

    def ports(self) -> list[Port]:
        found = [resident.actor for resident in self.world.residents()]
        return [actor for actor in found if isinstance(actor, Port)]

    async def create(self, name: str) -> TopicId:
        asked = CreateTopics([NewTopic(name, PARTITIONS, 1)])
        [outcome] = await self.runtime.call(
            controller_name(self.plan.cluster_id), "create_topics", asked, timeout_ms=10_000
        )
        assert outcome.error is ErrorCode.NONE, outcome
        return TopicId(outcome.topic_id)

    def topic(self, topic_id: TopicId) -> Topic:
        return next(
            port.view.image.topics[topic_id]
            for port in self.ports()
            if topic_id in port.view.image.topics
        )

    async def ask(
        self,
        topic_id: TopicId,
        partition: int,
        kind: str,
        header: Any,
        payload: Any,
        understood: Callable[[Any], Any] = lambda answer: answer,
    ) -> Any:
        """Ask the partition's leader, again and again until it answers."""
        while True:
            for port in self.ports():
                try:
                    route = port.view.route(port.view.topic(topic_id), partition)
                    answer = await route.link.ask(kind, header(route), payload)
                    return route, understood(answer)
                except (KafkaError, PeerLost, PeerTimeout):
                    continue
            await self.runtime.sleep(0.05)

    @staticmethod
    def produce_header(topic_id: TopicId, partition: int, size: int, route: OpenRoute) -> Any:
        part = ProducePart(topic_id, partition, route.leader_epoch, size)
        return ACKS_ALL, PRODUCE_TIMEOUT_MS, [part]

    async def write(self, topic_id: TopicId, partition: int) -> None:
        """An idempotent producer of its own: every retry is the same batch."""
        for number in range(BATCHES):
            value = f"{partition}/{number}".encode()
            batch = encode_batch(
                [Record(0, self.runtime.now_ms(), None, value, [])],
                producer_id=1000 + partition,
                producer_epoch=0,
                base_sequence=number,
            )
            _, answer = await self.ask(
                topic_id,
                partition,
                PRODUCE,
                partial(self.produce_header, topic_id, partition, len(batch)),
                [batch],
                lambda outcomes: produced(outcomes[0]),
            )
            self.acknowledged[partition][answer.base_offset] = value
            await self.runtime.sleep(self.random.uniform(0, 0.2))
        self.writers_left -= 1

    async def kill_now_and_then(self) -> None:
        for _ in range(KILLS):
            await self.runtime.sleep(self.random.uniform(0.1, 0.6))
            names = sorted(
                resident.ref.name
                for resident in self.world.residents()
                if resident.ref.role in ("replica", "controller", "gateway")
            )
            name = self.random.choice(names)
            self.world.note("kill", name)
            self.world.drop(name)

    async def read(self, topic_id: TopicId, partition: int) -> dict[int, bytes]:
        """Everything in a partition, by offset."""
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            interest = Interest(topic_id, partition, offset, 1 << 20, -1, -1)
            ask = FetchAsk(partition + 1, True, True, 0, 1 << 20, 0, False, [interest], [])
            route, answer = await self.ask(topic_id, partition, FETCH, lambda _, ask=ask: ask, [])
            part = FetchedPartition(*answer[0])
            if part.error_code:
                await self.runtime.sleep(0.05)
                continue
            if part.length == 0:
                return found
            data = read_cold(route.directory, part.segment_id, part.position, part.length)
            for header, batch in iter_batches(data):
                for record in decode_batch(batch):
                    assert record.offset not in found, "one value an offset"
                    found[record.offset] = record.value or b""
                offset = header.next_offset


def roles(role: str) -> Any:
    return Port if role == "gateway" else role_class(role)


async def scenario(world: SimWorld, data: Path) -> str:
    cluster = Cluster(world, data)
    await cluster.start()
    topic_id = await cluster.create("t")
    for partition in range(PARTITIONS):
        cluster.runtime.start(cluster.write(topic_id, partition), f"writer {partition}")
    await cluster.kill_now_and_then()
    while cluster.writers_left:
        await cluster.runtime.sleep(0.1)
    for partition in range(PARTITIONS):
        found = await cluster.read(topic_id, partition)
        assert found == cluster.acknowledged[partition], "acknowledged once, and nothing else"
        expected = [f"{partition}/{number}".encode() for number in range(BATCHES)]
        assert [found[offset] for offset in sorted(found)] == expected
    assert not world.failures, world.failures
    ids = [broker.broker_id for broker in cluster.plan.brokers]
    await stop_cluster(cluster.runtime, cluster.plan.cluster_id, ids)
    return world.trace


def run(seed: int, data: Path) -> str:
    return simulate(lambda world: scenario(world, data), SimWorld(roles, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_records_survive_any_order_of_deaths(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path)


def test_one_seed_gives_one_trace_whatever_the_hash_seed(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, pathlib, sys;"
        "s = u.spec_from_file_location('t', sys.argv[1]); m = u.module_from_spec(s);"
        "s.loader.exec_module(m); print(m.run(7, pathlib.Path(sys.argv[2])))"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", code, __file__, str(tmp_path / hash_seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(traces) == 1
    assert len(traces.pop().strip()) == 64


def test_the_stand_in_is_an_actor() -> None:
    actor: Actor = Port(SimWorld(roles, 0).runtime(), name="x", broker_id=0)
    assert actor
