"""The one way in which a link that broke, or could not be opened, is opened again.

Whoever was told where a peer is keeps the link to it for as long as that holds: a link may break
while both its ends live. Whoever looks a peer up for each request opens links as they are needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from raylog.actors.runtime.base import Runtime

K = TypeVar("K")
REOPEN_MS = 50
REOPEN_MS_MAX = 1_000
"""First and longest wait before the next attempt."""


class Reopening(Generic[K]):
    """Repeats `attempt(what)` until it returns True: it is open, or not wanted any more."""

    def __init__(
        self, runtime: Runtime, attempt: Callable[[K], Awaitable[bool]], reached: Callable[[], None]
    ) -> None:
        """`reached` is called after each last attempt."""
        self._runtime = runtime
        self._attempt = attempt
        self._reached = reached
        self._trying: set[K] = set()
        self._closed = False

    def again(self, what: K) -> None:
        """Begin after the first wait, unless it is being tried already."""
        if what not in self._trying and not self._closed:
            self._trying.add(what)
            self._runtime.start(self._keep_trying(what), f"reach {what}")

    async def _keep_trying(self, what: K) -> None:
        delay_ms = REOPEN_MS
        try:
            while not self._closed:
                await self._runtime.sleep(delay_ms / 1000)
                if self._closed or await self._attempt(what):
                    break
                delay_ms = min(2 * delay_ms, REOPEN_MS_MAX)
        finally:
            self._trying.discard(what)
        self._reached()

    def close(self) -> None:
        """Try no more."""
        self._closed = True
