"""Blocking I/O for the client: non-blocking sockets under one select loop, in one thread."""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Callable

from raylog.client.connection import Buffer, Connection
from raylog.client.errors import ConnectionLost, NotConnected

_VECTORS_MAX = 64
"""Chunks handed to one sendmsg, well below the system's limit."""
_READS_MAX = 16
"""Reads of one socket before the others get their turn."""

_STEP_MS_MAX = 1_000.0
"""Longest wait between two looks at the clock; the selector takes no infinite one."""


class SocketTransport:
    """One socket. What the system does not take at once waits for the select loop."""

    def __init__(
        self, sock: socket.socket, connection: Connection, selector: selectors.BaseSelector
    ) -> None:
        self._socket = sock
        self._connection = connection
        self._selector = selector
        self._unsent: deque[memoryview] = deque()
        self._closed = False
        selector.register(sock, selectors.EVENT_READ, self)

    def send(self, chunks: list[Buffer]) -> None:
        """Queue bytes and send what goes at once."""
        was_idle = not self._unsent
        self._unsent.extend(memoryview(chunk) for chunk in chunks if len(chunk))
        if was_idle:
            self.flush()

    def flush(self) -> None:
        """Send until the queue is empty or the system takes no more."""
        if self._closed:
            return
        try:
            while self._unsent:
                vectors = [self._unsent[i] for i in range(min(len(self._unsent), _VECTORS_MAX))]
                self._drop(self._socket.sendmsg(vectors))
        except BlockingIOError:
            self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)
        except OSError as error:
            self._lose(f"sending failed: {error}")
        else:
            self._watch(selectors.EVENT_READ)

    def read(self) -> None:
        """Feed the connection what has arrived."""
        try:
            for _ in range(_READS_MAX):
                if self._closed or self._connection.ended is not None:
                    break
                count = self._socket.recv_into(self._connection.writable())
                if count == 0:
                    self._lose("the broker ended the connection")
                    return
                self._connection.written(count)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(f"receiving failed: {error}")
            return
        if self._connection.ended is not None:
            self.close()

    def close(self) -> None:
        """Close the socket; harmless when it is closed."""
        if not self._closed:
            self._closed = True
            self._unsent.clear()
            self._selector.unregister(self._socket)
            self._socket.close()

    def _drop(self, count: int) -> None:
        """Forget `count` bytes that were sent."""
        while count:
            first = self._unsent[0]
            if count < len(first):
                self._unsent[0] = first[count:]
                return
            count -= len(first)
            self._unsent.popleft()

    def _watch(self, events: int) -> None:
        """Say what the select loop should look for."""
        if self._selector.get_key(self._socket).events != events:
            self._selector.modify(self._socket, events, self)

    def _lose(self, reason: str) -> None:
        """Fail what is pending and close."""
        self._connection.end(ConnectionLost(reason))
        self.close()


class BlockingIo:
    """`Io` over sockets; its coroutines never suspend. For one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def now_ms(self) -> float:
        """Monotonic time."""
        return time.monotonic() * 1000

    async def connect(
        self, host: str, port: int, connection: Connection, timeout_ms: float
    ) -> SocketTransport:
        """Open a socket."""
        try:
            sock = socket.create_connection((host, port), timeout=timeout_ms / 1000)
        except OSError as error:
            raise NotConnected(f"{host}:{port}: {error}") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        return SocketTransport(sock, connection, self._selector)

    async def wait(self, ready: Callable[[], bool], timeout_ms: float) -> bool:
        """Move bytes until `ready()` or time is up; at least one look at the sockets."""
        deadline_ms = self.now_ms() + timeout_ms
        while not ready():
            remaining_ms = max(0.0, deadline_ms - self.now_ms())
            self._step(min(remaining_ms, _STEP_MS_MAX) / 1000)
            if remaining_ms == 0.0:
                break
        return ready()

    async def pause(self, duration_ms: float) -> None:
        """Move bytes for a while."""
        await self.wait(lambda: False, duration_ms)

    def close(self) -> None:
        """Close the selector; transports are closed by their owner."""
        self._selector.close()

    def _step(self, timeout_s: float) -> None:
        """Wait for the sockets once and serve those that are ready."""
        if not self._selector.get_map():
            time.sleep(timeout_s)
            return
        for key, events in self._selector.select(timeout_s):
            transport = key.data
            assert isinstance(transport, SocketTransport)
            if events & selectors.EVENT_WRITE:
                transport.flush()
            if events & selectors.EVENT_READ:
                transport.read()
