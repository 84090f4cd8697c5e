"""Actors of one process under virtual time. Messages take time, and actors can be cut off."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from raylog.actors.runtime.base import ActorRef, Link, PeerLost, PeerTimeout
from raylog.actors.runtime.inproc import ActorClass, InprocRuntime, InprocWorld

T = TypeVar("T")
DELAY_MAX_S = 0.005


class VirtualWorld(InprocWorld):
    """A world in which actors can be cut off from the others."""

    def __init__(self, role_class: Callable[[str], ActorClass], seed: int) -> None:
        super().__init__(role_class)
        self.random = Random(seed)
        self.cut: set[str] = set()

    def runtime_for(self, instance: str, name: str | None) -> InprocRuntime:
        return VirtualRuntime(self, instance, name)

    def cut_off(self, name: str) -> None:
        """Drop all messages to and from this actor."""
        self.cut.add(name)
        resident = self.resident(name)
        for link in (*resident.links, *resident.runtime._links):
            link.break_off()

    def parts(self, one: str | None, other: str) -> bool:
        """Return whether the cut separates two actors."""
        return (one in self.cut) != (other in self.cut)


class VirtualRuntime(InprocRuntime):
    """A runtime whose calls take a random time; calls across the cut are lost."""

    def __init__(self, world: VirtualWorld, instance: str, name: str | None) -> None:
        super().__init__(world, instance, name)
        self._virtual = world
        self.random = Random(f"{world.random.random()} {name}")

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic_ms())

    def monotonic_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    async def run_blocking(self, function: Callable[..., T], *args: Any) -> T:
        await self._delay()
        return function(*args)

    async def call(self, peer: ActorRef | str, method: str, *args: Any, timeout_ms: int) -> Any:
        name = peer if isinstance(peer, str) else peer.name
        await self._delay()
        if self._virtual.parts(self._name, name):
            await asyncio.sleep(timeout_ms / 1000)
            raise PeerTimeout(f"{name} is cut off")
        answer = await super().call(peer, method, *args, timeout_ms=timeout_ms)
        await self._delay()
        return answer

    async def connect(self, peer: ActorRef | str) -> Link:
        if self._virtual.parts(self._name, peer if isinstance(peer, str) else peer.name):
            raise PeerLost(f"{peer} is cut off")
        return await super().connect(peer)

    async def _delay(self) -> None:
        await asyncio.sleep(self._virtual.random.uniform(0, DELAY_MAX_S))
