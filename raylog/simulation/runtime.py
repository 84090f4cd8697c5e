"""The runtime of a simulated actor or of an outside client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from raylog.actors.places import NodeEntry
from raylog.actors.runtime.base import (
    ActorGone,
    ActorRef,
    ActorSpec,
    Apart,
    BackgroundTask,
    Link,
    PeerLost,
    PeerTimeout,
    Timer,
    Work,
)
from raylog.actors.runtime.calls import FORESEEN, answer
from raylog.actors.runtime.local import OneShot
from raylog.actors.runtime.thread_work import WorkInThreads
from raylog.simulation.link import SimLink
from raylog.simulation.loop import OUTSIDE
from raylog.simulation.network import Fate
from raylog.simulation.world import OUTSIDER, Machine, Resident, World
from raylog.wire.errors import KafkaError

T = TypeVar("T")
LATE_S = 4.0
"""The longest delay of a call that its caller considers lost."""


class SimRuntime:
    """Clock, random numbers, calls and links of one actor, or of a client outside of all actors."""

    rest_s = 0.0

    def __init__(
        self, world: World, resident: Resident | None = None, *, machine: str = OUTSIDER
    ) -> None:
        self._world = world
        self._resident = resident
        name = machine if resident is None else resident.ref.name
        self._name = name
        self._machine: Machine = (
            Machine(machine, world.outside.disk) if resident is None else resident.machine
        )
        self._context = OUTSIDE if resident is None else resident.process.context
        self.random = Random(f"{world.random.random()} {name}")  # noqa: S311 - must repeat
        self.instance = OUTSIDER if resident is None else resident.ref.instance
        self.disk = self._machine.disk
        self.clock = world.loop.time

    # ---- time ----------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The wall clock of the machine. It may jump."""
        return self._world.wall_ms(self._machine)

    def monotonic_ms(self) -> float:
        """Virtual time."""
        return self._world.loop.time() * 1000

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` after `delay_ms`."""
        return self._world.loop.call_later(delay_ms / 1000, callback)

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> BackgroundTask:
        """Start a background task. An exception that leaves it ends the actor."""
        task = self._world.loop.create_task(coroutine, name=name)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            self._world.broken(self._name, failure)

    def process_usage(self) -> None:
        """Return None: all actors share the simulation's process."""

    async def this_node(self) -> NodeEntry:
        """The machine of this actor."""
        return NodeEntry(self._machine.name, "127.0.0.1", {})

    async def run_blocking(self, function: Callable[..., T], *args: Any) -> T:
        """Run the function at once, after a delay."""
        world = self._world
        await asyncio.sleep(0.00005 + world.random.random() * 0.001)
        world.note("blocking", self._name, getattr(function, "__qualname__", "?"))
        return function(*args)

    async def apart(self, work: Work) -> Apart:
        """Run a work in the same way, step by step."""
        return WorkInThreads(self, work)

    async def run_foreign(self, function: Callable[..., T], *args: Any, timeout_ms: int) -> T:
        """Run the function in the same way. A simulation cannot leave a thread behind."""
        return await self.run_blocking(function, *args)

    # ---- actors --------------------------------------------------------------------------

    async def spawn(self, spec: ActorSpec) -> ActorRef:
        """Start an actor, which takes some time."""
        world = self._world
        await asyncio.sleep(world.random.uniform(0.01, 0.3))
        machine = self._machine if spec.place is None else world.machine_in(spec.place)
        if machine is None or not machine.up:
            where = spec.place.labels if spec.place is not None else self._machine.name
            raise PeerLost(f"no machine is up at {where}")
        try:
            return await world.begin(spec, machine)
        except KafkaError:
            world.end_for_good(spec.name)  # an actor whose start fails is not restarted
            raise

    async def find(self, name: str) -> ActorRef:
        """The live actor with that name, once it is ready. Raises ActorGone."""
        resident = self._world.resident(name)
        if not resident.ready:
            ready: asyncio.Future[None] = self._world.loop.create_future()

            def found() -> None:
                if not ready.done():
                    ready.set_result(None)

            def lost(failure: BaseException) -> None:
                if not ready.done():
                    ready.set_exception(ActorGone(str(failure)))

            resident.arrived.append(found)
            resident.calls[lost] = None
            try:
                await ready
            finally:
                resident.calls.pop(lost, None)
        return resident.ref

    async def call(self, peer: ActorRef | str, method: str, *args: Any, timeout_ms: int) -> Any:
        """Call a method. Question and answer take some time, and each may be lost."""
        call = _Call(self._world, self._machine.name, self._context, method, args)
        timer = self._world.loop.call_later(timeout_ms / 1000, call.give_up, timeout_ms)
        self._world.note("call", self._name, peer if isinstance(peer, str) else peer.name, method)
        try:
            resident = self._world.resident(peer)
        except ActorGone as gone:
            call.settle_soon(PeerLost(str(gone)))
        else:
            call.send(resident)
        try:
            return await call.answer
        finally:
            timer.cancel()

    async def kill(self, peer: ActorRef) -> None:
        """Kill the actor's process, as a crash does."""
        await asyncio.sleep(0.001)
        if self._lives(peer):
            self._world.kill(peer.name)

    async def dismiss(self, peer: ActorRef) -> None:
        """End an actor that has stopped."""
        if self._lives(peer):
            self._world.dismiss(peer.name)

    def _lives(self, peer: ActorRef) -> bool:
        try:
            self._world.resident(peer)
        except ActorGone:
            return False
        return True

    async def end_for_good(self, name: str) -> None:
        """End the actor with that name, if it exists."""
        self._world.end_for_good(name)

    async def nodes(self) -> list[NodeEntry]:
        """The machines that are up."""
        await self._ask_head()
        machines = self._world.machines.values()
        return [NodeEntry(one.node_id, one.name, dict(one.labels)) for one in machines if one.up]

    async def names(self, prefix: str) -> set[str]:
        """The names with a prefix, of actors that live or are held to a place."""
        await self._ask_head()
        return {name for name in self._world.names() if name.startswith(prefix)}

    async def kv_get(self, key: str) -> bytes | None:
        """Read a value that all machines share."""
        await self._ask_head()
        return self._world.values.get(key)

    async def kv_put(self, key: str, value: bytes) -> None:
        """Write a value that all machines share."""
        await self._ask_head()
        self._world.values[key] = value

    async def kv_keys(self, prefix: str) -> list[str]:
        """The keys with a prefix."""
        await self._ask_head()
        return sorted(key for key in self._world.values if key.startswith(prefix))

    async def kv_delete(self, key: str) -> None:
        """Delete a value."""
        await self._ask_head()
        self._world.values.pop(key, None)

    async def _ask_head(self) -> None:
        if self._world.values:  # without values there is nothing to delay
            await asyncio.sleep(self._world.head_random.uniform(0.0005, 0.005))

    def watch(self, peer: ActorRef, on_lost: Callable[[ActorRef], None]) -> Timer:
        """Call `on_lost(peer)` once when the actor is gone."""
        world = self._world
        context = self._context
        watch = OneShot(lambda: on_lost(peer))

        def fire() -> None:
            world.loop.call_later(world.random.uniform(0.0001, 0.02), watch.fire, context=context)

        try:
            world.resident(peer).watchers[fire] = None
        except ActorGone:
            fire()
        return watch

    async def connect(self, peer: ActorRef | str) -> Link:
        """Open a link to an actor. Raises PeerLost."""
        world = self._world
        try:
            resident = world.resident(peer)
        except ActorGone as gone:
            raise PeerLost(str(gone)) from gone
        here, there = self._machine.name, resident.machine.name
        network = world.network
        await asyncio.sleep(network.delay_s(here, there) + network.delay_s(there, here))
        if network.is_cut(here, there) or network.is_cut(there, here):
            await asyncio.sleep(world.random.uniform(0.1, 3))
            raise PeerLost(f"nobody answers at {resident.ref.name}")
        if not resident.process.alive:
            raise PeerLost(f"{resident.ref.name} ended")
        return SimLink(world, self._resident, resident)


class _Call:
    """One call in flight."""

    __slots__ = ("_args", "_context", "_here", "_method", "_world", "answer")

    def __init__(
        self, world: World, here: str, context: Any, method: str, args: tuple[Any, ...]
    ) -> None:
        self._world = world
        self._here = here
        self._context = context
        self._method = method
        self._args = args
        self.answer: asyncio.Future[Any] = world.loop.create_future()

    def give_up(self, timeout_ms: int) -> None:
        """Fail with PeerTimeout at the deadline. The call may still take effect."""
        if not self.answer.done():
            late = PeerTimeout(f"{self._method} took over {timeout_ms} ms")
            self.answer.set_exception(late)

    def settle_soon(self, failure: BaseException) -> None:
        """Tell the caller after a moment that there is no answer."""
        delay_s = self._world.random.uniform(0.0001, 0.01)
        self._world.loop.call_later(delay_s, self._fail, failure, context=self._context)

    def _fail(self, failure: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(failure)

    def send(self, resident: Resident) -> None:
        """Send the question. It may arrive twice or never."""
        there = resident.machine.name
        network = self._world.network
        fate = network.fate(self._here, there)
        if fate is Fate.LATE:
            self._lose()
            late_s = self._world.random.uniform(0.05, LATE_S)
            self._world.loop.call_later(late_s, self._go, resident, context=OUTSIDE)
            return
        if fate is Fate.LOST:
            self._world.note("lost", self._method)
            self._lose()
            return
        for _ in range(2 if fate is Fate.TWICE else 1):
            self._go(resident)

    def _go(self, resident: Resident) -> None:
        network = self._world.network
        network.send(self._here, resident.machine.name, lambda: self._arrive(resident))

    def _lose(self) -> None:
        """Break the connection.

        The caller learns it after a while, if its deadline does not come first.
        """
        delay_s = self._world.random.choice((0.01, 0.3, 3.0)) * self._world.random.random()
        lost = PeerLost("the connection broke")
        self._world.loop.call_later(delay_s, self._fail, lost, context=self._context)

    def _arrive(self, resident: Resident) -> None:
        if not resident.process.alive:
            self.settle_soon(PeerLost(f"{resident.ref.name} ended"))
            return
        resident.calls[self.settle_soon] = None
        if resident.ready:
            self._begin(resident)
        else:
            resident.arrived.append(lambda: self._begin(resident))

    def _begin(self, resident: Resident) -> None:
        world = self._world
        task = world.loop.create_task(
            answer(resident.actor, self._method, self._args), context=resident.process.context
        )
        task.add_done_callback(lambda ended: self._answered(resident, ended), context=OUTSIDE)

    def _answered(self, resident: Resident, ended: asyncio.Task[Any]) -> None:
        failure = PeerLost("cancelled") if ended.cancelled() else ended.exception()
        world = self._world
        if failure is not None and not isinstance(failure, FORESEEN) and resident.process.alive:
            world.broken(resident.ref.name, failure)  # this tells all its callers
        resident.calls.pop(self.settle_soon, None)
        world.note("answered", resident.ref.name, self._method, type(failure).__name__)
        if failure is not None and not resident.process.alive:
            return  # it ended during the call, and its callers were told
        if failure is None:
            for observe in world.observers:
                observe(resident, self._method, self._args, ended.result())
        there = resident.machine.name
        if world.network.fate(there, self._here) is Fate.LOST:
            self._lose()
            return

        def deliver() -> None:
            if self.answer.done():
                return
            if failure is None:
                self.answer.set_result(ended.result())
            else:
                self.answer.set_exception(failure)

        world.network.send(there, self._here, deliver, self._context)
