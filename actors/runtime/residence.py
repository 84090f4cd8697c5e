"""One actor in a process that several may share: how it is reached, and how it leaves.

Actors of other processes reach it through a server of stream links. Those of its own process find
it in a table by its address and get a link of method calls, without serialization or copies.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from raylog.actors.runtime.addresses import tcp_address, unix_address
from raylog.actors.runtime.base import Actor, Buffer, FailureHandler, ReplyHandler
from raylog.actors.runtime.link_secret import LinkSecrets
from raylog.actors.runtime.link_settings import LinkPlace
from raylog.actors.runtime.links import LINK_NUMBERS, InprocLink
from raylog.actors.runtime.loop import LoopRuntime
from raylog.actors.runtime.stream import ServingLink, serve_links

_HERE: dict[str, Residence] = {}
"""The actors in this process, by link address."""


class Residence:
    """A started actor and the links to it."""

    def __init__(self, actor: Actor, runtime: LoopRuntime) -> None:
        self.actor = actor
        self.address = unix_address(f"raylog-{runtime.instance}")
        """Where links are accepted, once open."""
        self._runtime = runtime
        self._servers: list[asyncio.Server] = []
        self._serving: set[ServingLink] = set()
        self._neighbours: set[NeighbourLink] = set()

    async def open(self, secrets: LinkSecrets, outside: LinkPlace | None = None) -> None:
        """Accept links; with `outside` from other machines, too."""
        await self._serve(self.address, secrets)
        if outside is not None:
            try:
                server = await self._serve_outside(outside, secrets)
            except OSError:
                self._servers.pop().close()
                raise
            port = server.sockets[0].getsockname()[1]
            reached = tcp_address(outside.advertised_host, port, self._runtime.instance)
            self.address = f"{self.address},{reached}"
        _HERE[self.address] = self

    async def _serve_outside(self, outside: LinkPlace, secrets: LinkSecrets) -> asyncio.Server:
        """Serve the first free port of the range; raises OSError if there is none."""
        for port in outside.ports:
            try:
                return await self._serve(tcp_address(outside.bind_host, port), secrets)
            except OSError as failure:
                if failure.errno != errno.EADDRINUSE:
                    raise OSError(
                        failure.errno,
                        f"links cannot be accepted on {outside.bind_host}: {failure.strerror}. "
                        "Is link.bind.host an address of this machine?",
                    ) from failure
        raise OSError(
            errno.EADDRINUSE,
            f"no port from {outside.ports[0]} to {outside.ports[-1]} is free on "
            f"{outside.bind_host} for links: every process of a broker takes one, so "
            "link.port.range must be larger",
        )

    async def _serve(self, address: str, secrets: LinkSecrets) -> asyncio.Server:
        server = await serve_links(
            address, secrets, self._runtime.instance, self.actor, self._serving
        )
        self._servers.append(server)
        return server

    def link(self) -> NeighbourLink:
        """Return a link for an actor of this process."""
        link = NeighbourLink(self.actor, next(LINK_NUMBERS))
        self._neighbours.add(link)
        link.on_lost(lambda: self._neighbours.discard(link))
        return link

    def leave(self) -> None:
        """Close every link to the actor, which has stopped; the process goes on."""
        if _HERE.pop(self.address, None) is None:
            return
        for server in self._servers:
            server.close()
        for serving in tuple(self._serving):
            serving.abort()
        for link in tuple(self._neighbours):
            link.close()
        self._runtime.end(wait=False)


def neighbour(address: str) -> Residence | None:
    """Return the actor with that address, if it is in this process."""
    return _HERE.get(address)


class NeighbourLink(InprocLink):
    """A link within one process that contains exceptions as a socket does.

    If an actor raises while it handles a request or an answer, the exception is not raised in the
    other actor's code. It goes to the event loop's exception handler, and the link ends.
    """

    def request(
        self,
        kind: str,
        header: Any,
        payload: Sequence[Buffer],
        answered: ReplyHandler,
        failed: FailureHandler,
    ) -> None:
        """Hand the request to the actor."""
        on_answered = partial(self._hand_over, answered)
        on_failed = partial(self._hand_over, failed)
        self._hand_over(super().request, kind, header, payload, on_answered, on_failed)

    def _hand_over(self, taker: Callable[..., None], *what: Any) -> None:
        try:
            taker(*what)
        except Exception as failure:  # noqa: BLE001 - the loop's handler logs it or ends the process
            asyncio.get_running_loop().call_exception_handler(
                {"message": "an actor failed over a link of its process", "exception": failure}
            )
            self.close()
