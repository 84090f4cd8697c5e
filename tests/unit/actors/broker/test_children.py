"""A child gets messages in order; calls to the controller are repeated until it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from raylog.actors.broker.children import Child
from raylog.actors.broker.controller_handle import ControllerHandle
from raylog.actors.controller.messages import BrokerHeartbeat, BrokerHeartbeatAnswer
from raylog.actors.names import controller_name
from raylog.actors.remote import Method
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
from tests.worlds.broker.recording import Silent
from tests.worlds.decorators import in_loop, in_world

HEAR: Method[int, Any] = cast("Any", "hear")


class Listener(Silent):
    """Records the messages it gets; is slow or fails on request."""

    def __init__(self, runtime: Runtime, **_: object) -> None:
        self.received: list[Any] = []
        self.failures: list[KafkaError] = []

    async def hear(self, what: Any) -> Any:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        self.received.append(what)
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
    async def main() -> None:
        world = World()
        await story(world)
        assert world.world.failures == []

    asyncio.run(main())


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


# ---- children --------------------------------------------------------------------------------


@in_world(tell)
async def test_calls_are_made_one_after_the_other_in_order(world: World) -> None:
    listener = await world.spawn("a")
    child = Child(world.runtime, await world.runtime.find("a"), lambda _: None)
    answers: list[int] = []

    def answered(value: int) -> None:
        answers.append(value)
        if value < 3:
            child.post(HEAR, value + 10, answered=answered)

    for value in range(3):
        child.post(HEAR, value, answered=answered)
    assert not child.is_idle
    await settle()
    assert listener.received == answers == [0, 1, 2, 10, 11, 12]
    assert child.is_idle


@in_world(tell)
async def test_child_is_idle_when_the_last_answer_is_reported(world: World) -> None:
    await world.spawn("a")
    child = Child(world.runtime, await world.runtime.find("a"), lambda _: None)
    idle: list[bool] = []
    for value in range(2):
        child.post(HEAR, value, answered=lambda _: idle.append(child.is_idle))
    await settle()
    assert idle == [False, True]


@in_world(tell)
async def test_a_lost_child_is_reported_once_and_told_nothing_more(world: World) -> None:
    await world.spawn("a")
    lost: list[Child] = []
    child = Child(world.runtime, await world.runtime.find("a"), lost.append)
    child.post(HEAR, 1)
    await world.runtime.kill(child.ref)
    await settle()
    child.post(HEAR, 2)
    await settle()
    assert lost == [child]


@in_world(tell)
async def test_a_child_that_fails_a_call_is_ended(world: World) -> None:
    listener = await world.spawn("a")
    listener.failures.append(InvalidRequest("no"))
    lost: list[Child] = []
    child = Child(world.runtime, await world.runtime.find("a"), lost.append)
    child.post(HEAR, 1)
    child.post(HEAR, 2)
    await settle()
    assert lost == [child]
    assert listener.received == []
    assert "a" not in world.world._residents


def test_a_child_that_does_not_answer_is_ended() -> None:
    class Deaf(Listener):
        async def hear(self, what: Any) -> Any:
            await asyncio.Event().wait()

    async def main() -> None:
        world = World()
        world.world = InprocWorld(lambda _: Deaf)
        world.runtime = world.world.runtime()
        await world.spawn("a")
        lost: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        child = Child(world.runtime, await world.runtime.find("a"), lost.set_result)
        child.post(HEAR, 1, timeout_ms=1)
        async with asyncio.timeout(60):
            assert await lost is child

    asyncio.run(main())


@in_world(tell)
async def test_a_forgotten_child_may_end(world: World) -> None:
    await world.spawn("a")
    lost: list[Child] = []
    child = Child(world.runtime, await world.runtime.find("a"), lost.append)
    child.forget()
    await world.runtime.kill(child.ref)
    await settle()
    assert lost == []


# ---- the controller --------------------------------------------------------------------------


class HandleWorld(World):
    """A handle to a controller, which `ensure` starts."""

    def __init__(self) -> None:
        super().__init__()
        self.ensured = 0
        self.handle = ControllerHandle(self.runtime, "c", self.ensure)

    async def ensure(self) -> None:
        self.ensured += 1
        if controller_name("c") not in self.world._residents:
            await self.spawn(controller_name("c"))

    async def controller(self) -> Listener:
        return await self.spawn(controller_name("c"))


@in_loop
async def test_a_missing_controller_is_started_and_asked_again() -> None:
    world = HandleWorld()
    assert await world.handle.insist(HEAR, 7, timeout_ms=1_000) == 7
    assert world.ensured == 1


@in_loop
async def test_insist_retries_transient_errors_and_raises_refusals() -> None:
    world = HandleWorld()
    controller = await world.controller()
    controller.failures += [NotController("not yet"), NotController("not yet")]
    assert await world.handle.insist(HEAR, 7, timeout_ms=1_000) == 7
    controller.failures.append(InvalidRequest("never"))
    with pytest.raises(InvalidRequest, match="never"):
        await world.handle.insist(HEAR, 8, timeout_ms=1_000)
    assert world.ensured == 2


@in_loop
async def test_reports_arrive_in_order_and_stale_ones_are_dropped() -> None:
    world = HandleWorld()
    controller = await world.controller()
    controller.failures += [NotController("not yet"), StaleBrokerEpoch("old")]
    for value in range(3):
        world.handle.report(HEAR, value, 1_000)
    async with asyncio.timeout(60):
        while len(controller.received) < 2:  # noqa: ASYNC110 - the actor raises no event for it
            await asyncio.sleep(0.001)
    assert controller.received == [1, 2]
    world.handle.report(HEAR, 3, 1_000)
    await settle()
    assert controller.received == [1, 2, 3]


class Beating(Listener):
    """A controller that gives scripted answers to heartbeats over links."""

    deaf = False

    def link_received(self, request: LinkRequest) -> None:
        self.received.append(request.header)
        if self.failures:
            request.fail(self.failures.pop(0))
        elif not self.deaf:
            request.reply([False, False, 9])

    async def heartbeat(self, asked: BrokerHeartbeat) -> BrokerHeartbeatAnswer:
        self.received.append(asked)
        return BrokerHeartbeatAnswer(True, False, 8)


BEAT = BrokerHeartbeat(0, 5, 7)


async def beating() -> tuple[HandleWorld, Beating]:
    world = HandleWorld()
    world.world = InprocWorld(lambda _: Beating)
    world.runtime = world.world.runtime()
    world.handle = ControllerHandle(world.runtime, "c", world.ensure)
    controller = await world.controller()
    assert isinstance(controller, Beating)
    return world, controller


@in_loop
async def test_heartbeats_go_over_a_link() -> None:
    world, controller = await beating()
    for _ in range(2):
        answer = await world.handle.heartbeat(BEAT, 1_000)
        assert answer == BrokerHeartbeatAnswer(False, False, 9)
    assert controller.received == [[0, 5, 7, False, -1, -1]] * 2
    controller.failures.append(StaleBrokerEpoch("old"))
    with pytest.raises(StaleBrokerEpoch):
        await world.handle.heartbeat(BEAT, 1_000)
    controller.deaf = True
    with pytest.raises(PeerTimeout):
        await world.handle.heartbeat(BEAT, 1)
    world.handle.close()


@in_loop
async def test_a_link_is_opened_anew_to_the_next_controller() -> None:
    world, _ = await beating()
    await world.handle.heartbeat(BEAT, 1_000)
    await world.runtime.kill(await world.runtime.find(controller_name("c")))
    with pytest.raises(ActorGone):
        await world.handle.heartbeat(BEAT, 1_000)
    await world.controller()
    assert (await world.handle.heartbeat(BEAT, 1_000)).offset == 9


@in_loop
async def test_without_a_link_heartbeats_are_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    world, controller = await beating()

    async def unreachable(*_: object) -> None:
        raise PeerLost("another node")

    monkeypatch.setattr(world.runtime, "connect", unreachable)
    assert (await world.handle.heartbeat(BEAT, 1_000)).offset == 8
    assert controller.received == [BEAT]
