"""Whole clusters under virtual time and one seed: same seed, same trace.

The actors of the in-process world run on an event loop whose clock jumps to the next timer instead
of waiting. Every message between actors, every blocking call and every start takes a delay drawn
from the seed; messages on one link keep their order. `SimWorld.trace` is a hash over everything
that was sent, to whom and when: two runs that differ in anything differ in it.
"""

from __future__ import annotations

import asyncio
import hashlib
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

from raylog.actors.runtime.base import (
    Actor,
    ActorRef,
    ActorSpec,
    Buffer,
    FailureHandler,
    PeerLost,
    ReplyHandler,
)
from raylog.actors.runtime.inproc import ActorClass, InprocRuntime, InprocWorld
from raylog.actors.runtime.links import InprocLink

T = TypeVar("T")
EPOCH_MS = 1_700_000_000_000
"""Wall-clock time at which every simulation begins."""


class SimulationStuck(Exception):
    """Nothing is left to happen, yet somebody waits."""


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits for sockets (there are none): lets the clock jump instead."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let `timeout` seconds pass at once."""
        if timeout is None:
            raise SimulationStuck("no timer is left and somebody waits")
        if timeout > 0:
            self._jump(timeout)
        return []


class SimLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        self._virtual_s = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def _jump(self, seconds: float) -> None:
        self._virtual_s += seconds

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._virtual_s


class SimWorld(InprocWorld):
    """The actors of one simulated cluster."""

    def __init__(
        self,
        role_class: Callable[[str], ActorClass],
        seed: int,
        *,
        delay_ms: tuple[float, float] = (0.01, 5.0),
    ) -> None:
        super().__init__(role_class)
        self.random = Random(seed)  # noqa: S311 - a simulation must repeat
        self._delay_ms = delay_ms
        self._trace = hashlib.sha256()

    @property
    def trace(self) -> str:
        """A hash over all that has happened."""
        return self._trace.hexdigest()

    def note(self, *what: object) -> None:
        """Add an event to the trace."""
        now = asyncio.get_running_loop().time()
        self._trace.update(f"{now:.6f} {' '.join(map(str, what))}\n".encode())

    def delay_s(self) -> float:
        """A delay for one message."""
        low, high = self._delay_ms
        return self.random.uniform(low, high) / 1000

    def runtime_for(self, instance: str, name: str | None) -> InprocRuntime:
        """The runtime of one actor."""
        return SimRuntime(self, instance, name)

    def link_to(self, actor: Actor, number: int) -> InprocLink:
        """A link whose messages take time."""
        return SimLink(self, actor, number)


class SimRuntime(InprocRuntime):
    """The runtime of one simulated actor."""

    def __init__(self, world: SimWorld, instance: str, name: str | None) -> None:
        super().__init__(world, instance, name)
        self._sim = world
        self.random = Random(f"{world.random.random()} {name}")  # noqa: S311 - must repeat

    def now_ms(self) -> int:
        """Simulated wall-clock time."""
        return EPOCH_MS + int(self.monotonic_ms())

    def monotonic_ms(self) -> float:
        """Virtual time."""
        return asyncio.get_running_loop().time() * 1000

    async def run_blocking(self, function: Callable[..., T], *args: Any) -> T:
        """Run the function after a delay, alone."""
        await asyncio.sleep(self._sim.delay_s())
        self._sim.note("blocking", self._name, getattr(function, "__qualname__", "?"))
        return function(*args)

    async def run_foreign(self, function: Callable[..., T], *args: Any, timeout_ms: int) -> T:
        """The same: a simulation cannot leave a thread behind."""
        return await self.run_blocking(function, *args)

    async def spawn(self, spec: ActorSpec) -> ActorRef:
        """Start an actor, which takes a while."""
        await asyncio.sleep(self._sim.delay_s() * 20)
        self._sim.note("spawn", spec.name)
        return await super().spawn(spec)

    async def call(self, peer: ActorRef | str, method: str, *args: Any, timeout_ms: int) -> Any:
        """Call a method: the question and the answer both take a while."""
        name = peer if isinstance(peer, str) else peer.name
        await asyncio.sleep(self._sim.delay_s())
        self._sim.note("call", self._name, name, method)
        answer = await super().call(peer, method, *args, timeout_ms=timeout_ms)
        await asyncio.sleep(self._sim.delay_s())
        return answer


class SimLink(InprocLink):
    """A link whose messages arrive later, each direction in order."""

    def __init__(self, world: SimWorld, actor: Actor, number: int) -> None:
        super().__init__(actor, number)
        self._world = world
        self._there = _Lane(world)
        self._back = _Lane(world)

    def request(
        self,
        kind: str,
        header: Any,
        payload: Sequence[Buffer],
        answered: ReplyHandler,
        failed: FailureHandler,
    ) -> None:
        """Send a request; its payload is copied, as a network would."""
        if not self.is_open:
            failed(PeerLost("the link is closed"))
            return
        self._world.note("request", self.number, kind)
        copy = [bytearray(b"".join(payload))]
        deliver = super().request
        back = self._back

        def later_answered(answer: Any, data: memoryview) -> None:
            self._world.note("answer", self.number, kind)
            back.put(lambda: answered(answer, data))

        def later_failed(failure: Exception) -> None:
            back.put(lambda: failed(failure))

        self._there.put(lambda: deliver(kind, header, copy, later_answered, later_failed))


class _Lane:
    """One direction of a link: deliveries take a delay each and never overtake."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self._last = 0.0
        self._due: deque[Callable[[], None]] = deque()

    def put(self, deliver: Callable[[], None]) -> None:
        """Have `deliver` run after a delay, not before what was put earlier."""
        loop = asyncio.get_running_loop()
        self._last = max(self._last, loop.time() + self._world.delay_s())
        self._due.append(deliver)
        loop.call_at(self._last, self._next)

    def _next(self) -> None:
        self._due.popleft()()


def simulate(main: Callable[[SimWorld], Coroutine[Any, Any, T]], world: SimWorld) -> T:
    """Run `main` in virtual time to its end; raises SimulationStuck when nothing can happen."""
    loop = SimLoop()
    try:
        return loop.run_until_complete(main(world))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
