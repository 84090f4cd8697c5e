"""Watches a process by a link to it, which breaks when the process is gone."""

from __future__ import annotations

from collections.abc import Callable

from raylog.actors.runtime.base import ActorRef, Link, PeerLost, Runtime


class LinkWatch:
    """Watches one process through its own link."""

    def __init__(self, peer: ActorRef, on_lost: Callable[[ActorRef], None]) -> None:
        self._peer = peer
        self._on_lost: Callable[[ActorRef], None] | None = on_lost
        self._link: Link | None = None

    async def run(self, runtime: Runtime) -> None:
        """Open the link."""
        try:
            self._link = await runtime.connect(self._peer)
        except PeerLost:
            self._fire()
            return
        self._link.on_lost(self._fire)

    def _fire(self) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost(self._peer)

    def cancel(self) -> None:
        """End the watch."""
        self._on_lost = None
        if self._link is not None:
            self._link.close()
