"""A child is told things in order; the controller is asked until it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raylog.actors.broker.children import Child
from raylog.actors.broker.controller_port import ControllerPort
from raylog.actors.controller.api import BrokerHeartbeat, BrokerHeartbeatAnswer
from raylog.actors.names import controller_name
from raylog.actors.runtime.base import (
    ActorGone,
    ActorSpec,
    LinkRequest,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.actors.runtime.inproc import InprocRuntime, InprocWorld
from raylog.wire.errors import (
    InvalidRequest,
    KafkaError,
    NotController,
    StaleBrokerEpoch,
)
from tests.support.brokers import Silent


class Listener(Silent):
    """Notes what it is told; slow or failing if asked."""

    def __init__(self, runtime: Runtime, **_: object) -> None:
        self.heard: list[Any] = []
        self.failures: list[KafkaError] = []

    async def hear(self, what: Any) -> Any:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        self.heard.append(what)
        return what


class World:
    def __init__(self) -> None:
        self.world = InprocWorld(lambda _: Listener)
        self.runtime: InprocRuntime = self.world.runtime()

    async def spawn(self, name: str) -> Listener:
        await self.runtime.spawn(ActorSpec(name, "listener"))
        actor = self.world.resident(name).actor
        assert isinstance(actor, Listener)
        return actor


def tell(story: Callable[[World], Awaitable[None]]) -> None:
    async def told() -> None:
        world = World()
        await story(world)
        assert world.world.failures == []

    asyncio.run(told())


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


# ---- children --------------------------------------------------------------------------------


def test_calls_are_made_one_after_the_other_in_order() -> None:
    async def story(world: World) -> None:
        listener = await world.spawn("a")
        child = Child(world.runtime, await world.runtime.find("a"), lambda _: None)
        answers: list[int] = []

        def answered(value: int) -> None:
            answers.append(value)
            if value < 3:
                child.post("hear", value + 10, answered=answered)

        for value in range(3):
            child.post("hear", value, answered=answered)
        assert not child.is_idle
        await settle()
        assert listener.heard == answers == [0, 1, 2, 10, 11, 12]
        assert child.is_idle

    tell(story)


def test_it_is_idle_when_the_last_answer_is_told() -> None:
    async def story(world: World) -> None:
        await world.spawn("a")
        child = Child(world.runtime, await world.runtime.find("a"), lambda _: None)
        idle: list[bool] = []
        for value in range(2):
            child.post("hear", value, answered=lambda _: idle.append(child.is_idle))
        await settle()
        assert idle == [False, True]

    tell(story)


def test_a_lost_child_is_reported_once_and_told_nothing_more() -> None:
    async def story(world: World) -> None:
        await world.spawn("a")
        lost: list[Child] = []
        child = Child(world.runtime, await world.runtime.find("a"), lost.append)
        child.post("hear", 1)
        await world.runtime.kill(child.ref)
        await settle()
        child.post("hear", 2)
        await settle()
        assert lost == [child]

    tell(story)


def test_a_child_that_fails_a_call_is_ended() -> None:
    async def story(world: World) -> None:
        listener = await world.spawn("a")
        listener.failures.append(InvalidRequest("no"))
        lost: list[Child] = []
        child = Child(world.runtime, await world.runtime.find("a"), lost.append)
        child.post("hear", 1)
        child.post("hear", 2)
        await settle()
        assert lost == [child]
        assert listener.heard == []
        assert "a" not in world.world._residents

    tell(story)


def test_a_child_that_does_not_answer_is_ended() -> None:
    class Deaf(Listener):
        async def hear(self, what: Any) -> Any:
            await asyncio.Event().wait()

    async def told() -> None:
        world = World()
        world.world = InprocWorld(lambda _: Deaf)
        world.runtime = world.world.runtime()
        await world.spawn("a")
        lost: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        child = Child(world.runtime, await world.runtime.find("a"), lost.set_result)
        child.post("hear", 1, timeout_ms=1)
        async with asyncio.timeout(60):
            assert await lost is child

    asyncio.run(told())


def test_a_forgotten_child_may_end() -> None:
    async def story(world: World) -> None:
        await world.spawn("a")
        lost: list[Child] = []
        child = Child(world.runtime, await world.runtime.find("a"), lost.append)
        child.forget()
        await world.runtime.kill(child.ref)
        await settle()
        assert lost == []

    tell(story)


# ---- the controller --------------------------------------------------------------------------


class Port(World):
    """A port to a controller that `ensure` starts."""

    def __init__(self) -> None:
        super().__init__()
        self.ensured = 0
        self.port = ControllerPort(self.runtime, "c", self.ensure)

    async def ensure(self) -> None:
        self.ensured += 1
        if controller_name("c") not in self.world._residents:
            await self.spawn(controller_name("c"))

    async def controller(self) -> Listener:
        return await self.spawn(controller_name("c"))


def test_a_missing_controller_is_started_and_asked_again() -> None:
    async def told() -> None:
        world = Port()
        assert await world.port.insist("hear", 7, timeout_ms=1_000) == 7
        assert world.ensured == 1

    asyncio.run(told())


def test_what_may_pass_is_tried_again_and_a_refusal_is_raised() -> None:
    async def told() -> None:
        world = Port()
        controller = await world.controller()
        controller.failures += [NotController("not yet"), NotController("not yet")]
        assert await world.port.insist("hear", 7, timeout_ms=1_000) == 7
        controller.failures.append(InvalidRequest("never"))
        with pytest.raises(InvalidRequest, match="never"):
            await world.port.insist("hear", 8, timeout_ms=1_000)
        assert world.ensured == 2

    asyncio.run(told())


def test_reports_arrive_in_order_and_stale_ones_are_dropped() -> None:
    async def told() -> None:
        world = Port()
        controller = await world.controller()
        controller.failures += [NotController("not yet"), StaleBrokerEpoch("old")]
        for value in range(3):
            world.port.report("hear", value, 1_000)
        async with asyncio.timeout(60):
            while len(controller.heard) < 2:  # noqa: ASYNC110 - the actor raises no event for it
                await asyncio.sleep(0.001)
        assert controller.heard == [1, 2]
        world.port.report("hear", 3, 1_000)
        await settle()
        assert controller.heard == [1, 2, 3]

    asyncio.run(told())


class Beating(Listener):
    """A controller that answers heartbeats over links as told."""

    deaf = False

    def link_received(self, request: LinkRequest) -> None:
        self.heard.append(request.header)
        if self.failures:
            request.fail(self.failures.pop(0))
        elif not self.deaf:
            request.reply([False, False, 9])

    async def heartbeat(self, asked: BrokerHeartbeat) -> BrokerHeartbeatAnswer:
        self.heard.append(asked)
        return BrokerHeartbeatAnswer(True, False, 8)


BEAT = BrokerHeartbeat(0, 5, 7)


async def beating() -> tuple[Port, Beating]:
    world = Port()
    world.world = InprocWorld(lambda _: Beating)
    world.runtime = world.world.runtime()
    world.port = ControllerPort(world.runtime, "c", world.ensure)
    controller = await world.controller()
    assert isinstance(controller, Beating)
    return world, controller


def test_heartbeats_go_over_a_link() -> None:
    async def told() -> None:
        world, controller = await beating()
        for _ in range(2):
            answer = await world.port.heartbeat(BEAT, 1_000)
            assert answer == BrokerHeartbeatAnswer(False, False, 9)
        assert controller.heard == [[0, 5, 7, False, -1, -1]] * 2
        controller.failures.append(StaleBrokerEpoch("old"))
        with pytest.raises(StaleBrokerEpoch):
            await world.port.heartbeat(BEAT, 1_000)
        controller.deaf = True
        with pytest.raises(PeerTimeout):
            await world.port.heartbeat(BEAT, 1)
        world.port.close()

    asyncio.run(told())


def test_a_link_is_opened_anew_to_the_next_controller() -> None:
    async def told() -> None:
        world, _ = await beating()
        await world.port.heartbeat(BEAT, 1_000)
        await world.runtime.kill(await world.runtime.find(controller_name("c")))
        with pytest.raises(ActorGone):
            await world.port.heartbeat(BEAT, 1_000)
        await world.controller()
        assert (await world.port.heartbeat(BEAT, 1_000)).offset == 9

    asyncio.run(told())


def test_without_a_link_heartbeats_are_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told() -> None:
        world, controller = await beating()

        async def unreachable(*_: object) -> None:
            raise PeerLost("another node")

        monkeypatch.setattr(world.runtime, "connect", unreachable)
        assert (await world.port.heartbeat(BEAT, 1_000)).offset == 8
        assert controller.heard == [BEAT]

    asyncio.run(told())
