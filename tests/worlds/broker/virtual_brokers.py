"""Brokers of a whole cluster under virtual time; gateways and replicas only record calls."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from raylog.actors.broker.actor import BrokerActor, broker_spec
from raylog.actors.cluster import plan_cluster, start_cluster, stop_cluster
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import CreateTopics, NewTopic
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import (
    BROKER,
    CONTROLLER,
    GATEWAY,
    GROUP,
    REPLICA,
    broker_name,
    controller_name,
)
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.simulation.loop import run_in_virtual_time
from raylog.wire.errors import NotController
from tests.worlds.broker.recording import RecordingCoordinator, RecordingGateway, RecordingReplica
from tests.worlds.virtual_time import VirtualWorld

ROLES: dict[str, Callable[..., Any]] = {
    BROKER: BrokerActor,
    CONTROLLER: ControllerActor,
    GATEWAY: RecordingGateway,
    REPLICA: RecordingReplica,
    GROUP: RecordingCoordinator,
}


class VirtualBrokers:
    """Brokers 0 to n-1. The first three are voters; with fewer than three, only the first."""

    def __init__(self, world: VirtualWorld, data: Path) -> None:
        self.world = world
        self.runtime = world.runtime()
        self.data = data

    async def start(self, brokers: int = 3, **settings: str) -> None:
        self.plan = plan_cluster(
            self.data,
            self.runtime,
            host="127.0.0.1",
            ports=[0] * brokers,
            settings={
                "metadata.log.fsync": "false",
                "replica.actors.spare": "0",
                **{key.replace("_", "."): value for key, value in settings.items()},
            },
        )
        await start_cluster(self.runtime, self.plan)
        self.first = controller_name(self.plan.cluster_id)

    async def stop(self) -> None:
        left = await stop_cluster(self.runtime, self.plan.cluster_id, self.broker_ids())
        assert left == {}
        assert self.world.failures == []
        assert [one.ref.name for one in self.world.residents() if one.ref.role == BROKER] == []

    def broker_ids(self) -> list[int]:
        return [one.broker_id for one in self.plan.brokers]

    def broker(self, broker_id: int) -> BrokerActor:
        actor = self.world.resident(broker_name(self.plan.cluster_id, broker_id)).actor
        assert isinstance(actor, BrokerActor)
        return actor

    def names_of(self, broker_id: int) -> list[str]:
        """Return the names of a broker and its children."""
        begins = tuple(f"/{role}/{broker_id}/" for role in (BROKER, GATEWAY, REPLICA, GROUP))
        residents = self.world.residents()
        return [one.ref.name for one in residents if any(b in one.ref.name for b in begins)]

    def images(self) -> list[MetadataImage]:
        return [self.broker(one)._machine.image for one in self.broker_ids()]

    def controllers(self) -> list[str]:
        return [one.ref.name for one in self.world.residents() if one.ref.role == CONTROLLER]

    def serving(self) -> list[str]:
        """Return the names of the controllers that would answer a request."""
        found = []
        for resident in self.world.residents():
            if isinstance(resident.actor, ControllerActor):
                try:
                    resident.actor._serving()
                except NotController:
                    continue
                found.append(resident.ref.name)
        return found

    async def create(self, name: str, *, at: int = 2, replicas: int = 3) -> None:
        """Create a topic through the controller that broker `at` knows."""
        asked = CreateTopics([NewTopic(name, 1, replicas)])
        outcome = None
        while outcome is None or outcome.error.retriable:
            [outcome] = await self.ask("create_topics", asked, at=at)
        assert outcome.error == 0, outcome

    async def ask(self, method: str, *arguments: object, at: int = 2) -> Any:
        """Call the controller that broker `at` knows, retrying until one answers."""
        while True:
            try:
                name = await self.broker(at).controller()
                return await self.runtime.call(name, method, *arguments, timeout_ms=10_000)
            except (NotController, PeerLost, PeerTimeout):
                await self.runtime.sleep(0.1)

    async def until(self, holds: Callable[[], bool], seconds: float = 10) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, "it does not come true"
            await asyncio.sleep(0.01)

    async def agree_on(self, *topics: str) -> None:
        """Wait until all brokers have the same metadata, with exactly these topics."""

        def agree() -> bool:
            first, *others = self.images()
            return set(first.topic_ids) == set(topics) and all(one == first for one in others)

        await self.until(agree, 20)

    def lose(self, broker_id: int) -> None:
        """Kill a broker's process and release what it held."""
        lost = self.broker(broker_id)
        self.world.drop(broker_name(self.plan.cluster_id, broker_id))
        lost._data.close()
        for held in lost._reservations.values():
            held.close()

    async def come_back(self, broker_id: int) -> None:
        """Restart a broker with the arguments of its first start."""
        plan = next(one for one in self.plan.brokers if one.broker_id == broker_id)
        await self.runtime.spawn(
            broker_spec(
                cluster_id=self.plan.cluster_id,
                broker_id=broker_id,
                data=plan.directory,
                settings=plan.settings,
                broker_ids=self.broker_ids(),
                initial_voters=list(self.plan.initial_voters),
            )
        )


def play(
    story: Callable[[VirtualBrokers], Awaitable[None]], data: Path, seed: int, brokers: int = 3
) -> None:
    """Run a story on a cluster under virtual time."""

    async def main() -> None:
        world = VirtualWorld(lambda role: ROLES[role], seed)
        cluster = VirtualBrokers(world, data)
        await cluster.start(brokers)
        await story(cluster)
        await cluster.stop()

    run_in_virtual_time(lambda _: main())
