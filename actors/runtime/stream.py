"""Links over sockets: direct actor-to-actor streams between processes.

On one node a link is a Unix socket with an abstract name (no path, so no length limit and nothing
left behind). Both sides prove that they know the cluster secret before anything else is read.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

from raylog.actors.runtime.base import (
    Actor,
    Buffer,
    FailureHandler,
    PeerLost,
    ReplyHandler,
)
from raylog.actors.runtime.frames import (
    LINK_VERSION,
    ReceiveBuffer,
    bytes_wanted,
    frame,
    take_frames,
)
from raylog.actors.runtime.links import ask_over
from raylog.wire.errors import DecodeError, ErrorCode, KafkaError, error_of

log = logging.getLogger(__name__)
GREETING = "raylog"
UNSENT_BYTES_MAX = 64 << 20
_ANSWER = 0
_LINK_NUMBERS = itertools.count(1)


class _FrameProtocol(asyncio.BufferedProtocol, ABC):
    """Both ends' common part: frames in, frames out, the greeting first."""

    def __init__(self, secret: bytes, instance: str) -> None:
        self._secret = secret
        self._instance = instance
        self._buffer = ReceiveBuffer()
        self._greeted = False
        self._held: list[Buffer] | None = None
        """Frames that wait until all that came in together is taken."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the greeting."""
        stream = cast(asyncio.Transport, transport)  # uvloop's transports inherit nothing
        self.transport = stream
        stream.set_write_buffer_limits(high=1 << 20)
        stream.writelines(frame([GREETING, LINK_VERSION, self._secret, self._instance]))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for what comes in."""
        return self._buffer.writable(bytes_wanted(self._buffer))

    def buffer_updated(self, nbytes: int) -> None:
        """Take the whole frames. What is said to them meanwhile is sent together."""
        self._buffer.received(nbytes)
        held = self._held = []
        try:
            for head, payload in take_frames(self._buffer):
                if self._greeted:
                    self.took(head, payload)
                else:
                    self._greet(head)
        except DecodeError:
            log.exception("a link broke the protocol and is closed")
            self.abort()
        finally:
            self._held = None
        if held:
            self.send(held)

    def send(self, chunks: list[Buffer]) -> None:
        """Send frames; passed over when the peer is gone."""
        assert self.transport is not None
        if self._held is not None:
            self._held += chunks
        elif not self.transport.is_closing():
            self.transport.writelines(chunks)

    def _greet(self, head: list[Any]) -> None:
        known = (
            len(head) == 4
            and head[0] == GREETING
            and isinstance(head[2], bytes)
            and hmac.compare_digest(head[2], self._secret)
        )
        if not known:
            raise DecodeError("a peer without the cluster's secret")
        if head[1] != LINK_VERSION:
            raise DecodeError(f"a peer of link version {head[1]}, this is {LINK_VERSION}")
        self._greeted = True
        self.greeted(str(head[3]))

    def greeted(self, instance: str) -> None:
        """Note that the peer is known."""

    @abstractmethod
    def took(self, head: list[Any], payload: memoryview) -> None:
        """Take one frame."""

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()


class StreamRequest:
    """A link request that came in over a socket."""

    __slots__ = ("_id", "_link", "header", "kind", "payload", "peer")

    def __init__(
        self,
        peer: int,
        link: _FrameProtocol,
        number: int,
        kind: str,
        header: Any,
        payload: memoryview,
    ) -> None:
        self.peer = peer
        self.kind = kind
        self.header = header
        self.payload = payload
        self._id = number
        self._link = link

    def reply(self, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Answer the requester; passed over when it is gone."""
        self._link.send(frame([self._id, _ANSWER, header], payload))

    def fail(self, failure: KafkaError) -> None:
        """Answer with an error."""
        self._link.send(frame([self._id, int(failure.code), str(failure)]))


class ServingLink(_FrameProtocol):
    """The accepting end: hands requests to the actor in the order they came."""

    def __init__(self, secret: bytes, instance: str, actor: Actor, links: set[ServingLink]) -> None:
        super().__init__(secret, instance)
        self._actor = actor
        self._links = links
        self._number = next(_LINK_NUMBERS)

    def greeted(self, instance: str) -> None:
        """Count the peer among the living ones."""
        self._links.add(self)

    def took(self, head: list[Any], payload: memoryview) -> None:
        """Hand one request to the actor."""
        request = StreamRequest(self._number, self, head[0], head[1], head[2], payload)
        try:
            self._actor.link_received(request)
        except KafkaError as failure:
            request.fail(failure)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the peer."""
        if self in self._links:
            self._links.discard(self)
            self._actor.link_lost(self._number)


class StreamLink(_FrameProtocol):
    """The requesting end of a link."""

    def __init__(self, secret: bytes, instance: str) -> None:
        super().__init__(secret, instance)
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[ReplyHandler, FailureHandler]] = {}
        self._on_lost: list[Callable[[], None]] = []
        self._lost = False

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return not self._lost and self.transport is not None and not self.transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Bytes accepted and not yet handed to the operating system."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def greeted(self, instance: str) -> None:
        """The link is usable."""
        if not self.ready.done():
            self.ready.set_result(None)

    def request(
        self,
        kind: str,
        header: Any,
        payload: Sequence[Buffer],
        answered: ReplyHandler,
        failed: FailureHandler,
    ) -> None:
        """Send a request."""
        if not self.is_open:
            failed(PeerLost("the link is closed"))
            return
        if self.unsent_bytes > UNSENT_BYTES_MAX:
            failed(PeerLost(f"the peer has not taken {self.unsent_bytes} bytes"))
            return
        number = next(self._ids)
        self._waiting[number] = (answered, failed)
        self.send(frame([number, kind, header], payload))

    def ask(
        self, kind: str, header: Any = None, payload: Sequence[Buffer] = ()
    ) -> asyncio.Future[Any]:
        """Send a request and await the answer's header."""
        return ask_over(self, kind, header, payload)

    def took(self, head: list[Any], payload: memoryview) -> None:
        """Give an answer to who waits for it."""
        waiting = self._waiting.pop(head[0], None)
        if waiting is None:
            raise DecodeError(f"an answer to request {head[0]}, which was not asked")
        answered, failed = waiting
        if head[1] == _ANSWER:
            answered(head[2], payload)
        else:
            failed(error_of(ErrorCode(head[1]), str(head[2])))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits, tell who wants to know."""
        self._lost = True
        if not self.ready.done():
            self.ready.set_exception(PeerLost("the peer closed the link before greeting"))
        waiting, self._waiting = self._waiting, {}
        for _, failed in waiting.values():
            failed(PeerLost("the peer is gone"))
        callbacks, self._on_lost = self._on_lost, []
        for callback in callbacks:
            callback()

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Run `callback` once when the other side is gone."""
        if self._lost:
            callback()
        else:
            self._on_lost.append(callback)

    def close(self) -> None:
        """End the link; what is unanswered fails with PeerLost."""
        self.abort()


async def serve_links(
    address: str, secret: bytes, instance: str, actor: Actor, links: set[ServingLink]
) -> asyncio.AbstractServer:
    """Accept links at `unix:<name>`, an abstract socket name."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_socket_name(address))
    return await asyncio.get_running_loop().create_unix_server(
        lambda: ServingLink(secret, instance, actor, links), sock=listener
    )


async def connect_link(address: str, secret: bytes, instance: str, timeout_s: float) -> StreamLink:
    """Open a link; raises PeerLost when nobody who knows the secret is there."""
    loop = asyncio.get_running_loop()
    connection = socket.socket(socket.AF_UNIX)  # uvloop cannot dial an abstract name itself
    connection.setblocking(False)
    try:
        async with asyncio.timeout(timeout_s):
            await loop.sock_connect(connection, _socket_name(address))
            _, link = await loop.create_unix_connection(
                lambda: StreamLink(secret, instance), sock=connection
            )
            await link.ready
    except (OSError, TimeoutError) as failure:
        connection.close()
        raise PeerLost(f"nobody answers at {address}: {failure}") from failure
    return link


def _socket_name(address: str) -> str:
    scheme, _, name = address.partition(":")
    if scheme != "unix":
        raise PeerLost(f"a link address of unknown kind: {address}")
    return "\0" + name
