"""A small HTTP server for probes: GET and HEAD of a few paths, one request per connection.

Anyone who can reach the port may send anything, so every connection has limits: the head of its
request may take HEAD_BYTES_MAX bytes and HEAD_S seconds, its answer ANSWER_S, and no body is read.
If CONNECTIONS_MAX are open, the newest replaces the oldest, preferably one that has not sent its
request. So clients that hang do not lock a probe out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple, cast

import h11

log = logging.getLogger(__name__)
HEAD_S = 5.0
ANSWER_S = 20.0
"""From the request's head until the answer is read. Prometheus waits 10 s by default."""
HEAD_BYTES_MAX = 8_192
CONNECTIONS_MAX = 64
_METHODS = (b"GET", b"HEAD")


class HttpAnswer(NamedTuple):
    """A status and a body."""

    status: HTTPStatus
    body: bytes
    content_type: str


Page = Callable[[str], HttpAnswer | Awaitable[HttpAnswer]]
"""Builds the answer from the request's `Accept` header, which may be ""."""


def document(status: HTTPStatus, fields: Mapping[str, object]) -> HttpAnswer:
    """Build an answer in JSON."""
    return HttpAnswer(status, json.dumps(fields).encode() + b"\n", "application/json")


def refusal(status: HTTPStatus, why: str) -> HttpAnswer:
    """Build the answer to a request that cannot be served."""
    return document(status, {"error": why})


class HttpServer:
    """Serves `pages`, by path, until it is closed."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open: dict[_Exchange, None] = {}
        """Connections, oldest first."""

    async def listen(self, host: str, port: int) -> int:
        """Listen, on every interface if `host` is empty; return the port. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Exchange(self), sock=listener)
        bound: int = listener.getsockname()[1]
        return bound

    def close(self) -> None:
        """Stop listening, and abort all connections."""
        if self._server is not None:
            self._server.close()
        for exchange in tuple(self._open):
            exchange.abort()

    def opened(self, exchange: _Exchange) -> None:
        """Add a connection; abort another one if there are too many."""
        self._open[exchange] = None
        if len(self._open) > CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            next((one for one in self._open if not one.has_asked), oldest).abort()

    def closed(self, exchange: _Exchange) -> None:
        """Remove a connection that has ended."""
        self._open.pop(exchange, None)

    def answer(self, request: h11.Request) -> HttpAnswer | Awaitable[HttpAnswer]:
        """Return the answer to a request."""
        page = self._pages.get(request.target.partition(b"?")[0].decode("ascii", "replace"))
        if page is None:
            return refusal(HTTPStatus.NOT_FOUND, f"expected one of {', '.join(self._pages)}")
        if request.method not in _METHODS:
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET or HEAD")
        accepts = [value.decode("latin-1") for name, value in request.headers if name == b"accept"]
        return page(", ".join(accepts))


class _Exchange(asyncio.Protocol):
    """One connection: a request, its answer, the end."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None
        self._head_bytes = 0
        self.has_asked = False
        """Whether the head of its request has arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout of the request."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports inherit nothing
        self._deadline = asyncio.get_running_loop().call_later(HEAD_S, self.abort)
        self._server.opened(self)

    def connection_lost(self, _: Exception | None) -> None:
        """Cancel everything in progress."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self._answering is not None:
            self._answering.cancel()
        self._server.closed(self)

    def abort(self) -> None:
        """Close the connection immediately."""
        self._server.closed(self)
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse the request; bytes after its head are ignored."""
        if self.has_asked:
            return
        self._head_bytes += len(data)
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as broken:
            # h11 suggests 431 for a head that is too long, and 400.
            self._send(refusal(HTTPStatus(broken.error_status_hint), str(broken)), b"GET")
            return
        if isinstance(event, h11.Request):
            self._asked(event)

    def _asked(self, request: h11.Request) -> None:
        """Start the answer to a request whose head has arrived."""
        self.has_asked = True
        loop = asyncio.get_running_loop()
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = loop.call_later(ANSWER_S, self.abort)
        self._head_bytes -= len(self._http.trailing_data[0])
        if self._head_bytes > HEAD_BYTES_MAX:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            why = f"expected a head of at most {HEAD_BYTES_MAX} bytes, found {self._head_bytes}"
            self._send(refusal(status, why), request.method)
            return
        self._answering = loop.create_task(self._answer(request))

    async def _answer(self, request: h11.Request) -> None:
        """Send a page's answer, or an error if it fails."""
        try:
            answer = self._server.answer(request)
            if not isinstance(answer, HttpAnswer):
                answer = await answer
        except Exception:
            log.exception("no answer to %s", request.target.decode("ascii", "replace"))
            answer = refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the log of the broker says why")
        self._send(answer, request.method)

    def _send(self, answer: HttpAnswer, method: bytes) -> None:
        assert self._transport is not None, "bytes come in after the connection was made"
        self.has_asked = True
        head = h11.Response(
            status_code=answer.status,
            reason=answer.status.phrase.encode(),
            headers=[
                ("Content-Type", answer.content_type),
                ("Content-Length", str(len(answer.body))),
                ("Cache-Control", "no-store"),
                ("Connection", "close"),
            ],
        )
        self._transport.write(self._http.send(head) or b"")
        if method != b"HEAD":
            self._transport.write(self._http.send(h11.Data(data=answer.body)) or b"")
        self._transport.close()
