"""Machines, the processes on them, and what ends or pauses either.

A killed process ends as by SIGKILL: its code stops, its files stay, its links break, and callers
that wait for its answers get PeerLost. An actor that the runtime restarts comes back after a while:
on its machine, or, in the case of a controller, on another one if its machine is down.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import marshal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from raylog.actors.names import host_of
from raylog.actors.places import NODE_ID_LABEL, Place
from raylog.actors.runtime.base import Actor, ActorRef, ActorSpec, PeerLost, Runtime
from raylog.actors.runtime.calls import is_mistake, start_failure
from raylog.actors.runtime.local import resident_of
from raylog.simulation.disk import SimDisk
from raylog.simulation.link import SimLink
from raylog.simulation.loop import OUTSIDE, Process, SimLoop, current_process, process_of
from raylog.simulation.network import Network

log = logging.getLogger(__name__)
ActorClass = Callable[..., Actor]
EPOCH_MS = 1_700_000_000_000
"""The wall-clock time at which every simulation begins."""
OUTSIDER = "outside"
"""The machine of clients without one. It is always reachable and never fails."""
_NOTES_MAX = 2048
_WITHOUT_REFERENCES = 2
"""A version of marshal in which equal values give equal bytes."""


@dataclass(slots=True, eq=False)
class Machine:
    """One node: a disk, a clock and processes."""

    name: str
    disk: SimDisk
    clock_offset_ms: int = 0
    up: bool = True
    labels: dict[str, str] = field(default_factory=dict)
    """The labels that bind actors to it."""

    @property
    def node_id(self) -> str:
        """The node id in the runtime. It may change when the machine comes back."""
        return self.labels[NODE_ID_LABEL]

    def carries(self, place: Place) -> bool:
        """Whether actors of a place may run here."""
        return place.labels.items() <= self.labels.items()


@dataclass(slots=True, eq=False)
class Resident:
    """One living actor."""

    spec: ActorSpec
    ref: ActorRef
    process: Process
    machine: Machine
    actor: Any = None
    runtime: Any = None
    ready: bool = False
    arrived: list[Callable[[], None]] = field(default_factory=list)
    """Actions that wait until it is ready."""
    links: dict[SimLink, None] = field(default_factory=dict)
    """Links from and to it."""
    calls: dict[Callable[[BaseException], None], None] = field(default_factory=dict)
    """Calls that wait for its answers."""
    watchers: dict[Callable[[], None], None] = field(default_factory=dict)


class World:
    """The state of one simulation."""

    def __init__(
        self,
        loop: SimLoop,
        seed: int,
        role_class: Callable[[str], ActorClass],
        make_runtime: Callable[[World, Resident], Runtime],
    ) -> None:
        self.loop = loop
        self.random = Random(seed)  # noqa: S311 - a simulation must repeat
        self.network = Network(loop, Random(f"{seed} network"))  # noqa: S311 - the same
        self.machines: dict[str, Machine] = {}
        self.numbers = itertools.count(1)
        self.failures: list[str] = []
        """Actors that ended because of a broken invariant."""
        self.timeline: list[str] = []
        """What was done to the cluster, as text."""
        self.observers: list[Callable[[Resident, str, tuple[Any, ...], Any], None]] = []
        """Called with the actor, method, arguments and answer of every call, before the answer is
        sent."""
        self.losing_power: list[Callable[[Machine], None]] = []
        """Called with a machine that is about to lose power."""
        self.lost_directory: list[Callable[[Machine], object]] = []
        """Called with a machine that has lost a directory or got an older copy of it."""
        self._role_class = role_class
        self._make_runtime = make_runtime
        self._residents: dict[str, Resident] = {}
        self._hash = hashlib.blake2b(digest_size=32)
        self._notes: list[object] = []
        self.values: dict[str, bytes] = {}
        """The contents of Ray's key-value store."""
        self.head_random = Random(f"{seed} head")  # noqa: S311 - the same
        self._held: dict[str, ActorSpec] = {}
        """Actors that are restarted in their place only."""
        self.outside = Machine(OUTSIDER, SimDisk(Random(f"{seed} {OUTSIDER}")))  # noqa: S311
        loop.set_exception_handler(self._exception)

    # ---- the trace -----------------------------------------------------------------------

    def note(self, *what: str | int) -> None:
        """Add an event to the trace."""
        self._notes += (self.loop.time(), *what)
        if len(self._notes) > _NOTES_MAX:
            self._hash_notes()

    def _hash_notes(self) -> None:
        self._hash.update(marshal.dumps(self._notes, _WITHOUT_REFERENCES))
        self._notes.clear()

    @property
    def trace(self) -> str:
        """A hash over everything that has happened."""
        self._hash_notes()
        return self._hash.hexdigest()

    def tell(self, text: str) -> None:
        """Add a line to the timeline and to the trace."""
        self.timeline.append(f"{self.loop.time():9.3f} s  {text}")
        self.note("told", text)

    # ---- machines ------------------------------------------------------------------------

    def add_machine(self, name: str) -> Machine:
        """Add a machine with an empty disk."""
        random = Random(f"{self.random.random()} {name}")  # noqa: S311 - must repeat
        disk = SimDisk(random, lambda: self.wall_ms(machine))
        machine = self.machines[name] = Machine(name, disk, labels={NODE_ID_LABEL: name})
        return machine

    def wall_ms(self, machine: Machine) -> int:
        """The wall clock of a machine. It may jump."""
        return EPOCH_MS + int(self.loop.time() * 1000) + machine.clock_offset_ms

    def machine_of(self, resident: Resident | None) -> str:
        """The name of an actor's machine, or of the outside."""
        return OUTSIDER if resident is None else resident.machine.name

    def stop_machine(self, machine: Machine, *, power: bool) -> None:
        """End all processes of a machine. With `power` unsynced data is lost, too."""
        machine.up = False
        for tell in self.losing_power if power else ():
            tell(machine)
        for resident in self.on(machine):
            self.kill(resident.ref.name, restart=resident.spec.place is None)
        if power:
            machine.disk.lose_power()

    def start_machine(self, machine: Machine) -> None:
        """Start a machine. Its actors come back."""
        machine.up = True
        for spec in self._held.values():
            if spec.place is not None and machine.carries(spec.place):
                self._restart_soon(spec, machine)

    def machine_in(self, place: Place) -> Machine | None:
        """A machine of a place that is up."""
        found = (one for one in self.machines.values() if one.up and one.carries(place))
        return next(found, None)

    def on(self, machine: Machine) -> list[Resident]:
        """The actors on a machine."""
        return [one for one in self._residents.values() if one.machine is machine]

    # ---- actors --------------------------------------------------------------------------

    def residents(self) -> list[Resident]:
        """The living actors, in the order of their starts."""
        return list(self._residents.values())

    def names(self) -> set[str]:
        """The names of living actors and of those that come back with a machine."""
        return {*self._residents, *self._held}

    def living(self) -> Iterable[Resident]:
        """The living actors, for callers that change nothing while they iterate."""
        return self._residents.values()

    def resident(self, peer: ActorRef | str) -> Resident:
        """The living actor of a ref, name or link address. Raises ActorGone."""
        return resident_of(self._residents, peer)

    def own(self) -> Resident | None:
        """The actor whose code is running."""
        process = current_process()
        return None if process is None else self._residents.get(process.name)

    def begin(self, spec: ActorSpec, machine: Machine) -> asyncio.Future[ActorRef]:
        """Start an actor. The future ends when it is ready or has failed."""
        started: asyncio.Future[ActorRef] = self.loop.create_future()
        if spec.name in self._residents:
            started.set_exception(ValueError(f"an actor named {spec.name} lives already"))
            return started
        host = host_of(spec.name)
        if host != spec.name and host not in self._residents:
            started.set_exception(PeerLost(f"no actor {host} lives here"))
            return started
        instance = f"sim-{next(self.numbers)}"
        ref = ActorRef(spec.name, spec.role, f"sim:{instance}", 1, machine.name, instance)
        process = Process(spec.name)
        resident = Resident(spec, ref, process, machine)
        self._residents[spec.name] = resident
        if spec.restarts and spec.place is not None:
            self._held[spec.name] = spec

        def lost(failure: BaseException) -> None:
            if not started.done():
                started.set_exception(failure)

        resident.calls[lost] = None
        self.note("spawn", spec.name)
        task = self.loop.create_task(self._bring_up(resident), context=process.context)

        def brought_up(ended: asyncio.Task[None]) -> None:
            resident.calls.pop(lost, None)
            self._brought_up(resident, ended, started)

        task.add_done_callback(brought_up, context=OUTSIDE)
        return started

    async def _bring_up(self, resident: Resident) -> None:
        resident.runtime = self._make_runtime(self, resident)
        spec = resident.spec
        resident.actor = self._role_class(spec.role)(resident.runtime, **spec.args)
        await resident.actor.start()

    def _brought_up(
        self, resident: Resident, ended: asyncio.Task[None], started: asyncio.Future[ActorRef]
    ) -> None:
        failure = ended.exception()
        if failure is not None:
            name = resident.ref.name
            if is_mistake(failure):
                self.failures.append(f"{name}: {type(failure).__name__}: {failure}")
            self.dismiss(name)
            if not started.done():
                started.set_exception(start_failure(name, failure))
        else:
            resident.ready = True
            arrived, resident.arrived = resident.arrived, []
            for go_on in arrived:
                go_on()
            if not started.done():
                started.set_result(resident.ref)

    def kill(self, name: str, *, restart: bool = True) -> None:
        """End an actor as SIGKILL does, with all actors in its process."""
        for other in self._housemates(name):
            self._end(self._residents.pop(other), restart=restart)

    def dismiss(self, name: str) -> None:
        """End one actor. Others in its process continue."""
        resident = self._residents.pop(name, None)
        if resident is not None:
            self._end(resident, restart=False)

    def _housemates(self, name: str) -> list[str]:
        """The actors in the process of an actor, including itself."""
        host = host_of(name)
        return [one for one in self._residents if host_of(one) == host]

    def _end(self, resident: Resident, *, restart: bool) -> None:
        self.note("end", resident.ref.name)
        resident.process.alive = False
        resident.process.parked.clear()
        resident.machine.disk.release(resident.process)
        lost = PeerLost(f"{resident.ref.name} ended")
        for tell in resident.calls:
            tell(lost)
        for link in tuple(resident.links):
            link.break_off()
        for watcher in resident.watchers:
            watcher()
        spec = resident.spec
        if restart and spec.restarts:
            self._restart_soon(spec, resident.machine)

    def _restart_soon(self, spec: ActorSpec, machine: Machine) -> None:
        delay_s = self.random.uniform(0.1, 1.5) if machine.up else self.random.uniform(3, 10)
        self.loop.call_later(delay_s, self._restart, spec, machine, context=OUTSIDE)

    def _restart(self, spec: ActorSpec, machine: Machine) -> None:
        if spec.name in self._residents:
            return
        if not machine.up:
            if spec.place is not None:
                return  # it comes back with a machine of its place
            others = [one for one in self.machines.values() if one.up]
            if not others:
                self._restart_soon(spec, machine)
                return
            machine = self.random.choice(others)
        self.begin(spec, machine).add_done_callback(
            lambda ended: self._restarted(spec, machine, ended)
        )

    def _restarted(
        self, spec: ActorSpec, machine: Machine, ended: asyncio.Future[ActorRef]
    ) -> None:
        failure = ended.exception()
        if failure is None:
            return
        self.tell(f"{spec.name} does not start: {failure}")
        if not isinstance(failure, ValueError) and machine.up:
            self._restart_soon(spec, machine)

    def end_for_good(self, name: str) -> None:
        """End an actor without a restart."""
        self._held.pop(name, None)
        self.dismiss(name)

    def pause(self, resident: Resident, seconds: float) -> None:
        """Pause a process, as SIGSTOP does."""
        for name in self._housemates(resident.ref.name):
            one = self._residents[name]
            one.process.paused = True
            self.loop.call_later(seconds, self.go_on, one, context=OUTSIDE)

    def go_on(self, resident: Resident) -> None:
        """Resume a process."""
        if resident.process.paused:
            self.note("goes on", resident.ref.name)
            self.loop.go_on(resident.process)

    # ---- failures ------------------------------------------------------------------------

    def broken(self, name: str, failure: BaseException) -> None:
        """End an actor because an invariant was broken in it."""
        if not isinstance(failure, OSError):  # a failing disk may end the actors that use it
            self.failures.append(f"{name}: {type(failure).__name__}: {failure}")
        log.critical("%s ended itself", name, exc_info=failure)
        self.tell(f"{name} ended itself: {type(failure).__name__}: {failure}")
        self.kill(name)

    def _exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception in a callback. A task whose failure nobody awaited is not one."""
        handle, failure = context.get("handle"), context.get("exception")
        if handle is None or failure is None:
            return
        process = process_of(handle)
        if process is not None and not process.alive:
            return  # it ended during this
        self.broken(OUTSIDER if process is None else process.name, failure)
