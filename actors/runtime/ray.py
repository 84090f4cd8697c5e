"""Actors as processes of a Ray cluster.

An actor is a detached Ray actor, named in the namespace `raylog`, whose process runs its shell. A
co-located actor (`OWN@HOST`) runs in the process of another one. Ray does not know it: its host
passes calls on, and both end with the process. Control calls are Ray actor calls. Links are sockets
(`runtime.stream`), or method calls within a process (`runtime.residence`). Only the modules of the
runtime, the CLI and the Spark jobs know Ray.
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

from raylog.actors import log_formatting
from raylog.actors.gc_tuning import leave_out_code
from raylog.actors.journal import JournalAsked, JournalTold
from raylog.actors.names import host_of
from raylog.actors.places import NodeEntry
from raylog.actors.roles import LABELS, role_class
from raylog.actors.runtime import ray_kv, ray_node
from raylog.actors.runtime.base import (
    ActorGone,
    ActorRef,
    ActorSpec,
    Apart,
    Link,
    PeerLost,
    PeerTimeout,
    Timer,
    Work,
)
from raylog.actors.runtime.calls import FORESEEN, answer, start_failure
from raylog.actors.runtime.evidence import ENDING, ProcessJournal
from raylog.actors.runtime.link_secret import LinkSecrets, reread, secrets_of
from raylog.actors.runtime.link_settings import LinkSettings
from raylog.actors.runtime.link_watch import LinkWatch
from raylog.actors.runtime.loop import LoopRuntime
from raylog.actors.runtime.packing import Outcome, outcome_of, pack, unpack, value_of
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
from raylog.actors.runtime.worker_processes import WorkerProcesses
from raylog.wire.errors import KafkaError

log = logging.getLogger(__name__)
START_TIMEOUT_S = 60.0
LINK_TIMEOUT_S = 5.0
LEAVE_TIMEOUT_S = 5.0
END_TIMEOUT_S = 30.0
HEAD_TIMEOUT_MS = 10_000
FAREWELL_S = 1.0
"""Delay before the process ends, so that the failure of a start can be reported."""
CONCURRENT_CALLS = 1000
BROKEN_EXIT_CODE = 70
T = TypeVar("T")


class Host:
    """The Ray actor of a process: starts its shell and co-located ones, and passes calls to them.

    Ray runs `__init__` again when it restarts the actor; then `begin` follows without a caller.
    Co-located actors do not come back with it. A shell that fails to start ends the process: its
    spawner is told, and if Ray restarts the actor, it waits longer each time.
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
        """Why the shell has not started yet."""
        self._starts: dict[str, asyncio.Task[ActorRef]] = {}
        """Starts of all actors in this process, by name."""
        self._residences: dict[str, Residence] = {}
        self._runtime: RayRuntime | None = None  # of the shell, once it has started
        self._loading: asyncio.Task[None] | None = None
        itself = ray.get_runtime_context().current_actor
        threading.Thread(target=begin_unasked, args=(itself, START_TIMEOUT_S), daemon=True).start()

    async def begin(self) -> Outcome:
        """Start the shell once; every caller gets its ref, or the reason why it did not start."""
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
            on_sigterm(Termination(loop, lambda: loop.create_task(self._end_in_order())).on_signal)
            start = self._starts[self._spec.name] = loop.create_task(self._start_in_time())
            start.add_done_callback(self._started_or_not)
            self._loading = loop.create_task(self._load(start, self._spec.houses))
        return await asyncio.shield(start)

    async def _start_in_time(self) -> ActorRef:
        """Start the shell, after a delay if its processes keep ending."""
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
        """End the process of a shell that did not start, once that is reported."""
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
        """Shut the actor down, then end the process."""
        here = self._residences.get(self._spec.name)
        if here is not None and self._runtime is not None:
            await end_in_order(self._spec, here.actor, self._runtime)
        self._end(InterruptedError("it was told to end by SIGTERM"))

    @staticmethod
    async def _load(start: asyncio.Task[ActorRef], roles: tuple[str, ...]) -> None:
        """Load the code of co-located actors, so that their start does not wait for it."""
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
        """Start a co-located actor; return its ref, or the failure."""
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
        """Return the ref of the actor with that name in this process."""
        return await outcome_of(self._started(name))

    async def _started(self, name: str) -> ActorRef:
        """Wait until the actor with that name has started; raises as `spawn` does."""
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
        """Call a method of a shell, once it has started; the answer is packed."""
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
        """Call a method of a shell; a bug in it ends the process (`runtime.calls`)."""
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
        """Use the secrets that the source has now; return their fingerprints."""
        return await outcome_of(asyncio.to_thread(reread, self._secret_source))

    async def ends(self) -> Outcome:
        """Note that the process is ended on purpose."""
        return await outcome_of(asyncio.to_thread(self._ended_as_asked))

    def _ended_as_asked(self) -> None:
        if self._journal is not None:
            self._journal.ended_as_asked()

    async def journal(self, packed: bytes) -> Outcome:
        """Return the journal of its broker's directory, even if the shell has not started."""
        return await outcome_of(self._read_journal(packed))

    async def _read_journal(self, packed: bytes) -> bytes:
        if self._journal is None:
            raise PeerLost(f"{self._spec.name} keeps no journal")
        return pack(await asyncio.to_thread(self._journal.read, unpack(packed)))

    async def dismiss(self, name: str, stop: bool) -> Outcome:
        """End a co-located actor, and stop it first if asked to. It may be gone already."""
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


_CLASSES: dict[str, type] = {role: type(label, (Host,), {}) for role, label in LABELS.items()}
"""Ray shows an actor by the name of its class."""
globals().update({one.__name__: one for one in _CLASSES.values()})
# Other builds' pickled classes are found under these names (docs/upgrading.md).


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
        self._helpers = WorkerProcesses(self)

    @classmethod
    def of_driver(cls, secret_source: str) -> RayRuntime:
        """Return the runtime of a process that starts or queries a cluster.

        Ray must be connected.
        """
        return cls(uuid.uuid4().hex, secret_source, secrets_of(secret_source))

    async def spawn(self, spec: ActorSpec) -> ActorRef:
        """Start an actor and wait until `start()` has returned; on an exception none is left."""
        spec = replace(
            spec, links=spec.links or self._links, drain_ms=spec.drain_ms or self._drain_ms
        )
        spec = replace(spec, links=spec.links or self._links, journal=spec.journal or self._journal)
        if host_of(spec.name) != spec.name:
            return await self._spawn_colocated(spec)
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

    async def _spawn_colocated(self, spec: ActorSpec) -> ActorRef:
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
        host: Any = ray.remote(_CLASSES[spec.role]).options(
            **options, **options_of(spec.place, spec.hosts)
        )
        return host.remote(spec, self._secret_source, uuid.uuid4().hex)

    async def this_node(self) -> NodeEntry:
        """Return the Ray node of this process."""
        return await self.run_blocking(this_node)

    async def apart(self, work: Work) -> Apart:
        """Do `work` in a separate process; raises PeerLost if none can be started."""
        return await self._helpers.do(work)

    def end(self, *, wait: bool = True) -> None:
        """End the background tasks, and the helper processes of this one."""
        self._helpers.end()
        super().end(wait=wait)

    async def find(self, name: str) -> ActorRef:
        """Return the live actor with that name; raises ActorGone."""
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
        """Find an actor's process and call it there; raises as `call` does."""
        host = host_of(name)
        try:
            outcome: Outcome = await ask(await self._handles.of(host))
        except RayTaskError as failure:
            # The call did not get through Ray: its arguments are of another build.
            log.error("%s cannot be asked", name, exc_info=failure)
            raise PeerLost(f"{name} cannot be asked: {failure.cause}") from failure
        except (RayActorError, RayError) as lost:
            self._handles.forget(host)
            raise PeerLost(f"{name} is gone: {lost}") from lost
        return value_of(outcome)

    async def reread_secrets(self, name: str, timeout_ms: int) -> tuple[str, ...]:
        """Make a process read its secrets again; return the fingerprints. Raises as `call`."""
        async with in_time(name, timeout_ms / 1000):
            prints = await self._answer(name, lambda host: host.reread_secrets.remote())
        return tuple(prints)

    async def journal(self, name: str, request: JournalAsked, timeout_ms: int) -> JournalTold:
        """Return a broker's journal; raises as `call` does."""
        packed = pack(request)
        async with in_time(name, timeout_ms / 1000):
            packed_answer = await self._answer(name, lambda host: host.journal.remote(packed))
        found: JournalTold = unpack(packed_answer)
        return found

    async def kill(self, peer: ActorRef) -> None:
        """Kill the actor's process and wait until it is gone."""
        host = host_of(peer.name)
        process = ProcessRecord(host, peer.pid, peer.started)
        if was_started_here(process):
            self._handles.forget(host)
            await asyncio.to_thread(kill_and_wait, process)
        else:
            await self.end_for_good(host)  # Ray may have placed it on another machine

    async def dismiss(self, peer: ActorRef) -> None:
        """End an actor that has stopped. A host that does not release it ends, too."""
        if host_of(peer.name) == peer.name or not await self._leaves(peer.name, stop=False):
            await self.kill(peer)

    async def end_for_good(self, name: str) -> None:
        """End the actor with that name so that Ray does not restart it. It may be gone already.

        A co-located actor is stopped and leaves. A host that does not release it is ended.
        """
        host = host_of(name)
        if host != name and await self._leaves(name, stop=True):
            return
        with contextlib.suppress(PeerLost, PeerTimeout):  # then it counts as crashed
            async with in_time(host, FAREWELL_S):
                await self._answer(host, lambda found: found.ends.remote())
        await self._in_a_thread(partial(end_named, host), f"the end of {name}")
        self._handles.forget(host)

    async def _in_a_thread(self, ending: Callable[[], None], what: str) -> None:
        """Run a blocking end of an actor, which goes on in the background after the timeout."""
        try:
            await self.run_foreign(ending, timeout_ms=int(1_000 * END_TIMEOUT_S))
        except PeerTimeout:
            log.warning("Ray does not answer yet: %s", what)

    async def _leaves(self, name: str, *, stop: bool) -> bool:
        """Return whether a co-located actor has left its host; False if the host hangs."""
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
        """Return the live nodes."""
        return await self._asked(ray_node.live_nodes)

    async def names(self, prefix: str) -> set[str]:
        """Return names with this prefix, of actors that live or will be restarted."""
        return await self._asked(actor_names, prefix)

    async def kv_get(self, key: str) -> bytes | None:
        """Return a value of Ray's key-value store."""
        return await self._asked(ray_kv.get, key)

    async def kv_put(self, key: str, value: bytes) -> None:
        """Set a value in Ray's key-value store."""
        await self._asked(ray_kv.put, key, value)

    async def kv_keys(self, prefix: str) -> list[str]:
        """Return the keys in Ray's key-value store with this prefix."""
        return await self._asked(ray_kv.keys, prefix)

    async def kv_delete(self, key: str) -> None:
        """Delete a value from Ray's key-value store."""
        await self._asked(ray_kv.delete, key)

    async def _asked(self, ask: Callable[..., T], *args: Any) -> T:
        """Ask Ray's head; raises PeerLost, PeerTimeout."""
        try:
            return await self.run_foreign(ask, *args, timeout_ms=HEAD_TIMEOUT_MS)
        except RayError as failure:
            raise PeerLost(f"Ray's head does not answer: {failure}") from failure

    def watch(self, peer: ActorRef, on_lost: Callable[[ActorRef], None]) -> Timer:
        """Run `on_lost(peer)` once when the actor's process is gone, which breaks a link to it."""
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
    log_formatting.configure(os.environ.get("RAYLOG_LOG_LEVEL", "INFO"))


def _end_broken(failure: BaseException) -> None:
    """End the process after a bug. Whoever watches it starts the next one."""
    logging.shutdown()
    os._exit(BROKEN_EXIT_CODE)


def _end_on_broken_invariant(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle exceptions in the event loop: an assertion ends the process, others are logged."""
    failure = context.get("exception")
    log.error("unhandled in the event loop: %s", context.get("message"), exc_info=failure)
    if isinstance(failure, AssertionError):
        _end_broken(failure)
