"""The I/O of real clients in a simulated cluster: connections are links, and time is virtual."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine

from raylog.actors.endpoints import DEFAULT_LISTENER
from raylog.actors.runtime.base import Link, PeerLost
from raylog.client.connection import Buffer, Connection
from raylog.client.errors import ConnectionLost, NotConnected
from raylog.simulation.cluster import FIRST_PORT, Cluster
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.sockets import CLIENT_REQUEST

Sent = Callable[[bytes], None]
"""Called with each request frame that a client sends."""
_TICK_MS = 0.001
"""The shortest wait. A shorter one could be lost in rounding, so that the clock would not move."""


class LinkTransport:
    """One connection. Each `send` is one request."""

    def __init__(
        self,
        link: Link,
        client: str,
        connection: Connection,
        progressed: Callable[[], None],
        sent: Sent,
    ) -> None:
        self._link = link
        self._client = client
        self._sent = sent
        self._connection = connection
        self._progressed = progressed
        link.on_lost(lambda: self._ended("the link broke"))

    def send(self, chunks: list[Buffer]) -> None:
        """Send a request."""
        frame = b"".join(chunks)
        self._sent(frame)
        self._link.request(
            CLIENT_REQUEST,
            (self._client, DEFAULT_LISTENER),
            [frame],
            lambda _, frame: self._received(frame),
            lambda failure: self._ended(str(failure)),
        )

    def close(self) -> None:
        """Close the connection. A connection that has ended is left alone."""
        self._link.close()

    def _received(self, frame: memoryview) -> None:
        while frame:
            room = self._connection.writable()
            taken = min(len(room), len(frame))
            room[:taken] = frame[:taken]
            self._connection.written(taken)
            frame = frame[taken:]
        self._progressed()

    def _ended(self, reason: str) -> None:
        self._connection.end(ConnectionLost(reason))
        self._progressed()


class SimIo:
    """`raylog.client.io.Io` of a client with its own machine or process."""

    def __init__(
        self, cluster: Cluster, runtime: SimRuntime, name: str, sent: Sent | None = None
    ) -> None:
        """`sent` is called with every request."""
        self.runtime = runtime
        self._cluster = cluster
        self._name = name
        self._sent = sent or _ignore
        self._waiters: dict[asyncio.Future[None], None] = {}
        """In the order of arrival, because a simulation must be repeatable."""

    def now_ms(self) -> float:
        """Virtual time."""
        return self.runtime.monotonic_ms()

    def chance(self) -> float:
        """A random number, the same in every run of a seed."""
        return self.runtime.random.random()

    async def connect(
        self,
        host: str,
        port: int,
        connection: Connection,
        timeout_ms: float,
        tls: ssl.SSLContext | None = None,
    ) -> LinkTransport:
        """Open a link to the gateway that listens there. Links have no TLS."""
        assert tls is None, "a simulated client has no TLS"
        gateway = self._cluster.gateway_of(port - FIRST_PORT)
        if gateway is None:
            raise NotConnected(f"{host}:{port}: nobody listens there")
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                link = await self.runtime.connect(gateway.ref)
        except (TimeoutError, PeerLost) as failure:
            raise NotConnected(f"{host}:{port}: {failure}") from failure
        return LinkTransport(link, self._name, connection, self.wake, self._sent)

    async def wait(self, ready: Callable[[], bool], timeout_ms: float) -> bool:
        """Wait until `ready()` or the timeout. Other tasks run at least once unless it is ready."""
        deadline_ms = self.now_ms() + timeout_ms
        while not ready():
            left_ms = deadline_ms - self.now_ms()
            if left_ms <= 0:
                await asyncio.sleep(0)
                break
            await self._progress(left_ms)
        return ready()

    async def pause(self, duration_ms: float) -> None:
        """Sleep."""
        await self.runtime.sleep(duration_ms / 1_000)

    async def spawn(self, work: Coroutine[object, object, None]) -> Callable[[], object]:
        """Run work in a task of its own, to which the loop keeps a reference."""
        return asyncio.get_running_loop().create_task(work).cancel

    def wake(self) -> None:
        """Let all waiters check again."""
        for waiter in self._waiters:
            _wake(waiter)

    async def _progress(self, timeout_ms: float) -> None:
        """Wait for the next answer on any connection."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(max(timeout_ms, _TICK_MS) / 1_000, _wake, waiter)
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            del self._waiters[waiter]
            timer.cancel()


def _ignore(frame: bytes) -> None:
    """Ignore a sent frame."""


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
