"""What happens when a call fails: the same in one process and under virtual time.

`tests/cluster/test_ray_runtime.py` tests the same on Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raylog.actors.places import Place, on_node
from raylog.actors.runtime.base import (
    ActorGone,
    ActorSpec,
    LinkRequest,
    PeerLost,
    PeerTimeout,
    Runtime,
)
from raylog.actors.runtime.inproc import InprocWorld
from raylog.simulation.loop import SimLoop, run_in_virtual_time
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.world import World
from raylog.wire.errors import InvalidRequest, UnsupportedVersion


class Clerk:
    """An actor that fails on request."""

    def __init__(self, runtime: Runtime, failure: BaseException | None = None) -> None:
        self._runtime = runtime
        self._failure = failure

    async def start(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None: ...

    async def fail(self, failure: BaseException) -> None:
        raise failure

    async def echo(self, value: int) -> int:
        return value

    async def nap(self) -> None:
        await self._runtime.sleep(3600)

    def link_received(self, request: LinkRequest) -> None: ...

    def link_lost(self, peer: int) -> None: ...


class Stage:
    """A runtime with the clerk, and its record of broken actors."""

    def __init__(self, runtime: Runtime, failures: list[Any]) -> None:
        self.runtime = runtime
        self.failures = failures

    async def call(self, method: str, *args: Any) -> Any:
        return await self.runtime.call("clerk", method, *args, timeout_ms=5_000)

    async def spawn(self, failure: BaseException | None = None) -> None:
        args = {} if failure is None else {"failure": failure}
        await self.runtime.spawn(ActorSpec("clerk", "clerk", args, place=self.place))

    place: Place | None = None

    async def is_gone(self) -> bool:
        try:
            await self.runtime.find("clerk")
        except ActorGone:
            return True
        return False


Story = Callable[[Stage], Awaitable[None]]


def in_one_process(story: Story) -> None:
    async def main() -> None:
        world = InprocWorld(lambda _: Clerk)
        await story(Stage(world.runtime(), world.failures))

    asyncio.run(main())


def simulated(story: Story) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, 0, lambda _: Clerk, SimRuntime)
        world.add_machine("m")
        stage = Stage(SimRuntime(world), world.failures)
        stage.place = on_node("m")
        await story(stage)

    run_in_virtual_time(main)


@pytest.fixture(params=[in_one_process, simulated])
def tell(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    caller: Callable[[Story], None] = request.param
    return caller


Tell = Callable[[Story], None]


@pytest.mark.parametrize("failure", [KeyError("x"), AssertionError("x"), OSError("x")])
def test_a_mistake_ends_the_callee_and_its_callers_hear_that_it_is_lost(
    tell: Tell, failure: Exception
) -> None:
    async def story(stage: Stage) -> None:
        await stage.spawn()
        waiting = asyncio.ensure_future(stage.call("nap"))
        await stage.call("echo", 1)
        with pytest.raises(PeerLost):
            await stage.call("fail", failure)
        with pytest.raises(PeerLost):
            await waiting
        assert await stage.is_gone()
        if not isinstance(failure, OSError):
            assert len(stage.failures) == 1

    tell(story)


def test_a_refusal_is_raised_and_the_callee_goes_on(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.spawn()
        with pytest.raises(InvalidRequest, match="no"):
            await stage.call("fail", InvalidRequest("no"))
        assert await stage.call("echo", 7) == 7
        assert stage.failures == []

    tell(story)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(PeerLost("x"), PeerLost), (PeerTimeout("x"), PeerTimeout), (ActorGone("x"), PeerLost)],
)
def test_whom_the_callee_did_not_reach_is_no_mistake_of_its(
    tell: Tell, raised: Exception, expected: type[Exception]
) -> None:
    async def story(stage: Stage) -> None:
        await stage.spawn()
        with pytest.raises(expected, match="x"):
            await stage.call("fail", raised)
        assert await stage.call("echo", 7) == 7

    tell(story)


def test_unknown_method_or_signature_is_unsupported_version(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.spawn()
        for asked in (("sing",), ("echo",), ("echo", 1, 2), ("_failure",)):
            with pytest.raises(UnsupportedVersion, match=asked[0]):
                await stage.call(*asked)
        assert await stage.call("echo", 7) == 7

    tell(story)


def test_a_deadline_is_not_mixed_up_with_a_timeout_inside_the_callee(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.spawn()
        with pytest.raises(PeerTimeout):
            await stage.runtime.call("clerk", "nap", timeout_ms=1)
        with pytest.raises(PeerLost):
            await stage.call("fail", TimeoutError("a mistake"))
        assert await stage.is_gone()

    tell(story)


def test_a_start_that_fails_is_reported_and_leaves_nobody(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(InvalidRequest, match="no"):
            await stage.spawn(InvalidRequest("no"))
        for failure in (OSError("in use"), KeyError("x")):
            with pytest.raises(PeerLost, match=r"clerk: \w+Error: "):
                await stage.spawn(failure)
            assert await stage.is_gone()
        assert len(stage.failures) == 1, "a mistake in a start is one"
        await stage.spawn()

    tell(story)
