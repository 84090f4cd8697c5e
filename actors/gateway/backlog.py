"""Holds requests back while a peer cannot accept them as fast as they arrive.

While a lot is unsent, each connection has one request waiting here and sends no more. The peer may
be a coordinator that is handling large requests of one client, or a replica with a slow disk.
Requests of other clients follow in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from raylog.actors.gateway.context import RequestContext
from raylog.actors.runtime.base import Link, Runtime

UNSENT_BYTES_MAX = 8 << 20
"""Unsent bytes of a link at which requests start to wait."""
LOOK_MS = 10
"""How often the links are checked while requests wait."""


class Backlog:
    """Requests that wait to be sent over links, in order."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[Link, deque[tuple[RequestContext, Callable[[], None]]]] = {}

    def __len__(self) -> int:
        """The number of waiting requests."""
        return sum(map(len, self._waiting.values()))

    def send(self, link: Link, context: RequestContext, send: Callable[[], None]) -> None:
        """Call `send` now or when there is room; the connection is held until then."""
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
