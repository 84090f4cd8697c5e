"""Actors as processes of a Ray cluster. Ray is known here, in the CLI and in the Spark jobs only.

An actor is a detached Ray actor, named in the namespace `raylog`, whose process holds its shell; or
it is a lodger (`OWN@HOST`) in the process of another, of which Ray knows nothing: its host passes
calls on to it, and both end with the process. Control calls are Ray actor calls; bytes go over
stream links (`runtime.stream`), between those who share a process by method calls
(`runtime.residence`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from raylog.actors import names, plain_logs
from raylog.actors.collecting import leave_out_code
from raylog.actors.journal import JournalAsked, JournalTold
from raylog.actors.names import host_of
from raylog.actors.roles import role_class
from raylog.actors.runtime import ray_kv, ray_node
from raylog.actors.runtime.base import (
    ActorGone,
    ActorRef,
    ActorSpec,
    Apart,
    Link,
    NodeEntry,
    PeerLost,
    PeerTimeout,
    Timer,
    Work,
)
from raylog.actors.runtime.calls import FORESEEN, answer, start_failure
from raylog.actors.runtime.evidence import ENDING, ProcessJournal
from raylog.actors.runtime.helpers import Helpers
from raylog.actors.runtime.link_secret import LinkSecrets, reread, secrets_of
from raylog.actors.runtime.link_settings import LinkSettings
from raylog.actors.runtime.link_watch import LinkWatch
from raylog.actors.runtime.loop import LoopRuntime
from raylog.actors.runtime.messages import Outcome, outcome_of, pack, unpack, value_of
from raylog.actors.runtime.processes import (
    ProcessRecord,
    be_as_urgent_as_parent,
    kill_and_wait,
    record_of,
    was_started_here,
)
from raylog.actors.runtime.ray_actors import (
    Creation,
    Handles,
    actor_names,
    begin_unasked,
    end_named,
)
from raylog.actors.runtime.ray_node import NAMESPACE, raise_descriptor_limit
from raylog.actors.runtime.ray_places import options_of, outside, starts_directory, this_node
from raylog.actors.runtime.ray_sigterm import on_sigterm
from raylog.actors.runtime.residence import Residence, neighbour
from raylog.actors.runtime.restarts import Restarts
from raylog.actors.runtime.stream import connect_link
from raylog.actors.runtime.termination import Termination, end_in_order
from raylog.actors.runtime.waiting import in_time
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
START_TIMEOUT_S = 60.0
LINK_TIMEOUT_S = 5.0
LEAVE_TIMEOUT_S = 5.0
END_TIMEOUT_S = 30.0
HEAD_TIMEOUT_MS = 10_000
FAREWELL_S = 1.0
"""For who waits to hear that a start has failed, before the process ends."""
CONCURRENT_CALLS = 1000
BROKEN_EXIT_CODE = 70
T = TypeVar("T")


class Host:
    """The Ray actor of one process: starts its shell and those of lodgers, passes calls to them.

    Ray runs `__init__` again when it restarts the actor; `begin` then follows without a caller.
    Lodgers do not come back with it. A shell that does not start ends the process: whoever started
    it is told, and Ray tries again where that is the actor's lot, ever more slowly.
    """

    def __init__(self, spec: ActorSpec, secret_source: str, spawned: str) -> None:
        raise_descriptor_limit()
        _configure_logging()
        if not be_as_urgent_as_parent():
            log.warning(
                "%s has niceness %d: start Ray with RAY_worker_niceness=0", spec.name, os.nice(0)
            )
        self._spec = spec
        self._secret_source = secret_source
        self._journal = ProcessJournal.begun(spec) if spec.journal else None
        self._restarts = Restarts(starts_directory(secret_source), spec.name, spawned)
        self._waits = ""
        """Why the shell does not start yet."""
        self._starts: dict[str, asyncio.Task[ActorRef]] = {}
        """Of all who live here or are about to, by name."""
        self._residences: dict[str, Residence] = {}
        self._runtime: RayRuntime | None = None  # of the shell, once it has started
        self._loading: asyncio.Task[None] | None = None
        itself = ray.get_runtime_context().current_actor
        threading.Thread(target=begin_unasked, args=(itself, START_TIMEOUT_S), daemon=True).start()

    async def begin(self) -> Outcome:
        """Start the shell once; every caller gets its ref, or why it did not start."""
        return await outcome_of(self._begun())

    async def _begun(self) -> ActorRef:
        try:
            return await self._begin()
        except Exception as failure:
            raise start_failure(self._spec.name, failure) from failure

    async def _begin(self) -> ActorRef:
        start = self._starts.get(self._spec.name)
        if start is None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(_end_on_broken_invariant)
            on_sigterm(Termination(loop, lambda: loop.create_task(self._end_in_order())).told)
            start = self._starts[self._spec.name] = loop.create_task(self._start_in_time())
            start.add_done_callback(self._started_or_not)
            self._loading = loop.create_task(self._load(start, self._spec.houses))
        return await asyncio.shield(start)

    async def _start_in_time(self) -> ActorRef:
        """Start the shell, not at once where its processes keep ending."""
        if self._spec.restarts:
            delay_ms = await asyncio.to_thread(self._restarts.begin, time.monotonic() * 1000)
            if delay_ms:
                reason = self._restarts.reason or "its last process was killed"
                self._waits = f"{self._spec.name} starts again within {delay_ms} ms: {reason}"
                log.warning("%s", self._waits)
                await asyncio.sleep(delay_ms / 1000)
                self._waits = ""
        return await self._start(self._spec)

    def _started_or_not(self, start: asyncio.Task[ActorRef]) -> None:
        """End the process of a shell that did not start, once that is told."""
        failure = None if start.cancelled() else start.exception()
        if failure is not None:
            log.error("%s did not start", self._spec.name, exc_info=failure)
            asyncio.get_running_loop().call_later(FAREWELL_S, self._end, failure)

    def _end(self, failure: BaseException) -> None:
        if self._journal is not None:
            self._journal.crashed(failure)
        if self._spec.restarts:
            self._restarts.ends(f"{type(failure).__name__}: {failure}")
        _end_broken(failure)

    async def _end_in_order(self) -> None:
        """End the process once its actor is done."""
        here = self._residences.get(self._spec.name)
        if here is not None and self._runtime is not None:
            await end_in_order(self._spec, here.actor, self._runtime)
        self._end(InterruptedError("it was told to end by SIGTERM"))

    @staticmethod
    async def _load(start: asyncio.Task[ActorRef], roles: tuple[str, ...]) -> None:
        """Load the code of lodgers, so that their coming does not wait for it."""
        await asyncio.wait([start])
        for role in roles:
            await asyncio.to_thread(role_class, role)
        leave_out_code()

    async def _start(self, spec: ActorSpec) -> ActorRef:
        actor_class = await asyncio.to_thread(role_class, spec.role)
        secrets = await asyncio.to_thread(secrets_of, self._secret_source)
        instance = uuid.uuid4().hex
        runtime = RayRuntime(
            instance,
            self._secret_source,
            secrets,
            links=spec.links,
            drain_ms=spec.drain_ms,
            journal=self._spec.journal,
            on_broken=self._end,
        )
        actor = actor_class(runtime, **spec.args)
        residence = Residence(actor, runtime)
        try:
            await actor.start()
            await residence.open(secrets, await asyncio.to_thread(outside, spec.links))
        except BaseException:
            runtime.end(wait=False)
            raise
        self._residences[spec.name] = residence
        if spec is self._spec:
            self._runtime = runtime
        itself = record_of(spec.name, os.getpid())
        assert itself is not None, "this process runs"
        return ActorRef(
            spec.name,
            spec.role,
            residence.address,
            itself.pid,
            ray.get_runtime_context().get_node_id(),
            instance,
            itself.started,
        )

    async def take_in(self, spec: ActorSpec) -> Outcome:
        """Start a lodger; answers its ref, or what went wrong."""
        return await outcome_of(self._take_in(spec))

    async def _take_in(self, spec: ActorSpec) -> ActorRef:
        await self._started(self._spec.name)
        start = self._starts[spec.name] = asyncio.create_task(self._start(spec))
        try:
            return await self._started(spec.name)
        finally:
            if spec.name not in self._residences and self._starts.get(spec.name) is start:
                del self._starts[spec.name]

    async def ref(self, name: str) -> Outcome:
        """The ref of who lives here by that name."""
        return await outcome_of(self._started(name))

    async def _started(self, name: str) -> ActorRef:
        """Wait until who is about to live here by that name does; raises as `spawn` does."""
        if name == self._spec.name:
            if self._waits:
                raise PeerLost(self._waits)
            return await self._begun()
        start = self._starts.get(name)
        if start is None:
            raise PeerLost(f"{name} does not live here")
        await asyncio.wait([start])
        if start.cancelled():
            raise PeerLost(f"{name} was dismissed before it was ready")
        failure = start.exception()
        if failure is not None:
            raise start_failure(name, failure) from failure
        return start.result()

    async def call(self, name: str, method: str, packed: bytes) -> Outcome:
        """Call a method of the shell of that name once it has started; the answer is packed."""
        return await outcome_of(self._call(name, method, packed))

    async def _call(self, name: str, method: str, packed: bytes) -> bytes:
        args = unpack(packed)
        if name not in self._residences:
            await self._started(name)
        residence = self._residences.get(name)
        if residence is None:
            raise PeerLost(f"{name} has left")
        return pack(await self._answer(residence, method, args))

    async def _answer(self, residence: Residence, method: str, args: tuple[Any, ...]) -> Any:
        """Call a method of a shell; a mistake in it ends the process (`runtime.calls`)."""
        try:
            answered = await answer(residence.actor, method, args)
        except FORESEEN:
            raise
        except Exception as failure:
            log.critical("%s failed", method, exc_info=failure)
            self._end(failure)
            raise
        if method in ENDING and residence is self._residences.get(self._spec.name):
            await asyncio.to_thread(self._ended_as_asked)
        return answered

    async def reread_secrets(self) -> Outcome:
        """Prove and accept what the source of secrets has now; answers their fingerprints."""
        return await outcome_of(asyncio.to_thread(reread, self._secret_source))

    async def ends(self) -> Outcome:
        """Take it that this process is ended on purpose."""
        return await outcome_of(asyncio.to_thread(self._ended_as_asked))

    def _ended_as_asked(self) -> None:
        if self._journal is not None:
            self._journal.ended_as_asked()

    async def journal(self, packed: bytes) -> Outcome:
        """What the journal of its broker's directory tells, even while the shell does not start."""
        return await outcome_of(self._told(packed))

    async def _told(self, packed: bytes) -> bytes:
        if self._journal is None:
            raise PeerLost(f"{self._spec.name} keeps no journal")
        return pack(await asyncio.to_thread(self._journal.told, unpack(packed)))

    async def dismiss(self, name: str, stop: bool) -> Outcome:
        """Have a lodger leave, stopped before that where it has not been; gone is fine."""
        return await outcome_of(self._dismiss(name, stop=stop))

    async def _dismiss(self, name: str, *, stop: bool) -> None:
        start = self._starts.pop(name, None)
        if start is not None:
            start.cancel()
        residence = self._residences.pop(name, None)
        if residence is not None:
            if stop:
                await self._answer(residence, "stop", ())
            residence.leave()


class Controller(Host):
    """The process of a controller. Ray shows the roles by these classes' names."""


class Broker(Host):
    """The process of a broker."""


class Gateway(Host):
    """The process of a gateway."""


class Replica(Host):
    """The process of replicas, and of lodgers."""


class GroupCoordinator(Host):
    """The process of a group coordinator."""


class TransactionCoordinator(Host):
    """The process of a transaction coordinator."""


class Supervisor(Host):
    """The process of a supervisor."""


_CLASSES: dict[str, type[Host]] = {
    names.CONTROLLER: Controller,
    names.BROKER: Broker,
    names.GATEWAY: Gateway,
    names.REPLICA: Replica,
    names.GROUP: GroupCoordinator,
    names.TRANSACTION: TransactionCoordinator,
    names.SUPERVISOR: Supervisor,
}


class RayRuntime(LoopRuntime):
    """The runtime of one actor, or of a driver, on Ray."""

    rest_s = 0.0

    def __init__(
        self,
        instance: str,
        secret_source: str,
        secrets: LinkSecrets,
        *,
        links: LinkSettings | None = None,
        drain_ms: int = 0,
        journal: str = "",
        on_broken: Callable[[BaseException], None] | None = None,
    ) -> None:
        super().__init__(instance, on_broken or _end_broken)
        self._secret_source = secret_source
        self._secrets = secrets
        self._links = links
        self._drain_ms = drain_ms
        self._journal = journal
        self._handles = Handles(self.run_foreign)
        self._helpers = Helpers(self)

    @classmethod
    def of_driver(cls, secret_source: str) -> RayRuntime:
        """The runtime of the process that starts or asks a cluster; Ray is connected already."""
        return cls(uuid.uuid4().hex, secret_source, secrets_of(secret_source))

    async def spawn(self, spec: ActorSpec) -> ActorRef:
        """Start an actor and wait until its `start()` returned; where it raises, nobody is left."""
        spec = replace(
            spec, links=spec.links or self._links, drain_ms=spec.drain_ms or self._drain_ms
        )
        spec = replace(spec, links=spec.links or self._links, journal=spec.journal or self._journal)
        if host_of(spec.name) != spec.name:
            return await self._spawn_lodger(spec)
        creation = Creation(lambda: self._create(spec))
        try:
            async with in_time(spec.name, START_TIMEOUT_S):
                timeout_ms = int(2_000 * START_TIMEOUT_S)
                handle = await self.run_foreign(creation.run, timeout_ms=timeout_ms)
                self._handles.know(spec.name, handle)
                ref: ActorRef = await self._answer(spec.name, lambda host: host.begin.remote())
        except BaseException:
            self._handles.forget(spec.name)
            await self._in_a_thread(creation.undo, f"the end of {spec.name}")
            raise
        return ref

    async def _spawn_lodger(self, spec: ActorSpec) -> ActorRef:
        try:
            async with in_time(spec.name, START_TIMEOUT_S):
                ref: ActorRef = await self._answer(
                    spec.name, lambda host: host.take_in.remote(spec)
                )
        except (PeerTimeout, asyncio.CancelledError):
            await self.end_for_good(spec.name)
            raise
        return ref

    def _create(self, spec: ActorSpec) -> Any:
        options: dict[str, Any] = {
            "name": spec.name,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "num_cpus": 0,
            "max_concurrency": CONCURRENT_CALLS,
            "max_restarts": -1 if spec.restarts else 0,
            "max_task_retries": 0,
        }
        host = ray.remote(_CLASSES[spec.role]).options(
            **options, **options_of(spec.place, spec.hosts)
        )
        return host.remote(spec, self._secret_source, uuid.uuid4().hex)

    async def this_node(self) -> NodeEntry:
        """The Ray node that this runs on."""
        return await self.run_blocking(this_node)

    async def apart(self, work: Work) -> Apart:
        """Have a process do `work`; raises PeerLost if none can be started."""
        return await self._helpers.do(work)

    def end(self, *, wait: bool = True) -> None:
        """End the background tasks, and processes that work for this one."""
        self._helpers.end()
        super().end(wait=wait)

    async def find(self, name: str) -> ActorRef:
        """The live actor of that name; raises ActorGone."""
        try:
            async with in_time(name, START_TIMEOUT_S):
                ref: ActorRef = await self._answer(name, lambda host: host.ref.remote(name))
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            raise ActorGone(f"no actor {name} answers: {failure}") from failure
        return ref

    async def call(self, peer: ActorRef | str, method: str, *args: Any, timeout_ms: int) -> Any:
        """Call a method of an actor by ref or name."""
        name = peer if isinstance(peer, str) else peer.name
        packed = pack(args)
        async with in_time(name, timeout_ms / 1000):
            answer = await self._answer(name, lambda host: host.call.remote(name, method, packed))
        return unpack(answer)

    async def _answer(self, name: str, ask: Callable[[Any], Any]) -> Any:
        """What is answered in the process of an actor, which is looked for first.

        Raises as `call` does.
        """
        host = host_of(name)
        try:
            outcome: Outcome = await ask(await self._handles.of(host))
        except RayTaskError as failure:
            # The call itself does not get through Ray: its arguments are of another build.
            log.error("%s cannot be asked", name, exc_info=failure)
            raise PeerLost(f"{name} cannot be asked: {failure.cause}") from failure
        except (RayActorError, RayError) as lost:
            self._handles.forget(host)
            raise PeerLost(f"{name} is gone: {lost}") from lost
        return value_of(outcome)

    async def reread_secrets(self, name: str, timeout_ms: int) -> tuple[str, ...]:
        """Have a process read its secrets anew; returns their fingerprints. Raises as `call`."""
        async with in_time(name, timeout_ms / 1000):
            prints = await self._answer(name, lambda host: host.reread_secrets.remote())
        return tuple(prints)

    async def journal(self, name: str, asked: JournalAsked, timeout_ms: int) -> JournalTold:
        """What a broker's journal tells; raises as `call` does."""
        packed = pack(asked)
        async with in_time(name, timeout_ms / 1000):
            told = await self._answer(name, lambda host: host.journal.remote(packed))
        found: JournalTold = unpack(told)
        return found

    async def kill(self, peer: ActorRef) -> None:
        """End the actor's process hard and wait until it is gone."""
        host = host_of(peer.name)
        process = ProcessRecord(host, peer.pid, peer.started)
        if was_started_here(process):
            self._handles.forget(host)
            await asyncio.to_thread(kill_and_wait, process)
        else:
            await self.end_for_good(host)  # Ray may have placed it on another machine

    async def dismiss(self, peer: ActorRef) -> None:
        """End an actor that has stopped; a host that does not let its lodger go ends with it."""
        if host_of(peer.name) == peer.name or not await self._leaves(peer.name, stop=False):
            await self.kill(peer)

    async def end_for_good(self, name: str) -> None:
        """End the actor of that name so that Ray does not restart it; gone is fine.

        A lodger is stopped and leaves; a host that does not let it go is ended.
        """
        host = host_of(name)
        if host != name and await self._leaves(name, stop=True):
            return
        with contextlib.suppress(PeerLost, PeerTimeout):  # who hangs, or is gone, leaves a crash
            async with in_time(host, FAREWELL_S):
                await self._answer(host, lambda found: found.ends.remote())
        await self._in_a_thread(partial(end_named, host), f"the end of {name}")
        self._handles.forget(host)

    async def _in_a_thread(self, ending: Callable[[], None], what: str) -> None:
        """Have Ray end somebody; it is seen to after the time for it, too, while this one lives."""
        try:
            await self.run_foreign(ending, timeout_ms=int(1_000 * END_TIMEOUT_S))
        except PeerTimeout:
            log.warning("Ray does not answer yet: %s", what)

    async def _leaves(self, name: str, *, stop: bool) -> bool:
        """Whether a lodger is gone from its host; that of a host which hangs is not."""
        try:
            async with in_time(name, LEAVE_TIMEOUT_S):
                await self._answer(name, lambda host: host.dismiss.remote(name, stop))
        except PeerLost:
            return True
        except PeerTimeout:
            log.warning("%s does not leave its host", name)
            return False
        return True

    async def nodes(self) -> list[NodeEntry]:
        """The live nodes."""
        return await self._asked(ray_node.live_nodes)

    async def names(self, prefix: str) -> set[str]:
        """Names that begin so, of actors that live or are to come back."""
        return await self._asked(actor_names, prefix)

    async def kv_get(self, key: str) -> bytes | None:
        """A value of Ray's key-value store."""
        return await self._asked(ray_kv.get, key)

    async def kv_put(self, key: str, value: bytes) -> None:
        """Set a value of Ray's key-value store."""
        await self._asked(ray_kv.put, key, value)

    async def kv_keys(self, prefix: str) -> list[str]:
        """The keys of Ray's key-value store that begin so."""
        return await self._asked(ray_kv.keys, prefix)

    async def kv_delete(self, key: str) -> None:
        """Take a value of Ray's key-value store away."""
        await self._asked(ray_kv.delete, key)

    async def _asked(self, ask: Callable[..., T], *args: Any) -> T:
        """What Ray's head says; raises PeerLost, PeerTimeout."""
        try:
            return await self.run_foreign(ask, *args, timeout_ms=HEAD_TIMEOUT_MS)
        except RayError as failure:
            raise PeerLost(f"Ray's head does not answer: {failure}") from failure

    def watch(self, peer: ActorRef, on_lost: Callable[[ActorRef], None]) -> Timer:
        """Run `on_lost(peer)` once when the actor's process is gone: a link to it breaks then."""
        watch = LinkWatch(peer, on_lost)
        self.start(watch.run(self), f"watch {peer.name}")
        return watch

    async def connect(self, peer: ActorRef | str) -> Link:
        """Open a link to an actor by ref or link address; raises PeerLost."""
        address = peer if isinstance(peer, str) else peer.address
        here = neighbour(address)
        if here is not None:
            return here.link()
        return await connect_link(address, self._secrets, self.instance, LINK_TIMEOUT_S)


def _configure_logging() -> None:
    plain_logs.configure(os.environ.get("RAYLOG_LOG_LEVEL", "INFO"))


def _end_broken(failure: BaseException) -> None:
    """A shell with a broken invariant ends; who watches it starts the next one."""
    logging.shutdown()
    os._exit(BROKEN_EXIT_CODE)


def _end_on_broken_invariant(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The event loop's last resort: an assertion ends the process, all else is logged."""
    failure = context.get("exception")
    log.error("unhandled in the event loop: %s", context.get("message"), exc_info=failure)
    if isinstance(failure, AssertionError):
        _end_broken(failure)
