"""A small HTTP server for probes: GET and HEAD of a few paths, one request per connection.

Whoever can reach the port may send anything, so every connection has limits: the head of its
request may take HEAD_BYTES_MAX bytes and HTTP_S seconds, answers included, and no body is read.
Where CONNECTIONS_MAX are open the oldest one is closed for the newest: clients that hang do not
keep a probe out.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import cast

import h11

HTTP_S = 5.0
HEAD_BYTES_MAX = 8_192
CONNECTIONS_MAX = 64
_METHODS = (b"GET", b"HEAD")


HttpAnswer = tuple[HTTPStatus, Mapping[str, object]]
"""A status and a JSON document."""
Page = Callable[[], HttpAnswer]


class HttpServer:
    """Serves `pages`, by path, until it is closed. A page is made at once and without waiting."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open: dict[_Exchange, None] = {}
        """Connections, the oldest first."""

    async def listen(self, host: str, port: int) -> int:
        """Listen there, on every interface if `host` is empty; returns the port. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Exchange(self), sock=listener)
        bound: int = listener.getsockname()[1]
        return bound

    def close(self) -> None:
        """Stop listening, and cut off whoever is connected."""
        if self._server is not None:
            self._server.close()
        for exchange in tuple(self._open):
            exchange.abort()

    def opened(self, exchange: _Exchange) -> None:
        """Somebody has connected."""
        self._open[exchange] = None
        if len(self._open) > CONNECTIONS_MAX:
            next(iter(self._open)).abort()

    def closed(self, exchange: _Exchange) -> None:
        """A connection has ended."""
        self._open.pop(exchange, None)

    def answer(self, method: bytes, target: bytes) -> HttpAnswer:
        """What a request gets."""
        page = self._pages.get(target.partition(b"?")[0].decode("ascii", "replace"))
        if page is None:
            return refusal(HTTPStatus.NOT_FOUND, f"expected one of {', '.join(self._pages)}")
        if method not in _METHODS:
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET or HEAD")
        return page()


def refusal(status: HTTPStatus, why: str) -> HttpAnswer:
    """An answer to a request that cannot be served."""
    return status, {"error": why}


class _Exchange(asyncio.Protocol):
    """One connection: a request, its answer, the end."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports inherit nothing
        self._deadline = asyncio.get_running_loop().call_later(HTTP_S, self.abort)
        self._server.opened(self)

    def connection_lost(self, _: Exception | None) -> None:
        """The connection has ended."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._server.closed(self)

    def abort(self) -> None:
        """End the connection without waiting for anything."""
        self._server.closed(self)
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes came in; those behind the head of the request are left unread."""
        if self._answered:
            return
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as broken:
            # h11 proposes 431 for a head that is too long, and 400.
            self._send(refusal(HTTPStatus(broken.error_status_hint), str(broken)), b"GET")
            return
        if isinstance(event, h11.Request):
            self._send(self._server.answer(event.method, event.target), event.method)

    def _send(self, answer: HttpAnswer, method: bytes) -> None:
        assert self._transport is not None, "bytes come in after the connection was made"
        self._answered = True
        status, document = answer
        body = json.dumps(document).encode() + b"\n"
        head = h11.Response(
            status_code=status,
            reason=status.phrase.encode(),
            headers=[
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                ("Cache-Control", "no-store"),
                ("Connection", "close"),
            ],
        )
        self._transport.write(self._http.send(head) or b"")
        if method != b"HEAD":
            self._transport.write(self._http.send(h11.Data(data=body)) or b"")
        self._transport.close()
