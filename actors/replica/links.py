"""Links to the Replica actors that routes name, one for each of their processes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from raylog.actors.ports import Route
from raylog.actors.runtime.base import Link, PeerLost, Runtime

log = logging.getLogger(__name__)


class ReplicaLinks:
    """Opened on first need and kept until they break; `lost`, if given, is told of each that does.

    With no entry of a broken one left, a route to the process' successor opens a new one.
    """

    def __init__(self, runtime: Runtime, lost: Callable[[Link], None] | None = None) -> None:
        self._runtime = runtime
        self._told = lost
        self._links: dict[str, Link] = {}

    async def to(self, route: Route) -> Link | None:
        """The link to a route's process; None when that is gone: its successor has a new route."""
        address = route.replica_address
        link = self._links.get(address)
        if link is not None and link.is_open:
            return link
        try:
            link = await self._runtime.connect(address)
        except PeerLost:
            log.warning("replica %s is gone before a link to it was open", route.replica_name)
            return None
        self._links[address] = link
        link.on_lost(lambda: self._lost(address, link))
        return link

    def _lost(self, address: str, link: Link) -> None:
        if self._links.get(address) is link:
            del self._links[address]
        if self._told is not None:
            self._told(link)

    def close(self) -> None:
        """Close all links."""
        for link in tuple(self._links.values()):
            link.close()
