"""Blocking I/O for the client: non-blocking sockets under one select loop, in one thread."""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

from raylog.client.connection import Buffer, Connection
from raylog.client.core import Core
from raylog.client.errors import ConnectionLost, NotConnected
from raylog.client.greenlets import is_patched
from raylog.client.io import SystemClock
from raylog.client.security.tls import lost_reason, tls_failure
from raylog.client.settings import ClientSettings
from raylog.client.unsent import Unsent

_RECORD_BYTES = 16 * 1024
"""Most bytes in one TLS record."""
_READS_MAX = 16
"""Most reads from one socket before the others get their turn."""

_STEP_MS_MAX = 1_000.0
"""Longest wait between checks of the clock; the selector accepts no infinite timeout."""


class SocketTransport:
    """One socket. Bytes that the system does not accept at once wait for the select loop."""

    def __init__(
        self, sock: socket.socket, connection: Connection, selector: selectors.BaseSelector
    ) -> None:
        self._socket = sock
        self._connection = connection
        self._selector = selector
        self._unsent = Unsent()
        self._closed = False
        selector.register(sock, selectors.EVENT_READ, self)

    def send(self, chunks: list[Buffer]) -> None:
        """Queue bytes and send as many as possible at once."""
        was_idle = not self._unsent
        self._unsent.add(chunks)
        if was_idle:
            self.flush()

    def flush(self) -> None:
        """Send until the queue is empty or the system accepts no more."""
        if self._closed:
            return
        try:
            while self._unsent:
                self._unsent.drop(self._send_some())
        except (BlockingIOError, ssl.SSLWantWriteError):
            self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)
        except ssl.SSLWantReadError:
            self._watch(selectors.EVENT_READ)  # the next `read` resumes it
        except OSError as error:
            self._lose(f"sending failed: {lost_reason(error)}")
        else:
            self._watch(selectors.EVENT_READ)

    def writable(self) -> None:
        """Continue sending: the socket is writable again."""
        self.flush()

    def read(self) -> None:
        """Pass received bytes to the connection."""
        try:
            reads = 0
            while self._has_turn(reads):
                count = self._socket.recv_into(self._connection.writable())
                if count == 0:
                    self._lose("the broker ended the connection")
                    return
                self._connection.written(count)
                reads += 1
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except ssl.SSLWantWriteError:
            self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)
        except OSError as error:
            self._lose(f"receiving failed: {lost_reason(error)}")
            return
        if self._connection.ended is not None:
            self.close()

    def close(self) -> None:
        """Close the socket; does nothing if it is closed."""
        if not self._closed:
            self._closed = True
            self._unsent.take_all()
            self._selector.unregister(self._socket)
            self._socket.close()

    def _send_some(self) -> int:
        """Send the first chunks; return the number of bytes sent."""
        return self._socket.sendmsg(self._unsent.first())

    def _has_turn(self, reads: int) -> bool:
        """Whether to keep reading before other sockets get their turn."""
        return reads < _READS_MAX and not self._closed and self._connection.ended is None

    def _watch(self, events: int) -> None:
        """Set the events that the select loop waits for."""
        if self._selector.get_key(self._socket).events != events:
            self._selector.modify(self._socket, events, self)

    def _lose(self, reason: str) -> None:
        """Fail pending requests and close."""
        self._connection.end(ConnectionLost(reason))
        self.close()


class TlsTransport(SocketTransport):
    """One socket under TLS.

    The selector does not report bytes that TLS has decrypted but nobody has read, so reading
    continues until none are left. Either direction may have to wait for the other (a key update).
    """

    _socket: ssl.SSLSocket

    def read(self) -> None:
        """Pass received bytes to the connection; continue a send that waited for input."""
        super().read()
        if self._unsent:
            self.flush()

    def writable(self) -> None:
        """Continue sending, then continue a read that waited for output."""
        self.flush()
        self.read()

    def _send_some(self) -> int:
        """Send about one TLS record, joining small chunks; return the number of bytes sent."""
        parts: list[memoryview] = []
        size = 0
        for part in self._unsent.first():
            parts.append(part)
            size += len(part)
            if size >= _RECORD_BYTES:
                break
        return self._socket.send(parts[0] if len(parts) == 1 else b"".join(parts))

    def _has_turn(self, reads: int) -> bool:
        """Whether to keep reading; true while decrypted bytes are left."""
        return super()._has_turn(0 if self._socket.pending() else reads)


class BlockingIo(SystemClock):
    """`Io` over sockets; its coroutines never suspend. For one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._is_patched = is_patched()

    async def connect(
        self,
        host: str,
        port: int,
        connection: Connection,
        timeout_ms: float,
        tls: ssl.SSLContext | None = None,
    ) -> SocketTransport:
        """Open a socket, over TLS if a context is given."""
        deadline_ms = self.now_ms() + timeout_ms
        try:
            sock = socket.create_connection((host, port), timeout=timeout_ms / 1000)
        except OSError as error:
            raise NotConnected(f"{host}:{port}: {error}") from error
        except (ValueError, OverflowError) as error:
            raise NotConnected(f"{host}:{port} is no address: {error}") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        if tls is None:
            return SocketTransport(sock, connection, self._selector)
        encrypted = self._encrypt(sock, host, port, deadline_ms, tls)
        return TlsTransport(encrypted, connection, self._selector)

    def _encrypt(
        self, sock: socket.socket, host: str, port: int, deadline_ms: float, tls: ssl.SSLContext
    ) -> ssl.SSLSocket:
        """Do the TLS handshake."""
        address = f"{host}:{port}"
        encrypted = None
        try:
            encrypted = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
            while not self._shake(encrypted, deadline_ms):
                if self.now_ms() >= deadline_ms:
                    raise NotConnected(f"{address}: no TLS handshake in time")  # noqa: TRY301  # closed below
        except OSError as error:
            (encrypted or sock).close()
            raise tls_failure(address, host, error) from error
        except NotConnected:
            (encrypted or sock).close()
            raise
        return encrypted

    def _shake(self, encrypted: ssl.SSLSocket, deadline_ms: float) -> bool:
        """Do one step of the handshake; return whether it is complete."""
        try:
            encrypted.do_handshake()
        except ssl.SSLWantReadError:
            events = selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            events = selectors.EVENT_WRITE
        else:
            return True
        with selectors.DefaultSelector() as one:
            one.register(encrypted, events)
            one.select(max(0.0, deadline_ms - self.now_ms()) / 1000)
        return False

    async def wait(self, ready: Callable[[], bool], timeout_ms: float) -> bool:
        """Move bytes until `ready()` or the timeout; poll the sockets at least once."""
        deadline_ms = self.now_ms() + timeout_ms
        while not ready():
            remaining_ms = max(0.0, deadline_ms - self.now_ms())
            self._step(min(remaining_ms, _STEP_MS_MAX) / 1000)
            if remaining_ms == 0.0:
                break
        return ready()

    def wake(self) -> None:
        """Do nothing: there is only one thread, so nobody is waiting."""

    async def pause(self, duration_ms: float) -> None:
        """Keep moving bytes for a duration."""
        await self.wait(lambda: False, duration_ms)

    async def spawn(self, work: Coroutine[object, object, None]) -> Callable[[], object]:
        """Run work to its end."""
        await work
        return lambda: None

    def close(self) -> None:
        """Close the selector; transports are closed by their owners."""
        self._selector.close()

    def _step(self, timeout_s: float) -> None:
        """Wait for the sockets once and serve those that are ready."""
        if not self._selector.get_map():
            time.sleep(timeout_s)
            return
        if timeout_s <= 0 and self._is_patched:  # gevent's selector misses new events
            for key in tuple(self._selector.get_map().values()):
                _transport_of(key).read()
            return
        for key, events in self._selector.select(timeout_s):
            transport = _transport_of(key)
            if events & selectors.EVENT_WRITE:
                transport.writable()
            if events & selectors.EVENT_READ:
                transport.read()


@contextmanager
def connected(settings: ClientSettings) -> Iterator[Core]:
    """Provide blocking connections to a cluster for the duration of the `with` block."""
    io = BlockingIo()
    core = Core(io, settings)
    try:
        yield core
    finally:
        core.close()
        io.close()


def _transport_of(key: selectors.SelectorKey) -> SocketTransport:
    assert isinstance(key.data, SocketTransport), "nothing else is registered"
    return key.data
