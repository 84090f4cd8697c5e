"""Accepts connections, within limits on their number and rate.

Connections beyond a limit wait in the kernel's queue, as with Apache Kafka, whose acceptor thread
blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable

from raylog.actors.gateway.connections import Connections
from raylog.actors.runtime.base import Runtime, Timer

log = logging.getLogger(__name__)
LISTEN_BACKLOG = 1024
AT_ONCE = 64
"""Connections accepted before other tasks run."""
PAUSE_MS = 1_000
"""Delay after a connection limit was reached, or descriptors or memory ran out."""
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts connections to one port on the running event loop until it is closed."""

    def __init__(
        self,
        runtime: Runtime,
        listener: socket.socket,
        connections: Connections,
        name: str,
        protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        """`listener` is bound and is now owned by this object; `name` is its configured name."""
        self._runtime = runtime
        self._listener = listener
        self._connections = connections
        self._name = name
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._timer: Timer | None = None
        listener.setblocking(False)
        listener.listen(LISTEN_BACKLOG)
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Stop serving the port."""
        if self._timer is not None:
            self._timer.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            if not self._may_accept():
                return
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as failure:
                if failure.errno not in _SCARCE:
                    raise
                log.warning("no connection can be accepted: %s", failure)
                self._pause(PAUSE_MS)
                return
            self._connections.comes(self._name)
            self._runtime.start(self._open(accepted), "a connection")

    async def _open(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # already reset
            await self._loop.connect_accepted_socket(self._protocol, accepted)
        self._connections.has_come(self._name)

    def _may_accept(self) -> bool:
        """Whether one more connection may be accepted now; if not, pause until it may be."""
        if not self._connections.has_room(self._name, self._resume):
            self._pause(PAUSE_MS)  # the limit may be raised in the meantime
            return False
        wait_ms = self._connections.wait_ms(self._name)
        if wait_ms:
            self._pause(wait_ms)
        return not wait_ms

    def _pause(self, delay_ms: float) -> None:
        self._loop.remove_reader(self._listener.fileno())
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._runtime.call_later(max(delay_ms, 1), self._resume)

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)
