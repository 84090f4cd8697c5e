"""Three voters, in virtual time: who starts a controller when, and that only one counts."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.broker.actor import BrokerActor
from raylog.actors.cluster import plan_cluster, start_cluster, stop_cluster
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.api import CreateTopics, NewTopic
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
from raylog.actors.runtime.base import ActorSpec, PeerLost, PeerTimeout
from raylog.actors.simulation.loop import run_in_virtual_time
from raylog.wire.errors import KafkaError, NotController
from tests.support.brokers import NotingCoordinator, NotingGateway, NotingReplica
from tests.support.virtual import VirtualWorld

ROLES: dict[str, Callable[..., Any]] = {
    BROKER: BrokerActor,
    CONTROLLER: ControllerActor,
    GATEWAY: NotingGateway,
    REPLICA: NotingReplica,
    GROUP: NotingCoordinator,
}


class Trio:
    """Three brokers, all voters."""

    def __init__(self, world: VirtualWorld, data: Path) -> None:
        self.world = world
        self.runtime = world.runtime()
        self.data = data

    async def start(self) -> None:
        self.plan = plan_cluster(
            self.data,
            self.runtime,
            host="127.0.0.1",
            ports=[0] * 3,
            settings={"metadata.log.fsync": "false", "replica.actors.spare": "0"},
        )
        await start_cluster(self.runtime, self.plan)
        self.first = controller_name(self.plan.cluster_id)

    async def stop(self) -> None:
        left = await stop_cluster(self.runtime, self.plan.cluster_id, [0, 1, 2])
        assert left == {}
        assert self.world.failures == []
        assert [one.ref.name for one in self.world.residents() if one.ref.role == BROKER] == []

    def broker(self, broker_id: int) -> BrokerActor:
        actor = self.world.resident(broker_name(self.plan.cluster_id, broker_id)).actor
        assert isinstance(actor, BrokerActor)
        return actor

    def images(self) -> list[MetadataImage]:
        return [self.broker(one)._machine.image for one in range(3)]

    def controllers(self) -> list[str]:
        return [one.ref.name for one in self.world.residents() if one.ref.role == CONTROLLER]

    def serving(self) -> list[str]:
        """Controllers that would answer."""
        found = []
        for resident in self.world.residents():
            if isinstance(resident.actor, ControllerActor):
                try:
                    resident.actor._serving()
                except NotController:
                    continue
                found.append(resident.ref.name)
        return found

    async def create(self, name: str) -> None:
        """Create a topic with the controller that broker 2 knows."""
        while True:
            try:
                [outcome] = await self.runtime.call(
                    await self.broker(2).controller(),
                    "create_topics",
                    CreateTopics([NewTopic(name, 1, 3)]),
                    timeout_ms=2_000,
                )
            except (KafkaError, PeerLost, PeerTimeout):
                await self.runtime.sleep(0.1)
            else:
                assert outcome.error == 0, outcome
                return

    async def until(self, holds: Callable[[], bool], seconds: float = 10) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, "it does not come true"
            await asyncio.sleep(0.01)

    async def agree_on(self, *topics: str) -> None:
        """Wait until all brokers know these topics, and nothing else."""

        def agree() -> bool:
            first, *others = self.images()
            return set(first.topic_ids) == set(topics) and all(one == first for one in others)

        await self.until(agree, 20)


def play(story: Callable[[Trio], Awaitable[None]], data: Path, seed: int) -> None:
    async def main() -> None:
        world = VirtualWorld(lambda role: ROLES[role], seed)
        trio = Trio(world, data)
        await trio.start()
        await story(trio)
        await trio.stop()

    run_in_virtual_time(lambda _: main())


SEEDS = range(3)


def test_the_first_three_brokers_of_a_new_cluster_hold_the_metadata_log(tmp_path: Path) -> None:
    async def story(trio: Trio) -> None:
        assert [broker_id for broker_id, _ in trio.plan.initial_voters] == [0, 1, 2]
        await trio.create("t")
        await trio.agree_on("t")
        for image in trio.images():
            assert image.voters == trio.plan.initial_voters
            assert (image.controller_epoch, image.controller) == (1, trio.first)
        assert trio.controllers() == [trio.first]

    play(story, tmp_path, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_controller_that_is_gone_is_replaced_under_another_name(
    tmp_path: Path, seed: int
) -> None:
    async def story(trio: Trio) -> None:
        await trio.create("before")
        trio.world.drop(trio.first)
        began = asyncio.get_running_loop().time()
        await trio.create("after")
        assert asyncio.get_running_loop().time() - began < 6
        await trio.agree_on("before", "after")
        for image in trio.images():
            assert image.controller.startswith(f"{trio.first}/")
            assert all(broker.is_live for broker in image.brokers.values())

    play(story, tmp_path, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_controller_decides_that_is_cut_off_never_counts(tmp_path: Path, seed: int) -> None:
    async def story(trio: Trio) -> None:
        await trio.create("before")
        zombie = trio.world.resident(trio.first).actor
        assert isinstance(zombie, ControllerActor)
        trio.world.cut_off(trio.first)
        creating = asyncio.ensure_future(zombie.create_topics(CreateTopics([NewTopic("lost")])))
        await trio.until(lambda: bool(trio.serving()) and trio.first not in trio.serving())
        with pytest.raises(NotController):
            await creating
        await trio.create("after")
        trio.world.cut.clear()
        await trio.until(lambda: trio.first not in trio.controllers(), 20)
        await trio.agree_on("before", "after")
        assert len(trio.serving()) == 1

    play(story, tmp_path, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_never_do_two_controllers_serve(tmp_path: Path, seed: int) -> None:
    async def story(trio: Trio) -> None:
        names = {trio.first}
        for _ in range(3):
            trio.world.cut_off(trio.serving()[0])
            for _ in range(800):
                await asyncio.sleep(0.01)
                assert len(trio.serving()) <= 1
                names.update(trio.serving())
            trio.world.cut.clear()
            await trio.until(lambda: len(trio.serving()) == 1)
        assert len(names) >= 2
        await trio.create("t")

    play(story, tmp_path, seed)


def test_a_cluster_goes_on_where_it_was_with_two_of_its_voters(tmp_path: Path) -> None:
    async def story(trio: Trio) -> None:
        await trio.create("t")
        name = broker_name(trio.plan.cluster_id, 1)
        lost = trio.broker(1)
        trio.world.drop(name)
        lost._data.close()  # what the end of its process would let go
        assert lost._reservation is not None
        lost._reservation.close()
        trio.world.drop(trio.first)
        await trio.create("u")
        plan = next(one for one in trio.plan.brokers if one.broker_id == 1)
        await trio.runtime.spawn(
            ActorSpec(
                name,
                BROKER,
                {
                    "cluster_id": trio.plan.cluster_id,
                    "broker_id": 1,
                    "data": str(plan.directory),
                    "settings": plan.settings,
                    "broker_ids": [0, 1, 2],
                    "initial_voters": list(trio.plan.initial_voters),
                },
            )
        )
        await trio.agree_on("t", "u")

    play(story, tmp_path, 0)
