"""Actors as processes of a Ray cluster. Ray is known here, in the CLI and in the Spark jobs only.

Every actor is a detached Ray actor named in the namespace `raylog`, whose process holds one shell.
Control calls are Ray actor calls; bytes go over stream links (`runtime.stream`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raylog.actors.roles import role_class
from raylog.actors.runtime.base import (
    Actor,
    ActorGone,
    ActorRef,
    ActorSpec,
    Link,
    PeerLost,
    PeerTimeout,
    Timer,
)
from raylog.actors.runtime.loop import LoopRuntime
from raylog.actors.runtime.ray_node import NAMESPACE, raise_descriptor_limit
from raylog.actors.runtime.stream import ServingLink, connect_link, serve_links
from raylog.wire.errors import ErrorCode, KafkaError, error_of

log = logging.getLogger(__name__)
START_TIMEOUT_S = 60.0
BEGIN_RETRY_S = 0.02
LINK_TIMEOUT_S = 5.0
CONCURRENT_CALLS = 1000
BROKEN_EXIT_CODE = 70
_OK, _REFUSED = 0, 1


class Host:
    """The Ray actor around one shell: starts it, passes calls to it, ends the process with it.

    Ray runs `__init__` again when it restarts the actor; `begin` then follows without a caller.
    """

    def __init__(self, role: str, name: str, args: dict[str, Any], secret_path: str) -> None:
        raise_descriptor_limit()
        _configure_logging()
        self._role = role
        self._name = name
        self._args = args
        self._secret_path = secret_path
        self._started: asyncio.Task[ActorRef] | None = None
        self._actor: Actor | None = None
        self._links: set[ServingLink] = set()
        self._server: asyncio.AbstractServer | None = None
        itself = ray.get_runtime_context().current_actor
        threading.Thread(target=_begin_unasked, args=(itself,), daemon=True).start()

    async def begin(self) -> tuple[int, Any]:
        """Start the shell once; every caller gets its ref, or what went wrong."""
        if self._started is None:
            self._started = asyncio.get_running_loop().create_task(self._begin())
        try:
            return _OK, await asyncio.shield(self._started)
        except KafkaError as refused:
            return _REFUSED, (int(refused.code), str(refused))

    async def _begin(self) -> ActorRef:
        asyncio.get_running_loop().set_exception_handler(_end_on_broken_invariant)
        secret = await asyncio.to_thread(_read_secret, self._secret_path)
        instance = uuid.uuid4().hex
        runtime = RayRuntime(instance, self._secret_path, secret)
        actor = role_class(self._role)(runtime, **self._args)
        await actor.start()
        address = f"unix:raylog-{instance}"
        self._server = await serve_links(address, secret, instance, actor, self._links)
        self._actor = actor
        node_id = ray.get_runtime_context().get_node_id()
        return ActorRef(self._name, self._role, address, os.getpid(), node_id, instance)

    async def call(self, method: str, args: tuple[Any, ...]) -> tuple[int, Any]:
        """Call a method of the shell once it has started."""
        if self._actor is None:
            await self.begin()
            assert self._actor is not None
        try:
            return _OK, await getattr(self._actor, method)(*args)
        except KafkaError as refused:
            return _REFUSED, (int(refused.code), str(refused))


class RayRuntime(LoopRuntime):
    """The runtime of one actor, or of a driver, on Ray."""

    def __init__(self, instance: str, secret_path: str, secret: bytes) -> None:
        super().__init__(instance, _end_broken)
        self._secret_path = secret_path
        self._secret = secret
        self._handles: dict[str, Any] = {}

    @classmethod
    def of_driver(cls, secret_path: str) -> RayRuntime:
        """The runtime of the process that starts or asks a cluster; Ray is connected already."""
        return cls(uuid.uuid4().hex, secret_path, _read_secret(secret_path))

    async def spawn(self, spec: ActorSpec) -> ActorRef:
        """Start an actor and wait until its `start()` returned; raises what that refused."""
        handle = await asyncio.to_thread(self._create, spec)
        self._handles[spec.name] = handle
        ref: ActorRef = await self._answer(handle.begin.remote(), spec.name, START_TIMEOUT_S)
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
        # Without a wish an actor stays near who starts it: one node less whose end it suffers from.
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
            spec.node_id or ray.get_runtime_context().get_node_id(), soft=spec.node_id is None
        )
        host = ray.remote(Host).options(**options)
        return host.remote(spec.role, spec.name, spec.args, self._secret_path)

    async def find(self, name: str) -> ActorRef:
        """The live actor of that name; raises ActorGone."""
        try:
            handle = await self._handle(name)
            ref: ActorRef = await self._answer(handle.begin.remote(), name, START_TIMEOUT_S)
        except (PeerLost, PeerTimeout) as failure:
            raise ActorGone(f"no actor {name} answers: {failure}") from failure
        return ref

    async def _handle(self, name: str) -> Any:
        handle = self._handles.get(name)
        if handle is None:
            try:
                handle = await asyncio.to_thread(ray.get_actor, name, NAMESPACE)
            except (ValueError, RayError) as failure:
                raise PeerLost(f"Ray knows no live actor {name}") from failure
            self._handles[name] = handle
        return handle

    async def call(self, peer: ActorRef | str, method: str, *args: Any, timeout_ms: int) -> Any:
        """Call a method of an actor by ref or name."""
        name = peer if isinstance(peer, str) else peer.name
        handle = await self._handle(name)
        return await self._answer(handle.call.remote(method, args), name, timeout_ms / 1000)

    async def _answer(self, task: Any, name: str, timeout_s: float) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                outcome, value = await task
        except TimeoutError as late:
            raise PeerTimeout(f"{name} did not answer within {timeout_s:g} s") from late
        except RayTaskError:
            raise
        except (RayActorError, RayError) as lost:
            self._handles.pop(name, None)
            raise PeerLost(f"{name} is gone: {lost}") from lost
        if outcome == _REFUSED:
            code, message = value
            raise error_of(ErrorCode(code), message)
        return value

    async def kill(self, peer: ActorRef) -> None:
        """End the actor's process hard and wait until it is gone; it must be on this node."""
        self._handles.pop(peer.name, None)
        await asyncio.to_thread(_kill_and_wait, peer.pid)

    async def end_for_good(self, name: str) -> None:
        """End the actor of that name so that Ray does not restart it; gone is fine."""
        try:
            handle = await self._handle(name)
        except PeerLost:
            return
        self._handles.pop(name, None)
        await asyncio.to_thread(ray.kill, handle, no_restart=True)

    def watch(self, peer: ActorRef, on_lost: Callable[[ActorRef], None]) -> Timer:
        """Run `on_lost(peer)` once when the actor's process is gone: a link to it breaks then."""
        watch = _LinkWatch(peer, on_lost)
        self.start(watch.run(self), f"watch {peer.name}")
        return watch

    async def connect(self, peer: ActorRef | str) -> Link:
        """Open a link to an actor by ref or link address; raises PeerLost."""
        address = peer if isinstance(peer, str) else peer.address
        return await connect_link(address, self._secret, self.instance, LINK_TIMEOUT_S)


class _LinkWatch:
    """Watches one process through a link of its own."""

    def __init__(self, peer: ActorRef, on_lost: Callable[[ActorRef], None]) -> None:
        self._peer = peer
        self._on_lost: Callable[[ActorRef], None] | None = on_lost
        self._link: Link | None = None

    async def run(self, runtime: RayRuntime) -> None:
        try:
            self._link = await runtime.connect(self._peer)
        except PeerLost:
            self._fire()
            return
        self._link.on_lost(self._fire)

    def _fire(self) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost(self._peer)

    def cancel(self) -> None:
        self._on_lost = None
        if self._link is not None:
            self._link.close()


def _begin_unasked(host: Any) -> None:
    """Have a host begin though nobody calls it, as after a restart by Ray.

    Until Ray counts the new process as alive a call to it fails.
    """
    while True:
        try:
            ray.get(host.begin.remote(), timeout=START_TIMEOUT_S)
        except ActorUnavailableError:
            time.sleep(BEGIN_RETRY_S)
        except RayError:
            log.exception("the actor could not begin")
            return
        else:
            return


def _kill_and_wait(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOWAIT)
    except (ProcessLookupError, ChildProcessError):
        _poll_gone(descriptor)
    finally:
        os.close(descriptor)


def _poll_gone(descriptor: int) -> None:
    """Wait for the end of a process that is not our child."""
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(10_000)


def _read_secret(path: str) -> bytes:
    secret = Path(path).read_bytes()
    if len(secret) < 16:
        raise ValueError(f"{path} holds {len(secret)} bytes, a cluster secret has at least 16")
    return secret


def _configure_logging() -> None:
    logging.basicConfig(
        level=os.environ.get("RAYLOG_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )


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
