"""What the client needs of the world; blocking sockets and asyncio each provide it.

All of the client's logic is written once, as coroutines over this interface. The blocking
provider never suspends (its `wait` runs a select loop inside), so such a coroutine is run to its
end by a single step; the asyncio provider suspends as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol, TypeVar

from raylog.client.connection import Buffer, Connection

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")


class Transport(Protocol):
    """The bytes of one connection."""

    def send(self, chunks: list[Buffer]) -> None:
        """Queue bytes; a failure ends the connection, it is not raised here."""

    def close(self) -> None:
        """End both directions."""


class Io(Protocol):
    """Clock, connections and waiting."""

    def now_ms(self) -> float:
        """Time in ms that never goes back."""

    def chance(self) -> float:
        """A random number from 0 to 1."""

    async def connect(
        self,
        host: str,
        port: int,
        connection: Connection,
        timeout_ms: float,
        tls: ssl.SSLContext | None = None,
    ) -> Transport:
        """Open a transport that feeds `connection`, over TLS if a context is given.

        All addresses of the host are tried. Raises NotConnected, TlsFailed.
        """

    async def wait(self, ready: Callable[[], bool], timeout_ms: float) -> bool:
        """Move bytes until `ready()`, at most for a while; returns what `ready` says at the end.

        `ready` is looked at whenever an answer came or a connection ended, or `wake` was called.
        """

    def wake(self) -> None:
        """Let all who wait look again."""

    async def pause(self, duration_ms: float) -> None:
        """Let time pass; bytes move meanwhile."""

    async def spawn(self, work: Coroutine[object, object, None]) -> Callable[[], object]:
        """Run work, which raises nothing, beside the caller; returns what ends it early.

        Blocking I/O runs it to its end before this returns.
        """


def run_blocking(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine whose Io never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    coroutine.close()
    raise AssertionError("a coroutine over blocking I/O suspended")
