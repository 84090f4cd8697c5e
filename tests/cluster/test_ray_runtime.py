"""The Ray runtime keeps the promises of `Runtime`: names, calls, refusals, links, deaths."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from raylog.actors.runtime.base import ActorGone, ActorRef, ActorSpec, PeerLost, PeerTimeout
from raylog.wire.errors import UnknownTopicOrPartition

if TYPE_CHECKING:
    from raylog.actors.runtime.ray import RayRuntime

Driver = Callable[[], "RayRuntime"]


def replica(cluster_id: str, number: int = 0, *, restarts: bool = False) -> ActorSpec:
    name = f"{cluster_id}/replica/0/{number}"
    return ActorSpec(name, "replica", {"name": name, "broker_id": 0}, restarts=restarts)


async def until_gone(runtime: RayRuntime, name: str) -> None:
    """Ray forgets the name of a dead actor when it has noticed."""
    async with asyncio.timeout(20):
        while True:
            try:
                await runtime.find(name)
            except ActorGone:
                return


def test_an_actor_is_found_called_linked_and_killed(driver: Driver, cluster_id: str) -> None:
    async def main() -> None:
        runtime = driver()
        spec = replica(cluster_id)
        ref = await runtime.spawn(spec)
        assert await runtime.find(spec.name) == ref
        assert ref.pid != os.getpid()
        status = await runtime.call(ref, "ping", timeout_ms=5000)
        assert (status["name"], status["pid"]) == (spec.name, ref.pid)
        link = await runtime.connect(ref)
        with pytest.raises(UnknownTopicOrPartition, match="not open here"):
            await link.ask("offset_for", [b"t" * 16, 0, -1, -1, 0])
        lost: asyncio.Future[ActorRef] = asyncio.get_running_loop().create_future()
        runtime.watch(ref, lost.set_result)
        held = link.ask("fetch", [1, False, False, 0, 100, 1, True, [], []])
        await runtime.kill(ref)
        with pytest.raises(PeerLost):
            await held
        assert await asyncio.wait_for(lost, 10) == ref
        with pytest.raises(PeerLost):
            await runtime.call(ref, "ping", timeout_ms=5000)
        await until_gone(runtime, spec.name)

    asyncio.run(main())


def test_an_actor_that_restarts_is_another_instance(driver: Driver, cluster_id: str) -> None:
    async def main() -> None:
        runtime = driver()
        spec = replica(cluster_id, restarts=True)
        first = await runtime.spawn(spec)
        os.kill(first.pid, signal.SIGKILL)
        second = first
        async with asyncio.timeout(30):
            while second.instance == first.instance:
                try:
                    second = await runtime.find(spec.name)
                except ActorGone:
                    continue
        assert second.pid != first.pid
        await runtime.end_for_good(spec.name)
        await until_gone(runtime, spec.name)

    asyncio.run(main())


def test_nobody_by_that_name_is_gone(driver: Driver, cluster_id: str) -> None:
    async def main() -> None:
        runtime = driver()
        with pytest.raises(ActorGone):
            await runtime.find(f"{cluster_id}/replica/0/99")

    asyncio.run(main())


def test_a_call_past_its_deadline_is_a_timeout(driver: Driver, cluster_id: str) -> None:
    async def main() -> None:
        runtime = driver()
        ref = await runtime.spawn(replica(cluster_id))
        os.kill(ref.pid, signal.SIGSTOP)
        try:
            with pytest.raises(PeerTimeout):
                await runtime.call(ref, "ping", timeout_ms=200)
        finally:
            os.kill(ref.pid, signal.SIGCONT)
        assert (await runtime.call(ref, "ping", timeout_ms=10_000))["pid"] == ref.pid
        await runtime.kill(ref)

    asyncio.run(main())
