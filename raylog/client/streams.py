"""The client's asyncio I/O: one protocol object per connection, waiters woken on progress."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Coroutine
from typing import cast

from raylog.client.connection import Buffer, Connection
from raylog.client.errors import ClientError, ConnectionLost, NotConnected
from raylog.client.io import SystemClock
from raylog.client.security.tls import lost_reason, tls_failure
from raylog.client.unsent import Unsent

_FAREWELL_S = 1.0
"""How long to wait for the peer's closing message on a TLS connection."""
_WAIT_S_MAX = 3_600.0
"""Longest timer set at once; some event loops do not accept an infinite one."""
_HANDED_OVER_BYTES = 64 * 1024
"""Most bytes copied to asyncio at once while the socket is full; it signals when they are sent."""


class StreamProtocol(asyncio.BufferedProtocol):
    """Feeds one connection straight from the event loop.

    Without TLS, and if the system has `writev`, output goes to the socket without being copied.
    Pieces that a full socket does not accept are queued here uncopied.
    """

    def __init__(
        self,
        connection: Connection,
        progressed: Callable[[], None],
        unfinished: set[StreamProtocol],
    ) -> None:
        self._connection = connection
        self._progressed = progressed
        self._unfinished = unfinished
        self._transport: asyncio.WriteTransport | None = None
        self._fd: int | None = None
        """The socket's file descriptor for `writev`; None: all output goes through asyncio."""
        self._unsent = Unsent()
        self._is_paused = False
        """Whether asyncio holds output that the socket has not accepted."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        stream = cast(asyncio.WriteTransport, transport)  # uvloop's class does not inherit from it
        self._transport = stream
        self._unfinished.add(self)
        if stream.get_extra_info("sslcontext") is None and hasattr(os, "writev"):
            self._fd = stream.get_extra_info("socket").fileno()
            stream.set_write_buffer_limits(0)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the loop's next input."""
        return self._connection.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Process input, which may complete an answer."""
        self._connection.written(nbytes)
        if self._connection.ended is not None:
            self.close()
        self._progressed()

    def eof_received(self) -> None:
        """Let asyncio close the transport: the broker has ended its side."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail pending requests."""
        reason = lost_reason(exc) if exc is not None else "the broker ended the connection"
        self._unfinished.discard(self)
        self._unsent.take_all()
        self._connection.end(ConnectionLost(reason))
        self._progressed()

    def pause_writing(self) -> None:
        """Stop writing: the socket is full."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Continue writing: the socket has accepted what asyncio held."""
        self._is_paused = False
        self._write()

    def send(self, chunks: list[Buffer]) -> None:
        """Queue bytes."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._fd is None:
            self._transport.writelines(chunks)
        else:
            self._unsent.add(chunks)
            self._write()

    def close(self) -> None:
        """Close the socket once everything is sent; does nothing if it is closed."""
        if self._transport is not None:
            if not self._transport.is_closing():
                self._transport.writelines(self._unsent.take_all())
            self._transport.close()

    @property
    def is_closing(self) -> bool:
        """Whether the socket is being closed, or is closed."""
        return self._transport is not None and self._transport.is_closing()

    def abort(self) -> None:
        """Close the socket now, without sending what is queued."""
        if self._transport is not None:
            self._transport.abort()

    def _write(self) -> None:
        """Write as much as the socket accepts."""
        if self._transport is None or self._fd is None:
            return
        while self._unsent and not self._is_paused and not self._transport.is_closing():
            pieces = self._unsent.first()
            try:
                count = os.writev(self._fd, pieces)
            except OSError:  # the socket is full, or asyncio will get the same error when it writes
                count = 0
            self._unsent.drop(count)
            if count < sum(map(len, pieces)):
                self._transport.write(self._unsent.take(_HANDED_OVER_BYTES))


class AsyncIo(SystemClock):
    """`Io` over the running event loop."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()
        self._unfinished: set[StreamProtocol] = set()
        """Connections whose sockets are open."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of the first wait: only this loop can wait for the connections."""

    async def connect(
        self,
        host: str,
        port: int,
        connection: Connection,
        timeout_ms: float,
        tls: ssl.SSLContext | None = None,
    ) -> StreamProtocol:
        """Open a connection, over TLS if a context is given."""
        reached: list[StreamProtocol] = []

        def made() -> StreamProtocol:
            reached.append(StreamProtocol(connection, self.wake, self._unfinished))
            return reached[-1]

        loop, address = asyncio.get_running_loop(), f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, protocol = await loop.create_connection(
                    made,
                    host,
                    port,
                    ssl=tls,
                    server_hostname=host if tls is not None else None,
                    ssl_shutdown_timeout=_FAREWELL_S if tls is not None else None,
                )
        except TimeoutError as error:
            missing = "TLS handshake" if reached else "connection"
            raise NotConnected(f"{address}: no {missing} in {timeout_ms:.0f} ms") from error
        except OSError as error:
            if reached and tls is not None:
                raise tls_failure(address, host, error) from error
            raise NotConnected(f"{address}: {error}") from error
        except (ValueError, OverflowError) as error:
            raise NotConnected(f"{address} is no address: {error}") from error
        return protocol

    async def wait(self, ready: Callable[[], bool], timeout_ms: float) -> bool:
        """Wait until `ready()` or the timeout; yield at least once unless ready at the start."""
        deadline_ms = self.now_ms() + timeout_ms
        while not ready():
            remaining_ms = deadline_ms - self.now_ms()
            if remaining_ms <= 0:
                await asyncio.sleep(0)
                break
            await self._progress(remaining_ms / 1000)
        return ready()

    async def pause(self, duration_ms: float) -> None:
        """Sleep."""
        await asyncio.sleep(duration_ms / 1000)

    async def spawn(self, work: Coroutine[object, object, None]) -> Callable[[], object]:
        """Run work in its own task; return a function that cancels it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task.cancel

    async def finish(self) -> None:
        """Wait until the sockets of ended connections are closed; abort those that take long."""

        def closed() -> bool:
            return not any(one.is_closing for one in self._unfinished)

        if not await self.wait(closed, _FAREWELL_S * 1000):
            for one in list(self._unfinished):
                if one.is_closing:
                    one.abort()
            await asyncio.sleep(0)

    def wake(self) -> None:
        """Make all waiters check their conditions again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _progress(self, timeout_s: float) -> None:
        """Wait for the next answer on any connection."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                raise ClientError("this client belongs to another event loop: make one in each")
            self._loop = loop
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(min(timeout_s, _WAIT_S_MAX), _wake, waiter)
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            timer.cancel()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
