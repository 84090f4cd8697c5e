"""Simulated machines: time that jumps, processes that die or stop, a network that is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from raylog.actors.places import on_node
from raylog.actors.runtime.base import (
    ActorGone,
    ActorRef,
    ActorSpec,
    LinkRequest,
    PeerLost,
    PeerTimeout,
)
from raylog.simulation.loop import SimLoop, SimulationStuck, run_in_virtual_time
from raylog.simulation.network import Weather
from raylog.simulation.runtime import LATE_S, SimRuntime
from raylog.simulation.transactions.faults import Ended
from raylog.simulation.world import World
from tests.worlds.decorators import in_world

T = TypeVar("T")


class Counter:
    """Counts its requests; ticks every second."""

    def __init__(self, runtime: SimRuntime, start_s: float = 0) -> None:
        self.runtime = runtime
        self._start_s = start_s
        self.asked = 0
        self.ticks: list[float] = []
        self.cleaned_up = False

    async def start(self) -> None:
        await self.runtime.sleep(self._start_s)
        self.runtime.start(self._tick(), "tick")

    async def stop(self) -> None: ...

    async def _tick(self) -> None:
        try:
            while True:
                await self.runtime.sleep(1)
                self.ticks.append(self.runtime.monotonic_ms())
        finally:
            self.cleaned_up = True

    async def ask(self) -> int:
        self.asked += 1
        return self.asked

    async def nap(self) -> None:
        await self.runtime.sleep(3600)

    async def break_down(self) -> None:
        self.runtime.start(self._break(), "break")

    async def _break(self) -> None:
        raise AssertionError("broken")

    def link_received(self, request: LinkRequest) -> None:
        self.asked += 1
        request.reply(self.asked)

    def link_lost(self, peer: int) -> None:
        self.asked = -1


def simulate(main: Callable[[World], Coroutine[Any, Any, T]], seed: int = 0) -> T:
    async def begin(loop: SimLoop) -> T:
        world = World(loop, seed, lambda _: Counter, SimRuntime)
        world.add_machine("m")
        world.add_machine("n")
        return await main(world)

    return run_in_virtual_time(begin)


async def counter(world: World, *, restarts: bool = False) -> tuple[SimRuntime, ActorRef, Counter]:
    runtime = SimRuntime(world)
    ref = await runtime.spawn(ActorSpec("c", "counter", {}, on_node("m"), restarts))
    actor = world.resident(ref).actor
    assert isinstance(actor, Counter)
    return runtime, ref, actor


def test_simulation_without_events_is_stuck() -> None:
    async def main(world: World) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimulationStuck):
        simulate(main)


@in_world(simulate)
async def test_a_killed_process_runs_no_code_any_more(world: World) -> None:
    runtime, ref, actor = await counter(world)
    waiting = asyncio.ensure_future(runtime.call(ref, "nap", timeout_ms=10_000_000))
    await runtime.sleep(2.5)
    world.kill("c")
    with pytest.raises(PeerLost):
        await waiting
    await runtime.sleep(5)
    assert len(actor.ticks) == 2
    assert not actor.cleaned_up
    with pytest.raises(PeerLost):
        await runtime.call(ref, "ask", timeout_ms=1000)


@in_world(simulate)
async def test_a_paused_process_goes_on_where_it_was(world: World) -> None:
    runtime, ref, actor = await counter(world)
    world.pause(world.resident(ref), 10)
    with pytest.raises(PeerTimeout):
        await runtime.call(ref, "ask", timeout_ms=2000)
    assert actor.ticks == []
    await runtime.sleep(8.5)
    assert len(actor.ticks) == 1
    assert actor.asked == 1, "a call that timed out may yet take effect"


@in_world(simulate)
async def test_restarted_actor_is_a_new_instance(world: World) -> None:
    runtime, ref, _ = await counter(world, restarts=True)
    world.kill("c")
    await runtime.sleep(2)
    again = await runtime.find("c")
    assert again.instance != ref.instance
    world.stop_machine(world.machines["m"], power=True)
    await runtime.sleep(20)
    with pytest.raises(PeerLost):
        await runtime.call("c", "ask", timeout_ms=1000)
    world.start_machine(world.machines["m"])
    await runtime.sleep(2)
    assert await runtime.call("c", "ask", timeout_ms=1000) == 1


@in_world(simulate)
async def test_a_broken_invariant_ends_the_actor_and_is_noted(world: World) -> None:
    runtime, ref, _ = await counter(world)
    await runtime.call(ref, "break_down", timeout_ms=1000)
    await runtime.sleep(1)
    assert world.failures == ["c: AssertionError: broken"]
    with pytest.raises(PeerLost):
        await runtime.call(ref, "ask", timeout_ms=1000)


@in_world(simulate)
async def test_call_to_a_starting_actor_waits_until_it_started_or_ended(world: World) -> None:
    runtime = SimRuntime(world)
    machine = world.machines["m"]
    world.begin(ActorSpec("c", "counter", {"start_s": 1.0}, on_node("m")), machine)
    assert await runtime.call("c", "ask", timeout_ms=5_000) == 1
    assert runtime.monotonic_ms() > 1_000
    world.begin(ActorSpec("d", "counter", {"start_s": 1.0}, on_node("m")), machine)
    assert (await runtime.find("d")).name == "d"
    assert runtime.monotonic_ms() > 2_000
    world.begin(ActorSpec("e", "counter", {"start_s": 9.0}, on_node("m")), machine)
    finding = asyncio.ensure_future(runtime.find("e"))
    asking = asyncio.ensure_future(runtime.call("e", "ask", timeout_ms=5_000))
    await runtime.sleep(1)
    world.kill("e")
    with pytest.raises(ActorGone):
        await finding
    with pytest.raises(PeerLost):
        await asking


@in_world(simulate)
async def test_a_cut_holds_back_what_a_link_carries(world: World) -> None:
    runtime, ref, _ = await counter(world)
    client = SimRuntime(world, machine="n")
    link = await client.connect(ref)
    assert await link.ask("n") == 1
    world.network.cut("outside", "m")
    asked = link.ask("n")
    await runtime.sleep(0.4)
    assert not asked.done()  # type: ignore[attr-defined]  # a future, as links return them
    world.network.heal()
    assert await asked == 2


@in_world(simulate)
async def test_a_link_breaks_with_its_peer_and_tells_both_sides(world: World) -> None:
    runtime, ref, actor = await counter(world)
    link = await runtime.connect(ref)
    lost = []
    link.on_lost(lambda: lost.append(1))
    link.close()
    await runtime.sleep(1)
    assert (lost, actor.asked, link.is_open) == ([1], -1, False)
    other = await runtime.connect(ref)
    asked = other.ask("n")
    world.kill("c")
    with pytest.raises(PeerLost):
        await asked


@pytest.mark.parametrize(("lingering", "asked"), [(0.0, 0), (1.0, 1)])
@in_world(simulate, seed=1)
async def test_request_on_a_broken_link_may_still_arrive(
    world: World, *, lingering: float, asked: int
) -> None:
    runtime, ref, actor = await counter(world)
    world.network.lingering = lingering
    link = await runtime.connect(ref)
    answer = link.ask("n")
    [found] = world.resident(ref).links
    found.break_off()
    with pytest.raises(PeerLost):
        await answer
    seen = []
    for _ in range(200):
        seen.append(actor.asked)
        await runtime.sleep(0.05)
    assert max(seen) == asked
    assert seen[-1] == -1, "in the end the target knows, too"


@in_world(simulate)
async def test_actor_that_ends_in_the_middle_of_a_step_breaks_no_invariant(world: World) -> None:
    runtime, ref, _ = await counter(world)

    def end() -> None:
        world.kill("c")
        raise Ended

    world.loop.call_later(0.01, end, context=world.resident(ref).process.context)
    await runtime.sleep(1)
    assert world.failures == []
    with pytest.raises(PeerLost):
        await runtime.call(ref, "ask", timeout_ms=1000)


@in_world(simulate)
async def test_caller_gets_peer_lost_when_the_actor_ends_during_the_call(world: World) -> None:
    runtime, ref, actor = await counter(world)

    async def ask() -> int:
        world.kill("c")
        raise Ended

    actor.ask = ask  # type: ignore[method-assign]
    with pytest.raises(PeerLost):
        await runtime.call(ref, "ask", timeout_ms=1000)


@in_world(simulate)
async def test_calls_are_lost_on_either_way_and_come_twice(world: World) -> None:
    _, ref, actor = await counter(world)
    caller = SimRuntime(world, machine="n")
    world.network.weather = Weather(lost=0.3, twice=0.3)
    answered = 0
    for _ in range(200):
        try:
            await caller.call(ref, "ask", timeout_ms=1000)
        except (PeerLost, PeerTimeout):
            continue
        answered += 1
    assert 60 < answered < 140
    assert actor.asked > answered


@in_world(simulate)
async def test_call_may_arrive_after_its_caller_got_peer_lost(world: World) -> None:
    _, ref, actor = await counter(world)
    runtime = SimRuntime(world, machine="n")
    world.network.weather = Weather(late=1.0)
    for _ in range(20):
        with pytest.raises((PeerLost, PeerTimeout)):
            await runtime.call(ref, "ask", timeout_ms=100)
    assert actor.asked < 20
    await runtime.sleep(LATE_S + 1)
    assert actor.asked == 20


def test_the_trace_tells_runs_apart() -> None:
    async def main(world: World) -> str:
        runtime, ref, _ = await counter(world)
        await runtime.call(ref, "ask", timeout_ms=1000)
        return world.trace

    assert simulate(main, 1) == simulate(main, 1) != simulate(main, 2)


@in_world(simulate)
async def test_wall_clocks_jump_and_monotonic_ones_do_not(world: World) -> None:
    runtime, _, actor = await counter(world)
    before = actor.runtime.now_ms(), actor.runtime.monotonic_ms()
    world.machines["m"].clock_offset_ms = -5_000
    assert actor.runtime.now_ms() == before[0] - 5_000
    assert actor.runtime.monotonic_ms() == before[1]
    assert runtime.now_ms() == before[0]
