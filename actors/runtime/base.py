"""What every runtime offers to the shells: spawning, calls, links, time and chance.

Three implementations share this interface (design: one code, three runtimes): `ray` runs each
actor in a process of a Ray cluster, `inproc` runs all of them as objects on one event loop, `sim`
runs them under virtual time with a seeded scheduler.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from raylog.actors.plain import message
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
    """The peer is gone or restarting; whether the call took effect is unknown."""


class PeerTimeout(Exception):
    """The peer did not answer within the deadline; whether the call took effect is unknown."""


class ActorGone(Exception):
    """A name that no live actor carries."""


@message
@dataclass(frozen=True, slots=True)
class ActorRef:
    """A live actor: where it is and which process start of it is meant."""

    name: str
    role: str
    address: str
    """Where its links are accepted; opaque to everyone but the runtime."""
    pid: int
    node_id: str
    instance: str
    """Unique for each process start: a restarted actor of the same name has another."""
    started: str = ""
    """When its process was started, as `runtime.processes` has it; "" where actors are none."""


NODE_ID_LABEL = "ray.io/node-id"
"""The label by which Ray names every node."""


@message
@dataclass(frozen=True, slots=True)
class Share:
    """What is kept free on one node for all actors that share it, whether or not they run."""

    name: str
    """Unique in the cluster of nodes."""
    cpus: float
    memory_bytes: int
    resources: dict[str, float] = field(default_factory=dict)
    """Custom ones."""


@message
@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor may run: on nodes that carry all these labels, and nowhere else."""

    labels: dict[str, str]
    share: Share | None = None
    """What it has a part of there. It is made on first use, and holds its actors together."""


def on_node(node_id: str) -> Place:
    """One node, by the id that it has until its end."""
    return Place({NODE_ID_LABEL: node_id})


@message
@dataclass(frozen=True, slots=True)
class ActorSpec:
    """An actor to be started: detached, and unique by its name.

    The name `OWN@HOST` (`actors.names.lodger_name`) has it live in the process of the actor HOST.
    """

    name: str
    role: str
    args: dict[str, Any] = field(default_factory=dict)
    place: Place | None = None
    """None leaves the choice to the runtime."""
    restarts: bool = False
    """Whether the runtime restarts it when its process ends (Controller and Broker only)."""
    houses: tuple[str, ...] = ()
    """Roles of lodgers that may come: their code is loaded before they do."""
    links: LinkSettings | None = None
    """Where it accepts links; None: as who starts it."""
    drain_ms: int = 0
    """How long it may take to end in order (`runtime.termination`); 0: as who starts it."""
    journal: str = ""
    """The broker's data directory that its decisions are kept in; "": as who starts it."""
    hosts: tuple[dict[str, str], ...] = ()
    """Labels of nodes, any of which will do for an actor without a place; () for any node."""


@message
@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A live node."""

    node_id: str
    address: str
    """Under which others reach it."""
    labels: dict[str, str]


class Timer(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None:
        """Keep the callback from running; harmless when it has run."""


class LinkRequest(Protocol):
    """One request that came in over a link. It is answered once, by `reply` or `fail`."""

    peer: int
    """The link it came over, unique within the actor; `Actor.link_lost` names it at the end."""
    kind: str
    header: Any
    payload: memoryview
    """The receiver's own, writable bytes: nobody else reuses or changes them."""

    def reply(self, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Answer; a requester that is gone is passed over silently."""

    def fail(self, failure: KafkaError) -> None:
        """Answer with an error, raised on the other side as the same class."""


class Link(Protocol):
    """A stream of requests to one actor. Requests arrive in the order they were sent.

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
        """Run `callback` once when the other side is gone (at once if it is already)."""

    def close(self) -> None:
        """End the link; what is unanswered fails with PeerLost."""


class Actor(Protocol):
    """A shell as the runtime sees it. Its other public async methods answer `Runtime.call`."""

    async def start(self) -> None:
        """Become ready: the spawner waits for it."""

    async def stop(self) -> None:
        """End cleanly: close files, answer or fail what is waiting."""

    def link_received(self, request: LinkRequest) -> None:
        """Take one link request; answer now or later."""

    def link_lost(self, peer: int) -> None:
        """A link is gone: nothing more comes over it, and answers to it go nowhere."""


class Runtime(Protocol):
    """The world of one actor."""

    random: random.Random
    """Chance. In production nobody can guess it (the system's), in a simulation it repeats."""
    rest_s: float
    """For how many seconds work that is done `apart` must rest after each ms or two."""

    @property
    def disk(self) -> Volume:
        """The disk of the machine that the actor runs on."""

    @property
    def instance(self) -> str:
        """This process start's unique id (ActorRef.instance)."""

    def now_ms(self) -> int:
        """Wall-clock time in ms since the epoch."""

    def monotonic_ms(self) -> float:
        """Time in ms that never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms`."""

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> BackgroundTask:
        """Run a background task; an exception that leaves it ends the actor."""

    clock: Callable[[], float]
    """`monotonic_ms` in seconds, where that is asked for with each request of a client."""

    def process_usage(self) -> ProcessUsage | None:
        """What this process has used; None where there is no process of its own (simulation)."""

    async def this_node(self) -> NodeEntry:
        """The node that this runs on."""

    async def run_blocking(self, function: Callable[..., T], *args: Any) -> T:
        """Run a blocking function (fdatasync, recovery, cold reads) beside the event loop."""

    async def run_foreign(self, function: Callable[..., T], *args: Any, timeout_ms: int) -> T:
        """Run a stranger's function, which may never return, in a thread that is then left alone.

        Raises PeerTimeout at the deadline.
        """

    async def apart(self, work: Work) -> Apart:
        """Have somebody do `work`: on Ray a process of its own, started when there is some.

        Raises PeerLost if none can be started.
        """

    async def spawn(self, spec: ActorSpec) -> ActorRef:
        """Start an actor and wait until its `start()` returned.

        Raises the KafkaError that this refused with, PeerLost if it failed in another way,
        PeerTimeout if it took too long, ValueError if the name is taken. Where it raises, no actor
        comes up later: one that is late is ended for good.
        """

    async def find(self, name: str) -> ActorRef:
        """The live actor of that name; raises ActorGone."""

    async def call(self, peer: ActorRef | str, method: str, *args: Any, timeout_ms: int) -> Any:
        """Call a method of an actor by ref or name, found and answered within the timeout.

        KafkaError subclasses that it raises come back as they are; PeerLost and PeerTimeout say
        that the outcome is unknown. A mistake in the method ends the actor that made it
        (`runtime.calls`).
        """

    async def kill(self, peer: ActorRef) -> None:
        """End the actor's process hard, with all who live in it, and wait until it is gone."""

    async def dismiss(self, peer: ActorRef) -> None:
        """End an actor that has stopped: a lodger leaves its host, others are killed."""

    async def end_for_good(self, name: str) -> None:
        """End the actor of that name so that the runtime does not restart it; gone is fine.

        A runtime that does not answer is waited for a while; the end is then seen to without the
        caller.
        """

    async def nodes(self) -> list[NodeEntry]:
        """The live nodes. Raises PeerLost, PeerTimeout, as what follows."""

    async def names(self, prefix: str) -> set[str]:
        """Names that begin so, of actors that live or that the runtime is about to restart."""

    async def kv_get(self, key: str) -> bytes | None:
        """A value that all nodes see; None if there is none. The store may be lost as a whole."""

    async def kv_put(self, key: str, value: bytes) -> None:
        """Set such a value."""

    async def kv_keys(self, prefix: str) -> list[str]:
        """The keys that begin so and have a value, sorted."""

    async def kv_delete(self, key: str) -> None:
        """Take such a value away; none there is fine."""

    def watch(self, peer: ActorRef, on_lost: Callable[[ActorRef], None]) -> Timer:
        """Run `on_lost(peer)` once when the actor's process is gone; cancel() ends the watch."""

    async def connect(self, peer: ActorRef | str) -> Link:
        """Open a link to an actor by ref or link address; raises PeerLost."""


class Work(Protocol):
    """Something that takes long and is done in steps, by whom that holds up least.

    Before its first step it is plain data, and so is what each step returns: it may be done in
    another process. A step that raises is a mistake.
    """

    def step(self) -> Any:
        """Do one step. Blocking."""

    def stop(self) -> None:
        """Let a running step end soon, from another thread."""


class Apart(Protocol):
    """Work that somebody else does."""

    def step(self) -> Awaitable[Any]:
        """What one step returned. Raises PeerLost if who did it is gone."""

    def stop(self) -> None:
        """Have a running step end soon, in whatever way."""

    async def close(self) -> None:
        """There are no more steps."""


class BackgroundTask(Protocol):
    """A running background task."""

    def cancel(self) -> object:
        """Ask it to end."""

    def done(self) -> bool:
        """Whether it has ended."""
