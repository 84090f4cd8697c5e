"""A table of links to processes, one for each address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from raylog.actors.runtime.base import Link, PeerLost, Runtime

Use = Callable[[Link], None]
Fail = Callable[[PeerLost], None]


class Links:
    """Opens links on first use and keeps them until they break; the next use opens another one.

    A link that is being opened is shared by all who need it. `lost`, if given, is called for each
    link that breaks.
    """

    def __init__(self, runtime: Runtime, lost: Callable[[str, Link], None] | None = None) -> None:
        self._runtime = runtime
        self._on_lost = lost
        self._links: dict[str, Link] = {}
        self._waiting: dict[str, list[tuple[Use, Fail]]] = {}
        """Callers that wait for a link that is being opened."""
        self._is_closed = False

    def use(self, address: str, use: Use, fail: Fail) -> None:
        """Call `use` with the link, now or once it is open, or `fail` if it cannot be opened."""
        link = self._links.get(address)
        if link is not None and link.is_open:
            use(link)
        elif address in self._waiting:
            self._waiting[address].append((use, fail))
        else:
            self._waiting[address] = [(use, fail)]
            self._runtime.start(self._open(address), f"link to {address}")

    async def to(self, address: str) -> Link:
        """Return the link; raises PeerLost if the process is gone."""
        link = self._links.get(address)
        if link is not None and link.is_open:
            return link
        opened: asyncio.Future[Link] = asyncio.get_running_loop().create_future()

        def settle(setter: Callable[[Any], None], outcome: Link | PeerLost) -> None:
            if not opened.done():
                setter(outcome)

        self.use(address, partial(settle, opened.set_result), partial(settle, opened.set_exception))
        return await opened

    def close(self) -> None:
        """Close all links."""
        self._is_closed = True
        for link in tuple(self._links.values()):
            link.close()

    async def _open(self, address: str) -> None:
        try:
            link = await self._runtime.connect(address)
        except PeerLost as lost:
            for _, fail in self._waiting.pop(address):
                fail(lost)
            return
        self._links[address] = link
        link.on_lost(partial(self._lost, address, link))
        if self._is_closed:
            link.close()
        for use, _ in self._waiting.pop(address):
            use(link)

    def _lost(self, address: str, link: Link) -> None:
        if self._links.get(address) is link:
            del self._links[address]
        if self._on_lost is not None:
            self._on_lost(address, link)
