"""Reopens broken links with exponential backoff, for peers whose address is known.

A link may break while both ends live. Callers that look a peer up for each request use
`runtime.link_table.Links` instead and retry themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from raylog.actors.runtime.base import Runtime

K = TypeVar("K")
REOPEN_MS = 50
REOPEN_MS_MAX = 1_000
"""First and longest delay before the next attempt."""


class Reopening(Generic[K]):
    """Repeats `attempt(what)` until it returns True: the link is open, or no longer wanted."""

    def __init__(
        self, runtime: Runtime, attempt: Callable[[K], Awaitable[bool]], reached: Callable[[], None]
    ) -> None:
        """`reached` is called when the attempts for a link end."""
        self._runtime = runtime
        self._attempt = attempt
        self._reached = reached
        self._trying: set[K] = set()
        self._closed = False

    def again(self, what: K) -> None:
        """Start retrying after the first delay, unless it is being retried already."""
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
        """Stop retrying."""
        self._closed = True
