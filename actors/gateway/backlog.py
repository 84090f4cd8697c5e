"""Requests for a peer that does not take them as fast as they come: they wait, and nobody fails.

While much is unsent each connection has one request waiting here, which keeps it from sending more.
The peer may be a coordinator that handles the large requests of one client, or a replica whose disk
is slow; others' requests go on behind them, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from raylog.actors.gateway.context import RequestContext
from raylog.actors.runtime.base import Link, Runtime

UNSENT_BYTES_MAX = 8 << 20
"""Bytes that one link has not handed to the system, from which on requests wait."""
LOOK_MS = 10
"""How often that is looked at again while some do."""


class Backlog:
    """Requests that wait for links to be sent, in order."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[Link, deque[tuple[RequestContext, Callable[[], None]]]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    def send(self, link: Link, context: RequestContext, send: Callable[[], None]) -> None:
        """Have `send` called, now or when there is room; the connection is held until then."""
        waiting = self._waiting.get(link)
        if waiting is None:
            if link.unsent_bytes <= UNSENT_BYTES_MAX:
                send()
                return
            waiting = self._waiting[link] = deque()
            self._look_later()
        context.takes_long()
        waiting.append((context, send))

    def _look_later(self) -> None:
        if len(self._waiting) == 1:
            self._runtime.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        for link, waiting in tuple(self._waiting.items()):
            while waiting and (link.unsent_bytes <= UNSENT_BYTES_MAX or not link.is_open):
                context, send = waiting.popleft()
                send()
                context.is_begun()
            if not waiting:
                del self._waiting[link]
        if self._waiting:
            self._runtime.call_later(LOOK_MS, self._look)
