"""The client's interface to clock, network and waiting, with a blocking and an asyncio version.

All of the client's logic is written once, as coroutines over this interface. The blocking version
never suspends (its `wait` runs a select loop inside), so a single step runs such a coroutine to its
end. The asyncio version suspends as usual.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol, TypeVar

from raylog.client.connection import Buffer, Connection

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")


class Transport(Protocol):
    """The byte stream of one connection."""

    def send(self, chunks: list[Buffer]) -> None:
        """Queue bytes. A failure ends the connection; it is not raised here."""

    def close(self) -> None:
        """Close both directions."""


class Io(Protocol):
    """Clock, connections and waiting."""

    def now_ms(self) -> float:
        """Return monotonic time in ms."""

    def chance(self) -> float:
        """Return a random number from 0 to 1."""

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
        """Move bytes until `ready()` or the timeout; return what `ready` says at the end.

        `ready` is checked whenever an answer arrives, a connection ends or `wake` is called.
        """

    def wake(self) -> None:
        """Make all waiters check their conditions again."""

    async def pause(self, duration_ms: float) -> None:
        """Sleep; bytes keep moving meanwhile."""

    async def spawn(self, work: Coroutine[object, object, None]) -> Callable[[], object]:
        """Run work, which must not raise, beside the caller; return a function that cancels it.

        Blocking I/O runs it to its end before this returns.
        """


class SystemClock:
    """The clock and the chance of an Io that is not simulated."""

    def now_ms(self) -> float:
        """Monotonic time."""
        return time.monotonic() * 1000

    def chance(self) -> float:
        """A random number from 0 to 1."""
        import random  # takes a millisecond, and is of use only after a failure

        return random.random()  # noqa: S311  # it spreads pauses and hides nothing


def run_blocking(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine over an Io that never suspends; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    coroutine.close()
    raise AssertionError("a coroutine over blocking I/O suspended")
