"""All actors as objects on one event loop of one process, for the embedded broker.

Calls are direct awaits and links are direct method calls, so nothing is serialized. What crosses
them must be plain data that nobody changes afterwards, as in `actors.common_messages`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from raylog.actors.names import host_of
from raylog.actors.places import NODE_ID_LABEL, NodeEntry
from raylog.actors.runtime.base import (
    Actor,
    ActorGone,
    ActorRef,
    ActorSpec,
    BackgroundTask,
    Link,
    PeerLost,
    PeerTimeout,
    Timer,
)
from raylog.actors.runtime.calls import FORESEEN, answer, is_mistake, start_failure
from raylog.actors.runtime.links import InprocLink
from raylog.actors.runtime.local import OneShot, resident_of
from raylog.actors.runtime.loop import LoopRuntime

log = logging.getLogger(__name__)
ActorClass = Callable[..., Actor]
NODE_ID = "inproc"


@dataclass(slots=True)
class Resident:
    """A live actor in an InprocWorld."""

    ref: ActorRef
    actor: Actor
    runtime: InprocRuntime
    watchers: list[Callable[[], None]] = field(default_factory=list)
    links: list[InprocLink] = field(default_factory=list)
    calls: dict[asyncio.Future[Any], None] = field(default_factory=dict)
    """Calls that it has not answered."""

    async def answer(self, method: str, args: tuple[Any, ...]) -> Any:
        """Answer a call; a bug in it ends the actor."""
        try:
            return await answer(self.actor, method, args)
        except FORESEEN:
            raise
        except Exception as failure:
            self.runtime.broken(f"{method} of {self.ref.name}", failure)
            raise PeerLost(f"{self.ref.name} ended during {method}") from failure


class InprocWorld:
    """The actors of one embedded cluster.

    `role_class` maps a role to its actor class. `failures` collects the exceptions that ended
    actors: a broken invariant shows there and in the log instead of ending the process.
    """

    def __init__(self, role_class: Callable[[str], ActorClass]) -> None:
        self.failures: list[BaseException] = []
        self.values: dict[str, bytes] = {}
        """In place of Ray's key-value store."""
        self.link_numbers = itertools.count(1)
        self._role_class = role_class
        self._residents: dict[str, Resident] = {}
        self._instances = itertools.count(1)

    def runtime(self) -> InprocRuntime:
        """Return a runtime for a caller that is not an actor, such as the cluster's starter."""
        return self.runtime_for(f"inproc-{next(self._instances)}", None)

    def runtime_for(self, instance: str, name: str | None) -> InprocRuntime:
        """Return the runtime of one actor, or of another caller."""
        return InprocRuntime(self, instance, name)

    def link_to(self, actor: Actor, number: int) -> InprocLink:
        """Create a link to an actor."""
        return InprocLink(actor, number)

    async def spawn(self, spec: ActorSpec) -> ActorRef:
        """Create an actor and wait until it is ready."""
        if spec.name in self._residents:
            raise ValueError(f"an actor named {spec.name} lives already")
        host = host_of(spec.name)
        if host != spec.name and host not in self._residents:
            raise PeerLost(f"no actor {host} lives here")
        instance = f"inproc-{next(self._instances)}"
        runtime = self.runtime_for(instance, spec.name)
        actor = self._role_class(spec.role)(runtime, **spec.args)
        ref = ActorRef(spec.name, spec.role, f"inproc:{instance}", os.getpid(), NODE_ID, instance)
        resident = self._residents[spec.name] = Resident(ref, actor, runtime)
        try:
            await actor.start()
        except Exception as failure:
            if is_mistake(failure):
                self.failures.append(failure)
            self.dismiss(spec.name)
            raise start_failure(spec.name, failure) from failure
        except BaseException:
            self.dismiss(spec.name)
            raise
        if self._residents.get(spec.name) is not resident:
            raise PeerLost(f"{spec.name} was ended before it was ready")
        return ref

    def residents(self) -> list[Resident]:
        """Return the live actors in start order."""
        return list(self._residents.values())

    def resident(self, peer: ActorRef | str) -> Resident:
        """Return the live actor of a ref, name or address; raises ActorGone."""
        return resident_of(self._residents, peer)

    def drop(self, name: str) -> None:
        """End an actor as a crash of its process would, with all actors of that process."""
        for other in [one for one in self._residents if host_of(one) == host_of(name)]:
            self.dismiss(other)

    def dismiss(self, name: str) -> None:
        """End one actor: stop its tasks, break its links, notify its watchers."""
        resident = self._residents.pop(name, None)
        if resident is None:
            return
        resident.runtime.end()
        for call in tuple(resident.calls):
            call.cancel()
        for link in tuple(resident.links):
            link.break_off()
        for watcher in resident.watchers:
            watcher()

    async def stop(self) -> None:
        """Stop every actor cleanly, the last started first."""
        for name in reversed(tuple(self._residents)):
            resident = self._residents.get(name)
            if resident is not None:
                await resident.actor.stop()
                self.dismiss(name)


class InprocRuntime(LoopRuntime):
    """The runtime of one actor in an InprocWorld."""

    def __init__(self, world: InprocWorld, instance: str, name: str | None = None) -> None:
        super().__init__(instance, self._end_broken)
        self._world = world
        self._name = name
        self._watches: list[OneShot] = []
        self._links: dict[InprocLink, Resident] = {}
        """Links opened by this actor, and their targets."""
        self._ended = False

    def end(self, *, wait: bool = True) -> None:
        """End the actor: no task, timer, thread or answer runs after this."""
        self._ended = True
        for watch in self._watches:
            watch.cancel()
        links, self._links = self._links, {}
        for link, resident in links.items():
            if link in resident.links:
                resident.links.remove(link)
            link.abandon()
        super().end(wait=wait)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms`, if the actor still lives then."""
        return super().call_later(delay_ms, lambda: None if self._ended else callback())

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> BackgroundTask:
        """Run a background task until the actor ends."""
        task = super().start(coroutine, name)
        if self._ended:
            task.cancel()
        return task

    def _end_broken(self, failure: BaseException) -> None:
        self._world.failures.append(failure)
        if self._name is not None:
            self._world.drop(self._name)

    async def spawn(self, spec: ActorSpec) -> ActorRef:
        """Start an actor and wait until its `start()` has returned."""
        return await self._world.spawn(spec)

    async def find(self, name: str) -> ActorRef:
        """Return the live actor with that name; raises ActorGone."""
        return self._world.resident(name).ref

    async def call(self, peer: ActorRef | str, method: str, *args: Any, timeout_ms: int) -> Any:
        """Call a method of an actor by ref or name."""
        try:
            resident = self._world.resident(peer)
        except ActorGone as gone:
            raise PeerLost(str(gone)) from gone
        answering = asyncio.ensure_future(resident.answer(method, args))
        resident.calls[answering] = None
        try:
            async with asyncio.timeout(timeout_ms / 1000.0):
                return await answering
        except TimeoutError as late:
            raise PeerTimeout(f"{method} of {peer} took over {timeout_ms} ms") from late
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                raise
            raise PeerLost(f"{resident.ref.name} ended during {method}") from None
        finally:
            resident.calls.pop(answering, None)

    async def kill(self, peer: ActorRef) -> None:
        """End the actor as a crash would."""
        self._world.drop(peer.name)

    async def dismiss(self, peer: ActorRef) -> None:
        """End an actor that has stopped."""
        self._world.dismiss(peer.name)

    async def end_for_good(self, name: str) -> None:
        """End the actor with that name, if it exists."""
        self._world.dismiss(name)

    async def nodes(self) -> list[NodeEntry]:
        """Return this process."""
        return [NodeEntry(NODE_ID, "", {NODE_ID_LABEL: NODE_ID})]

    async def names(self, prefix: str) -> set[str]:
        """Return the names of live actors with this prefix."""
        names = (one.ref.name for one in self._world.residents())
        return {name for name in names if name.startswith(prefix)}

    async def kv_get(self, key: str) -> bytes | None:
        """Return a value that all actors can read."""
        return self._world.values.get(key)

    async def kv_put(self, key: str, value: bytes) -> None:
        """Set a value."""
        self._world.values[key] = value

    async def kv_keys(self, prefix: str) -> list[str]:
        """Return the keys with this prefix."""
        return sorted(key for key in self._world.values if key.startswith(prefix))

    async def kv_delete(self, key: str) -> None:
        """Delete a value."""
        self._world.values.pop(key, None)

    def watch(self, peer: ActorRef, on_lost: Callable[[ActorRef], None]) -> Timer:
        """Run `on_lost(peer)` once when the actor is gone."""
        watch = OneShot(lambda: on_lost(peer))
        self._watches = [*(one for one in self._watches if one.is_set), watch]
        try:
            self._world.resident(peer).watchers.append(watch.fire)
        except ActorGone:
            asyncio.get_running_loop().call_soon(watch.fire)
        return watch

    async def connect(self, peer: ActorRef | str) -> Link:
        """Open a link to an actor."""
        try:
            resident = self._world.resident(peer)
        except ActorGone as gone:
            raise PeerLost(str(gone)) from gone
        link = self._world.link_to(resident.actor, next(self._world.link_numbers))
        resident.links.append(link)
        self._links[link] = resident
        link.on_lost(lambda: self._forget(link, resident))
        return link

    def _forget(self, link: InprocLink, resident: Resident) -> None:
        resident.links.remove(link)
        self._links.pop(link, None)
