"""Many timers behind one of the runtime's timers."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

from raylog.actors.coordination.timers import FIRED_AT_ONCE, Timers
from tests.worlds.decorators import in_loop, in_world
from tests.worlds.runtime import FakeRuntime

Scenario = Callable[[FakeRuntime, Timers, list[str]], Coroutine[Any, Any, None]]
A, B, C = (("a", ("session",)), ("b", ("session",)), ("c", ("session",)))


def run(scenario: Scenario) -> None:
    async def main() -> None:
        runtime = FakeRuntime()
        fired: list[str] = []
        timers = Timers(runtime, lambda group_id, _: fired.append(group_id))  # type: ignore[arg-type]  # a fake
        await scenario(runtime, timers, fired)

    asyncio.run(main())


@in_world(run)
async def test_each_fires_once_in_order(
    runtime: FakeRuntime, timers: Timers, fired: list[str]
) -> None:
    now = runtime.monotonic_ms()
    timers.set(B, now + 20)
    timers.set(A, now + 10)
    assert runtime.pending_timers() == 1
    await runtime.advance(9)
    assert fired == []
    await runtime.advance(1)
    assert fired == ["a"]
    await runtime.advance(100)
    assert fired == ["a", "b"]
    assert len(timers) == 0
    assert runtime.pending_timers() == 0


@in_world(run)
async def test_timer_that_is_postponed_repeatedly_fires_once(
    runtime: FakeRuntime, timers: Timers, fired: list[str]
) -> None:
    for _ in range(100):
        timers.set(A, runtime.monotonic_ms() + 10)
        await runtime.advance(5)
    assert fired == []
    assert runtime.pending_timers() == 1
    await runtime.advance(5)
    assert fired == ["a"]


@in_world(run)
async def test_one_may_be_brought_forward(
    runtime: FakeRuntime, timers: Timers, fired: list[str]
) -> None:
    now = runtime.monotonic_ms()
    timers.set(A, now + 1000)
    timers.set(A, now + 10)
    await runtime.advance(10)
    assert fired == ["a"]
    await runtime.advance(2000)
    assert fired == ["a"]


@in_world(run)
async def test_cancelled_or_cleared_timer_does_not_fire(
    runtime: FakeRuntime, timers: Timers, fired: list[str]
) -> None:
    now = runtime.monotonic_ms()
    timers.set(A, now + 10)
    timers.cancel(A)
    timers.cancel(B)
    await runtime.advance(20)
    timers.set(B, now + 30)
    timers.clear()
    await runtime.advance(20)
    assert fired == []
    timers.set(A, runtime.monotonic_ms() + 1)
    await runtime.advance(1)
    assert fired == ["a"]


@in_loop
async def test_one_set_again_while_it_fires_fires_again() -> None:
    runtime = FakeRuntime()
    fired: list[float] = []

    def fire(*_: object) -> None:
        fired.append(runtime.monotonic_ms())
        if len(fired) < 3:
            timers.set(A, runtime.monotonic_ms() + 10)

    timers = Timers(runtime, fire)  # type: ignore[arg-type]  # a fake
    timers.set(A, runtime.monotonic_ms() + 10)
    await runtime.advance(100)
    assert len(fired) == 3


@in_loop
async def test_timer_cancelled_by_another_of_the_same_moment_does_not_fire() -> None:
    """A member's end turns its group into one of another kind, which has no such timers."""

    runtime = FakeRuntime()
    fired: list[str] = []

    def fire(group_id: str, _: object) -> None:
        fired.append(group_id)
        timers.cancel(B)
        timers.set(C, runtime.monotonic_ms() + 5)

    timers = Timers(runtime, fire)  # type: ignore[arg-type]  # a fake
    now = runtime.monotonic_ms()
    for name in (A, B, C):
        timers.set(name, now + 10)
    await runtime.advance(10)
    assert fired == ["a"]
    await runtime.advance(5)
    assert fired == ["a", "c"]


@in_world(run)
async def test_one_is_ensured_unless_it_is_there(
    runtime: FakeRuntime, timers: Timers, fired: list[str]
) -> None:
    now = runtime.monotonic_ms()
    timers.set(A, now + 10)
    timers.ensure(A, now + 100)
    timers.ensure(B, now + 20)
    await runtime.advance(50)
    assert fired == ["a", "b"]
    timers.ensure(A, now + 60)
    await runtime.advance(10)
    assert fired == ["a", "b", "a"]


@in_world(run)
async def test_nothing_stays_of_timers_that_were_cancelled_or_brought_forward(
    runtime: FakeRuntime, timers: Timers, fired: list[str]
) -> None:
    now, weeks_ms = runtime.monotonic_ms(), 2.0**31
    timers.set(B, now + 50)
    for number in range(1_000):
        name = (f"x{number}" * 100, ("sync",))
        timers.set(name, now + weeks_ms)
        timers.cancel(name)
        timers.set(A, now + weeks_ms - number)
    kept = gc.get_referents(timers._heap, timers._queued)
    assert len(kept) < 400
    timers.set(A, now + 20)
    await runtime.advance(100)
    assert fired == ["a", "b"]
    assert runtime.pending_timers() <= 1


@in_world(run)
async def test_many_of_one_moment_fire_some_in_a_turn(
    runtime: FakeRuntime, timers: Timers, fired: list[str]
) -> None:
    for number in range(1_000):
        timers.set((f"g{number}", ("session",)), runtime.monotonic_ms() + 10)
    looks: list[int] = []
    look = timers._look

    def counted() -> None:
        look()
        looks.append(len(fired))

    timers._look = counted  # type: ignore[method-assign]  # to count
    timers.set(A, runtime.monotonic_ms() + 5)
    await runtime.advance(10)
    assert looks[-1] == 1_001
    steps = [later - before for before, later in pairwise([0, *looks])]
    assert max(steps) <= FIRED_AT_ONCE
    assert fired[1:] == [f"g{number}" for number in range(1_000)], "in their order"
