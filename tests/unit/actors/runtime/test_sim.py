"""The simulation: virtual time, order on links, and the same trace for the same seed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest

from raylog.actors.runtime.base import ActorSpec, LinkRequest, PeerLost, Runtime
from raylog.actors.runtime.sim import SimulationStuck, SimWorld, simulate


class Counter:
    """Counts link requests, answers with the count; `nap` sleeps an hour."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.seen: list[int] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def nap(self) -> int:
        await self.runtime.sleep(3600)
        return self.runtime.now_ms()

    async def work(self) -> int:
        return await self.runtime.run_blocking(sum, range(10))

    def link_received(self, request: LinkRequest) -> None:
        self.seen.append(request.header)
        request.reply(len(self.seen))

    def link_lost(self, peer: int) -> None: ...


async def scenario(world: SimWorld) -> str:
    runtime = world.runtime()
    refs = [await runtime.spawn(ActorSpec(f"c/{i}", "counter")) for i in range(3)]
    links = [await runtime.connect(ref) for ref in refs]
    asked = [link.ask("n", i) for i in range(20) for link in links]
    answers = await asyncio.gather(*asked)
    assert answers == [i + 1 for i in range(20) for _ in links]
    assert await runtime.call(refs[0], "work", timeout_ms=1000) == 45
    return world.trace


def world_of(seed: int) -> SimWorld:
    return SimWorld(lambda _: Counter, seed)


def test_an_hour_passes_at_once() -> None:
    async def main(world: SimWorld) -> int:
        runtime = world.runtime()
        before = runtime.now_ms()
        await runtime.spawn(ActorSpec("c/0", "counter"))
        after: int = await runtime.call("c/0", "nap", timeout_ms=4_000_000)
        return after - before

    started = time.monotonic()
    assert simulate(main, world_of(1)) >= 3_600_000
    assert time.monotonic() - started < 5


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    assert simulate(scenario, world_of(7)) == simulate(scenario, world_of(7))
    assert simulate(scenario, world_of(7)) != simulate(scenario, world_of(8))


def test_the_trace_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "import importlib.util as u, sys;"
        "s=u.spec_from_file_location('t', sys.argv[1]); m=u.module_from_spec(s);"
        "s.loader.exec_module(m); print(m.simulate(m.scenario, m.world_of(3)))"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", code, __file__],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(traces) == 1


def test_a_killed_actor_fails_what_waits_for_it() -> None:
    async def main(world: SimWorld) -> None:
        runtime = world.runtime()
        ref = await runtime.spawn(ActorSpec("c/0", "counter"))
        link = await runtime.connect(ref)
        waiting = link.ask("n", 1)
        await runtime.kill(ref)
        with pytest.raises(PeerLost):
            await waiting
        with pytest.raises(PeerLost):
            await runtime.call(ref, "work", timeout_ms=10)

    simulate(main, world_of(5))


def test_waiting_for_nothing_is_found() -> None:
    async def main(world: SimWorld) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimulationStuck):
        simulate(main, world_of(1))
