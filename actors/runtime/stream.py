"""Links over sockets: direct streams between actor processes.

On one machine a link is a Unix socket with an abstract name (no path, so no length limit and
nothing left behind), between machines a TCP connection. Both sides prove that they know the cluster
secret (`handshake`) before anything else is read.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

from raylog.actors.runtime.addresses import endpoint_of, instance_of
from raylog.actors.runtime.base import (
    Actor,
    Buffer,
    FailureHandler,
    PeerLost,
    ReplyHandler,
)
from raylog.actors.runtime.frames import ReceiveBuffer, bytes_wanted, frame, take_frames
from raylog.actors.runtime.handshake import (
    CONNECTING,
    GREETING_BYTES_MAX,
    SERVING,
    Handshake,
)
from raylog.actors.runtime.link_secret import LinkSecrets
from raylog.actors.runtime.links import LINK_NUMBERS, ask_over, hand_over, tell
from raylog.wire.errors import (
    DecodeError,
    EncodeError,
    KafkaError,
    UnknownServerError,
    error_of,
)

log = logging.getLogger(__name__)
UNSENT_BYTES_MAX = 64 << 20
HANDSHAKE_TIMEOUT_S = 5.0
SILENCE_MS_MAX = 10_000
"""How long a machine may accept no data, or answer no probe, before a link to it breaks."""
_ANSWER = 0


class _FrameProtocol(asyncio.BufferedProtocol, ABC):
    """The common part of both ends: frames in, frames out, the greeting first."""

    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake
        self._buffer = ReceiveBuffer()
        self._timeout: asyncio.TimerHandle | None = None
        self._broken = ""
        """How the peer broke the protocol; empty if it did not."""
        self._held: list[Buffer] | None = None
        """Frames that are held back until everything that arrived together is handled."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the greeting."""
        stream = cast(asyncio.Transport, transport)  # uvloop's transports inherit nothing
        self.transport = stream
        stream.set_write_buffer_limits(high=1 << 20)
        _notice_silence(stream.get_extra_info("socket"))
        loop = asyncio.get_running_loop()
        self._timeout = loop.call_later(HANDSHAKE_TIMEOUT_S, self.abort)
        stream.writelines(frame(self._handshake.greeting()))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return room for incoming data."""
        return self._buffer.writable(bytes_wanted(self._buffer))

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the complete frames. Frames sent meanwhile leave together."""
        self._buffer.received(nbytes)
        held = self._held = []
        try:
            self._take_frames()
        except DecodeError as broken:
            log.error("a link broke the protocol and is closed: %s", broken)
            self._broken = str(broken)
            self.abort()
        finally:
            self._held = None
        if held:
            self.send(held)

    def _take_frames(self) -> None:
        if not self._handshake.done and self._buffer.peek_length() > GREETING_BYTES_MAX:
            raise DecodeError("a long frame from a peer that has proved nothing")
        for head, payload in take_frames(self._buffer):
            if self._handshake.done:
                self.took(head, payload)
            else:
                self._greet(head)

    def send(self, chunks: list[Buffer]) -> None:
        """Send frames; ignored if the peer is gone."""
        assert self.transport is not None
        if self._held is not None:
            self._held += chunks
        elif not self.transport.is_closing():
            self.transport.writelines(chunks)

    def _greet(self, head: list[Any]) -> None:
        answer = self._handshake.took(head)
        if answer is not None:
            self.send(frame(answer))
        if self._handshake.done:
            self._end_timeout()
            self.greeted()

    def _end_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()

    @abstractmethod
    def greeted(self) -> None:
        """Called when the peer can be trusted."""

    @abstractmethod
    def took(self, head: list[Any], payload: memoryview) -> None:
        """Handle one frame."""

    def abort(self) -> None:
        """Close the link immediately."""
        if self.transport is not None:
            self.transport.abort()


class StreamRequest:
    """A link request that came over a socket. Only the first answer is sent."""

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
        self._link: _FrameProtocol | None = link

    def reply(self, header: Any, payload: Sequence[Buffer] = ()) -> None:
        """Answer the requester; ignored if it is gone."""
        if self._link is None:
            return
        try:
            answer = frame([self._id, _ANSWER, header], payload)
        except EncodeError:
            log.exception("the answer to %s cannot be written", self.kind)
            self.fail(UnknownServerError(f"the answer to {self.kind} cannot be written"))
            return
        link, self._link = self._link, None
        link.send(answer)

    def fail(self, failure: KafkaError) -> None:
        """Answer with an error."""
        link, self._link = self._link, None
        if link is not None:
            link.send(frame([self._id, int(failure.code), str(failure)]))


class ServingLink(_FrameProtocol):
    """The accepting end: passes requests to the actor in the order of their arrival."""

    def __init__(
        self, secrets: LinkSecrets, instance: str, actor: Actor, links: set[ServingLink]
    ) -> None:
        super().__init__(Handshake(secrets, SERVING, instance))
        self._actor = actor
        self._links = links
        self._number = next(LINK_NUMBERS)

    def greeted(self) -> None:
        """Add the link to the live ones."""
        self._links.add(self)

    def took(self, head: list[Any], payload: memoryview) -> None:
        """Pass one request to the actor."""
        request = StreamRequest(self._number, self, head[0], head[1], head[2], payload)
        hand_over(self._actor, request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the link, and tell the actor."""
        self._end_timeout()
        if self in self._links:
            self._links.discard(self)
            self._actor.link_lost(self._number)


class StreamLink(_FrameProtocol):
    """The requesting end of a link."""

    def __init__(self, secrets: LinkSecrets, instance: str) -> None:
        super().__init__(Handshake(secrets, CONNECTING, instance))
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[ReplyHandler, FailureHandler]] = {}
        self._on_lost: list[Callable[[], None]] = []
        self._lost = False
        self._closed = False
        """Whether this end has closed it."""

    def require(self, instance: str) -> None:
        """Close the link and raise PeerLost if the peer is another process; "" accepts any."""
        found = self._handshake.peer_instance
        if instance and found != instance:
            self.abort()
            raise PeerLost(f"expected the actor process {instance} there, found {found}")

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return not self._lost and self.transport is not None and not self.transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Bytes accepted but not yet handed to the operating system."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def greeted(self) -> None:
        """Mark the link as usable."""
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
        try:
            asked = frame([number, kind, header], payload)
        except EncodeError as failure:
            log.exception("a request cannot be written: %s", kind)
            failed(UnknownServerError(str(failure)))
            return
        self._waiting[number] = (answered, failed)
        self.send(asked)

    ask = ask_over

    def took(self, head: list[Any], payload: memoryview) -> None:
        """Pass an answer to its callback."""
        waiting = self._waiting.pop(head[0], None)
        if waiting is None:
            raise DecodeError(f"an answer to request {head[0]}, which was not sent")
        answered, failed = waiting
        if head[1] == _ANSWER:
            tell(answered, head[2], payload)
        else:
            tell(failed, error_of(head[1], str(head[2])))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail waiting requests and run the callbacks."""
        self._end_timeout()
        self._lost = True
        if not self._closed and self._handshake.done:
            log.info(
                "the link to %s is lost: %s; %d requests fail with it",
                self._handshake.peer_instance,
                self._broken or exc or "the peer closed it",
                len(self._waiting),
            )
        if not self.ready.done():
            why = self._broken or "the peer closed the link before greeting"
            self.ready.set_exception(PeerLost(why))
        waiting, self._waiting = self._waiting, {}
        for _, failed in waiting.values():
            tell(failed, PeerLost("the peer is gone"))
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
        """Close the link; unanswered requests fail with PeerLost."""
        self._closed = True
        self.abort()


async def serve_links(
    address: str, secrets: LinkSecrets, instance: str, actor: Actor, links: set[ServingLink]
) -> asyncio.Server:
    """Accept links at an address of one kind; port 0 takes any free port."""
    endpoint = endpoint_of(address)
    if isinstance(endpoint, str):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(endpoint)
    else:
        listener = socket.create_server(endpoint, family=_family(endpoint[0]))

    def link() -> ServingLink:
        return ServingLink(secrets, instance, actor, links)

    loop = asyncio.get_running_loop()
    if isinstance(endpoint, str):
        return await loop.create_unix_server(link, sock=listener)
    return await loop.create_server(link, sock=listener)


async def connect_link(
    address: str, secrets: LinkSecrets, instance: str, timeout_s: float
) -> StreamLink:
    """Open a link; raises PeerLost if nobody with the secret answers there."""
    try:
        endpoint = endpoint_of(address)
    except ValueError as unreachable:
        raise PeerLost(str(unreachable)) from unreachable
    is_unix = isinstance(endpoint, str)
    try:
        connection = socket.socket(socket.AF_UNIX if is_unix else _family(endpoint[0]))
    except OSError as failure:  # for example because no descriptor is left
        raise PeerLost(f"no socket to {address}: {failure}") from failure
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    create = loop.create_unix_connection if is_unix else loop.create_connection
    try:
        async with asyncio.timeout(timeout_s):
            await loop.sock_connect(connection, endpoint)  # uvloop does not dial abstract names
            _, link = await create(lambda: StreamLink(secrets, instance), sock=connection)
            await link.ready
            link.require(instance_of(address))
    except (OSError, TimeoutError) as failure:
        connection.close()
        raise PeerLost(f"nobody answers at {address}: {failure}") from failure
    return link


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _notice_silence(connection: socket.socket) -> None:
    """Let a TCP connection break when the other machine disappears silently."""
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        for option, value in (
            (socket.TCP_USER_TIMEOUT, SILENCE_MS_MAX),
            (socket.TCP_KEEPIDLE, SILENCE_MS_MAX // 4000),
            (socket.TCP_KEEPINTVL, SILENCE_MS_MAX // 4000),
            (socket.TCP_KEEPCNT, 3),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
