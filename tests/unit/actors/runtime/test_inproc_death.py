"""What the end of an actor means for its peers, in the in-process runtime."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raylog.actors.runtime.base import (
    ActorSpec,
    LinkRequest,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.actors.runtime.inproc import InprocRuntime, InprocWorld
from tests.worlds.decorators import in_world


class Sleeper:
    """Answers on request; records messages about other actors."""

    def __init__(self, runtime: Runtime, **_: object) -> None:
        self.runtime = runtime
        self.lost: list[str] = []
        self.events: list[object] = []
        self.asked: list[LinkRequest] = []
        self.woken = asyncio.Event()

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def answer(self) -> str:
        await self.woken.wait()
        return "awake"

    async def ask(self, name: str) -> None:
        link = await self.runtime.connect(name)
        link.request("k", None, (), lambda *_: self.events.append("answer"), self.events.append)
        link.on_lost(lambda: self.events.append("lost"))
        self.runtime.call_later(1, lambda: self.events.append("time"))

    def link_received(self, request: LinkRequest) -> None:
        self.asked.append(request)

    def link_lost(self, peer: int) -> None:
        self.asked.clear()

    async def watch(self, name: str) -> None:
        ref = await self.runtime.find(name)
        self.runtime.watch(ref, lambda peer: self.lost.append(peer.name))


def tell(story: Callable[[InprocWorld, InprocRuntime], Awaitable[Any]]) -> None:
    async def main() -> None:
        world = InprocWorld(lambda _: Sleeper)
        runtime = world.runtime()
        for name in ("a", "b"):
            await runtime.spawn(ActorSpec(name, "sleeper"))
        await story(world, runtime)

    asyncio.run(main())


@in_world(tell)
async def test_calls_that_an_actor_has_not_answered_end_with_it(
    world: InprocWorld, runtime: InprocRuntime
) -> None:
    call = asyncio.ensure_future(runtime.call("a", "answer", timeout_ms=60_000))
    await asyncio.sleep(0)
    await runtime.kill(await runtime.find("a"))
    with pytest.raises(PeerLost, match="a ended during answer"):
        await call


@in_world(tell)
async def test_a_caller_that_is_cancelled_is_cancelled_and_not_lost(
    world: InprocWorld, runtime: InprocRuntime
) -> None:
    call = asyncio.ensure_future(runtime.call("a", "answer", timeout_ms=60_000))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@in_world(tell)
async def test_a_late_answer_is_a_timeout(world: InprocWorld, runtime: InprocRuntime) -> None:
    with pytest.raises(PeerTimeout, match="answer of a took over 1 ms"):
        await runtime.call("a", "answer", timeout_ms=1)


@in_world(tell)
async def test_the_dead_watch_nobody(world: InprocWorld, runtime: InprocRuntime) -> None:
    await runtime.call("a", "watch", "b", timeout_ms=1_000)
    watcher = world.resident("a").actor
    assert isinstance(watcher, Sleeper)
    await runtime.kill(await runtime.find("a"))
    await runtime.kill(await runtime.find("b"))
    assert watcher.lost == []


@in_world(tell)
async def test_the_dead_hear_no_answers_and_no_clock(
    world: InprocWorld, runtime: InprocRuntime
) -> None:
    await runtime.call("a", "ask", "b", timeout_ms=1_000)
    a, b = world.resident("a").actor, world.resident("b").actor
    assert isinstance(a, Sleeper)
    assert isinstance(b, Sleeper)
    (request,) = b.asked
    await runtime.kill(await runtime.find("a"))
    assert b.asked == []
    request.reply("late")
    await runtime.kill(await runtime.find("b"))
    await asyncio.sleep(0.005)
    assert a.events == []
