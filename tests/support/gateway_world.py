"""A real gateway between fake clients and fake peers, under a clock that the test moves.

Requests are real bytes through the real connection and decoder; Replica actors, Controller and
Broker are fakes that a test scripts. Nothing waits for real time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from raylog.actors.endpoints import Endpoint
from raylog.actors.gateway.actor import GatewayActor
from raylog.actors.gateway.connection import ClientConnection
from raylog.actors.gateway.connections import Connections
from raylog.actors.metadata.records import (
    BrokerRegistered,
    PartitionCreated,
    Record,
    TopicCreated,
)
from raylog.actors.names import controller_name
from raylog.actors.ports import PartitionKey, Route, RouteUpdate, TopicId
from raylog.actors.runtime.apart import Beside
from raylog.actors.runtime.base import Apart, PeerLost, PeerTimeout, Work
from raylog.actors.runtime.links import ask_over, joined
from raylog.storage.disk import Disk, OsDisk
from raylog.wire.api import ApiKey
from raylog.wire.errors import KafkaError
from raylog.wire.frame import decode_response, encode_request
from raylog.wire.schema import layout_of

CLUSTER = "test-cluster"
_LENGTH = Struct(">i")


def topic_id(name: str) -> TopicId:
    """The id that `World.topic` gives a topic."""
    return TopicId(name.encode().rjust(16, b"\x01"))


# ---- time and peers ------------------------------------------------------------------------


@dataclass(order=True)
class FakeTimer:
    """A timer of the fake clock."""

    at_ms: float
    number: int
    callback: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.callback = None


class FakeRuntime:
    """Clock, tasks and peers; `advance` moves the clock and runs what is due."""

    instance = "fake"
    rest_s = 0.0

    def __init__(self) -> None:
        self.random = random.Random(1)
        self.disk: Disk = OsDisk()
        self.peers: dict[str, Any] = {}
        self.links: dict[str, FakeLink] = {}
        self.failures: list[BaseException] = []
        self.foreign_hangs = False
        """Whether plug-ins do not come back."""
        self._now_ms = 1_000_000.0
        self._timers: list[FakeTimer] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        return self._now_ms

    def clock(self) -> float:
        return self.monotonic_ms() / 1000

    async def sleep(self, seconds: float) -> None:
        if not seconds:
            await asyncio.sleep(0)  # others run meanwhile; no time passes
            return
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds * 1000, lambda: woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self._now_ms + delay_ms, next(self._numbers), callback)
        heapq.heappush(self._timers, timer)
        return timer

    def pending_timers(self, *, looks: bool = False) -> int:
        """Timers that still would run, with or without the one that `looks` at the connections."""
        callbacks = [timer.callback for timer in self._timers if timer.callback is not None]
        look = None if looks else Connections._look
        return sum(getattr(one, "__func__", one) is not look for one in callbacks)

    async def advance(self, ms: float) -> None:
        """Move the clock, running timers in order and tasks in between."""
        end = self._now_ms + ms
        await settle()
        while self._timers and self._timers[0].at_ms <= end:
            timer = heapq.heappop(self._timers)
            self._now_ms = timer.at_ms
            if timer.callback is not None:
                timer.callback()
                await settle()
        self._now_ms = end

    def process_usage(self) -> None:
        """A fake has no process of its own."""

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.failures.append(failure)

    async def run_blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    async def apart(self, work: Work) -> Apart:
        return Beside(self, work)

    async def run_foreign(self, function: Callable[..., Any], *args: Any, timeout_ms: int) -> Any:
        if self.foreign_hangs:
            await self.sleep(timeout_ms / 1000)
            raise PeerTimeout(f"not done within {timeout_ms} ms")
        return function(*args)

    async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
        if peer not in self.peers:
            raise PeerLost(f"{peer} is gone")
        return await getattr(self.peers[peer], method)(*args)

    async def connect(self, address: str) -> FakeLink:
        if address not in self.links:
            raise PeerLost(f"nobody answers at {address}")
        return self.links[address]


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass(eq=False)
class FakeRequest:
    """A request that came over a fake link and waits for the test to answer it."""

    kind: str
    header: Any
    payload: bytes
    _answered: Callable[[Any, memoryview], None]
    _failed: Callable[[Exception], None]
    open: bool = True

    def reply(self, header: Any = None, payload: bytes = b"") -> None:
        if self.open:
            self.open = False
            self._answered(header, memoryview(payload))

    def fail(self, failure: Exception) -> None:
        if self.open:
            self.open = False
            self._failed(failure)


class FakeLink:
    """A link to a Replica actor that the test plays.

    With `answering` each request is answered at once, as within one process.
    """

    unsent_bytes = 0

    def __init__(self) -> None:
        self.requests: list[FakeRequest] = []
        self.is_open = True
        self.answering: Callable[[FakeRequest], Any] | None = None
        self._on_lost: list[Callable[[], None]] = []

    def request(
        self,
        kind: str,
        header: Any,
        payload: Sequence[Any],
        answered: Callable[[Any, memoryview], None],
        failed: Callable[[Exception], None],
    ) -> None:
        request = FakeRequest(kind, header, bytes(joined(payload)), answered, failed)
        self.requests.append(request)
        if not self.is_open:
            request.fail(PeerLost("the link is closed"))
        elif self.answering is not None:
            try:
                request.reply(self.answering(request))
            except KafkaError as failure:
                request.fail(failure)

    def ask(self, kind: str, header: Any = None, payload: Sequence[Any] = ()) -> Any:
        return ask_over(self, kind, header, payload)

    def on_lost(self, callback: Callable[[], None]) -> None:
        self._on_lost.append(callback)

    def lose(self) -> None:
        """The Replica actor's process ended."""
        self.is_open = False
        for request in self.requests:
            request.fail(PeerLost("the peer ended"))
        for callback in self._on_lost:
            callback()

    def close(self) -> None:
        self.lose()

    def take(self, kind: str | None = None) -> FakeRequest:
        """The oldest unanswered request, of a kind."""
        return next(one for one in self.requests if one.open and (kind is None or one.kind == kind))

    def kinds(self) -> list[str]:
        return [one.kind for one in self.requests]


class FakeController:
    """Answers by scripted functions; `lost` makes that many calls fail with PeerLost first."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.lost = 0
        self.script: dict[str, Callable[[Any], Any]] = {}

    def __getattr__(self, method: str) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        async def call(argument: Any = None) -> Any:
            self.asked.append((method, argument))
            if self.lost:
                self.lost -= 1
                raise PeerLost("the controller restarts")
            answer = self.script[method](argument)
            return await answer if asyncio.iscoroutine(answer) else answer

        return call


async def never(_argument: Any) -> None:
    """A scripted call that is not answered within its deadline."""
    raise PeerTimeout("took too long")


# ---- clients ------------------------------------------------------------------------------


class FakeTransport:
    """The socket of a fake client: collects what is written."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.written = bytearray()
        self.closed = False
        self.aborted = False
        self.reading = True

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return self.host, 40_000

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert high > 0

    def writelines(self, chunks: Sequence[Any]) -> None:
        for chunk in chunks:
            self.written += chunk

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class FakeClient:
    """One connection to the gateway."""

    def __init__(
        self, gateway: GatewayActor, host: str = "127.0.0.1", listener: str = "PLAINTEXT"
    ) -> None:
        self.transport = FakeTransport(host)
        self.connection = ClientConnection(gateway, 1 << 20, listener)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]  # a fake
        self._asked: deque[tuple[ApiKey, int]] = deque()

    def send(self, request: Any, version: int, client_id: str = "test") -> None:
        """Send a request."""
        api_key = layout_of(type(request)).api_key
        assert api_key is not None
        self._asked.append((api_key, version))
        self.send_bytes(b"".join(encode_request(api_key, version, 7, client_id, request)))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes, as they are."""
        at = 0
        while at < len(data):
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            self.connection.buffer_updated(count)
            at += count

    def received(self) -> list[Any]:
        """The answers that came since the last look, decoded."""
        answers = []
        written = self.transport.written
        while written:
            (length,) = _LENGTH.unpack_from(written)
            answers.append(decode_response(*self._asked.popleft(), bytes(written[4 : 4 + length])))
            del written[: 4 + length]
        return [answer for _, answer in answers]

    def skip_answer(self) -> None:
        """The oldest request gets no answer (acks=0)."""
        self._asked.popleft()

    async def ask(self, request: Any, version: int) -> Any:
        """Send a request whose answer needs no time to pass."""
        self.send(request, version)
        await settle()
        (answer,) = self.received()
        return answer


# ---- the world ----------------------------------------------------------------------------


class World:
    """Broker 1 with a gateway, and what the test puts around it."""

    def __init__(self, **settings: str) -> None:
        settings = {"connections_max_idle_ms": "-1"} | settings
        self.runtime = FakeRuntime()
        self.controller = FakeController()
        self.runtime.peers[controller_name(CLUSTER)] = self.controller
        self.gateway = GatewayActor(
            self.runtime,  # type: ignore[arg-type]  # a fake
            name="gateway",
            cluster_id=CLUSTER,
            broker_id=1,
            listening=(Endpoint("PLAINTEXT", "127.0.0.1", 0),),
            settings={name.replace("_", "."): value for name, value in settings.items()},
        )

    def client(self, host: str = "127.0.0.1", listener: str = "PLAINTEXT") -> FakeClient:
        """A new connection from an address, on a listener."""
        return FakeClient(self.gateway, host, listener)

    def link(self, address: str) -> FakeLink:
        """The link to a Replica actor."""
        return self.runtime.links.setdefault(address, FakeLink())

    async def apply(self, *records: Record) -> None:
        """Push metadata records, as the Broker does."""
        at = self.gateway.cluster.image.offset
        await self.gateway.apply_metadata(at, at + len(records), list(records))

    async def brokers(self, *broker_ids: int, fenced: Sequence[int] = ()) -> None:
        """Register brokers."""
        for one in broker_ids:
            await self.apply(
                BrokerRegistered(
                    one, 50 + one, f"host{one}", 9000 + one, f"r{one}", "d", "i", one in fenced
                )
            )

    async def topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        leader: int = 1,
        replicas: tuple[int, ...] = (1,),
        id_of: str | None = None,
        opened: bool = True,
    ) -> TopicId:
        """Create a topic, with every partition led by `leader`, who may have opened its log."""
        new_id = topic_id(id_of or name)
        incarnations = {leader: "log"} if opened else {}
        await self.apply(
            TopicCreated(new_id, name),
            *(
                PartitionCreated(new_id, i, replicas, replicas, leader, incarnations=incarnations)
                for i in range(partitions)
            ),
        )
        return new_id

    async def route(
        self, address: str, *keys: PartitionKey, directory: str = "/none", leads: bool = True
    ) -> FakeLink:
        """Have partitions served by the Replica actor at `address`."""
        link = self.link(address)
        added = [Route(*key, 0, address, address, directory, leads) for key in keys]
        await self.gateway.apply_routes(RouteUpdate(added))
        return link

    async def unroute(self, *keys: PartitionKey) -> None:
        """Partitions are no longer served here."""
        await self.gateway.apply_routes(RouteUpdate([], list(keys)))


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], **settings: str) -> None:
    """Run a test's scenario in a world of its own; no task may fail unless it says so."""

    async def main() -> None:
        world = World(**settings)
        await scenario(world)
        await settle()
        assert not world.runtime.failures

    asyncio.run(main())
