"""The interface of every runtime: spawning, calls, links, time and random numbers.

There are three implementations: `ray` runs each actor in a process of a Ray cluster, `inproc` runs
all of them as objects on one event loop, and `sim` runs them under virtual time with a seeded
scheduler.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from raylog.actors.message import message
from raylog.actors.places import NodeEntry, Place
from raylog.actors.places import Share as Share
from raylog.actors.runtime.link_settings import LinkSettings
from raylog.storage.disk import Volume
from raylog.wire.errors import KafkaError

if TYPE_CHECKING:
    from raylog.actors.runtime.usage import ProcessUsage

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
ReplyHandler = Callable[[Any, memoryview], None]
FailureHandler = Callable[[Exception], None]


class PeerLost(Exception):
    """The peer is gone or restarting; it is unknown whether the call took effect."""


class PeerTimeout(Exception):
    """The peer did not answer in time; it is unknown whether the call took effect."""


class ActorGone(Exception):
    """No live actor has this name."""


@message
@dataclass(frozen=True, slots=True)
class ActorRef:
    """A reference to a live actor, and to one start of its process."""

    name: str
    role: str
    address: str
    """Where it accepts links; opaque to everything but the runtime."""
    pid: int
    node_id: str
    instance: str
    """Unique for each process start: after a restart an actor of the same name has another."""
    started: str = ""
    """Start time of its process, as in `runtime.processes`; "" if actors are not processes."""


@message
@dataclass(frozen=True, slots=True)
class ActorSpec:
    """The spec of an actor to start: detached, with a unique name.

    The name `OWN@HOST` (`actors.names.colocated_name`) places it in the process of the actor HOST.
    """

    name: str
    role: str
    args: dict[str, Any] = field(default_factory=dict)
    place: Place | None = None
    """None leaves the choice to the runtime."""
    restarts: bool = False
    """Whether the runtime restarts it when its process ends (only Controller and Broker)."""
    houses: tuple[str, ...] = ()
    """Roles of actors that may be placed in its process later; their code is loaded ahead."""
    links: LinkSettings | None = None
    """Where it accepts links; None means as its spawner."""
    drain_ms: int = 0
    """The time limit of a shutdown (`runtime.termination`); 0 means as its spawner."""
    journal: str = ""
    """The broker's data directory that keeps its journal; "" means as its spawner."""
    hosts: tuple[dict[str, str], ...] = ()
    """Node labels for an actor without a place: any matching node will do; () for every node."""


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback, unless it has run already."""


class LinkRequest(Protocol):
    """A request that came over a link. It is answered once, by `reply` or `fail`."""

    peer: int
    """The link it came over, unique within the actor; `Actor.link_lost` names it when it ends."""
    kind: str
    header: Any
    payload: memoryview
    """Writable memory that belongs to the receiver: nothing else reuses or changes it."""

    def reply(self, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Answer; ignored if the requester is gone."""

    def fail(self, failure: KafkaError) -> None:
        """Answer with an error, which is raised on the other side as the same class."""


class Link(Protocol):
    """A stream of requests to one actor. Requests arrive in the order in which they were sent.

    `request` never blocks and never raises: a lost link reports PeerLost to `failed`. Buffers of a
    payload must not be changed until the request was answered or failed.
    """

    def request(
        self,
        kind: str,
        header: Any,
        payload: Sequence[Buffer],
        answered: ReplyHandler,
        failed: FailureHandler,
    ) -> None:
        """Send a request; exactly one of `answered(header, payload)` and `failed` follows."""

    def ask(self, kind: str, header: Any = None, payload: Sequence[Buffer] = ()) -> Awaitable[Any]:
        """Send a request and await the answer's header; raises what `failed` would get."""

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes accepted but not yet handed to the operating system (for back-pressure)."""

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the other side is gone, immediately if it is already."""

    def close(self) -> None:
        """Close the link; unanswered requests fail with PeerLost."""


class Actor(Protocol):
    """A shell as the runtime sees it. `Runtime.call` calls its other public async methods."""

    async def start(self) -> None:
        """Become ready; the spawner waits for it."""

    async def stop(self) -> None:
        """End cleanly: close files, answer or fail what is waiting."""

    def link_received(self, request: LinkRequest) -> None:
        """Handle a link request; answer it now or later."""

    def link_lost(self, peer: int) -> None:
        """A link has ended: no more requests come over it, and answers to it are dropped."""


class Runtime(Protocol):
    """The environment of one actor."""

    random: random.Random
    """Random numbers: the system's in production, so that nobody can guess them; seeded in
    simulations."""
    rest_s: float
    """How many seconds work done `apart` must rest after every ms or two."""

    @property
    def disk(self) -> Volume:
        """The disk of the actor's machine."""

    @property
    def instance(self) -> str:
        """The unique id of this process start (ActorRef.instance)."""

    def now_ms(self) -> int:
        """Return wall-clock time in ms since the epoch."""

    def monotonic_ms(self) -> float:
        """Return monotonic time in ms."""

    async def sleep(self, seconds: float) -> None:
        """Sleep."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms`."""

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> BackgroundTask:
        """Run a background task; an exception that leaves it ends the actor."""

    clock: Callable[[], float]
    """As `monotonic_ms`, but in seconds, for use with every request of a client."""

    def process_usage(self) -> ProcessUsage | None:
        """Return the resource usage of this process; None if it has no process (simulation)."""

    async def this_node(self) -> NodeEntry:
        """Return the node of this process."""

    async def run_blocking(self, function: Callable[..., T], *args: Any) -> T:
        """Run a blocking function (fdatasync, recovery, cold reads) in a thread."""

    async def run_foreign(self, function: Callable[..., T], *args: Any, timeout_ms: int) -> T:
        """Run a plug-in's function, which may never return, in a thread of its own.

        Raises PeerTimeout at the deadline, and abandons the thread.
        """

    async def apart(self, work: Work) -> Apart:
        """Start long work beside the event loop: on Ray in a separate process.

        Raises PeerLost if none can be started.
        """

    async def spawn(self, spec: ActorSpec) -> ActorRef:
        """Start an actor and wait until its `start()` has returned.

        Raises the KafkaError that `start()` raised, PeerLost if it failed in another way,
        PeerTimeout if it took too long, ValueError if the name is taken. After an exception no
        actor is left: one that comes up late is ended for good.
        """

    async def find(self, name: str) -> ActorRef:
        """Return the live actor with that name; raises ActorGone."""

    async def call(self, peer: ActorRef | str, method: str, *args: Any, timeout_ms: int) -> Any:
        """Call a method of an actor by ref or name. The timeout includes finding the actor.

        Raises the KafkaErrors that the method raises; PeerLost and PeerTimeout mean that the
        outcome is unknown. Any other exception in the method ends that actor (`runtime.calls`).
        """

    async def kill(self, peer: ActorRef) -> None:
        """Kill the actor's process, with all actors in it, and wait until it is gone."""

    async def dismiss(self, peer: ActorRef) -> None:
        """End an actor that has stopped: a co-located one leaves its host, others are killed."""

    async def end_for_good(self, name: str) -> None:
        """End the actor with that name so that the runtime does not restart it.

        It may be gone already.

        If the runtime does not answer for a while, this returns and goes on in the background.
        """

    async def nodes(self) -> list[NodeEntry]:
        """Return the live nodes. Raises PeerLost and PeerTimeout, as do the following methods."""

    async def names(self, prefix: str) -> set[str]:
        """Return names with this prefix, of actors that live or that the runtime will restart."""

    async def kv_get(self, key: str) -> bytes | None:
        """Return a value that all nodes can read, or None. The whole store may be lost."""

    async def kv_put(self, key: str, value: bytes) -> None:
        """Set such a value."""

    async def kv_keys(self, prefix: str) -> list[str]:
        """Return the keys with this prefix, sorted."""

    async def kv_delete(self, key: str) -> None:
        """Delete such a value, if it exists."""

    def watch(self, peer: ActorRef, on_lost: Callable[[ActorRef], None]) -> Timer:
        """Run `on_lost(peer)` once when the actor's process is gone; cancel() ends the watch."""

    async def connect(self, peer: ActorRef | str) -> Link:
        """Open a link to an actor by ref or link address; raises PeerLost."""


class Work(Protocol):
    """Long work in steps, to be done where it delays the event loop least.

    Before its first step it is plain data, and so are the results of its steps, because it may run
    in another process. An exception in a step is a bug.
    """

    def step(self) -> Any:
        """Do one step. Blocking."""

    def stop(self) -> None:
        """Make a running step end soon; called from another thread."""


class Apart(Protocol):
    """Work that runs in a thread or in another process."""

    def step(self) -> Awaitable[Any]:
        """Run one step and return its result. Raises PeerLost if its process is gone."""

    def stop(self) -> None:
        """Make a running step end soon."""

    async def close(self) -> None:
        """Finish: there are no more steps."""


class BackgroundTask(Protocol):
    """A running background task."""

    def cancel(self) -> object:
        """Request its end."""

    def done(self) -> bool:
        """Whether it has ended."""
