"""One client connection: frames in, handlers called, answers out in the order of the requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from raylog.actors.gateway.refused_sequences import RefusedSequences
from raylog.actors.runtime.base import Buffer
from raylog.actors.runtime.frames import ReceiveBuffer
from raylog.wire.errors import DecodeError

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor

log = logging.getLogger(__name__)
CHUNK_BYTES = 256 << 10
PIPELINED_MAX = 1000
PIPELINED_BYTES_MAX = 64 << 20


class Slot:
    """The place of one answer in the order of a connection's answers."""

    __slots__ = ("_connection", "answer", "size")

    def __init__(self, connection: ClientConnection, size: int) -> None:
        self._connection = connection
        self.size = size
        """Bytes of the request."""
        self.answer: Sequence[Buffer] | None = None

    def fill(self, answer: Sequence[Buffer]) -> None:
        """Give the answer; empty for a request that gets none (acks=0)."""
        assert self.answer is None
        self.answer = answer
        self._connection.filled(self)


class ClientConnection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket.

    Reading pauses while the client leaves answers unread or has too much unanswered.
    """

    def __init__(self, gateway: GatewayActor, request_bytes_max: int) -> None:
        self._gateway = gateway
        self._request_bytes_max = request_bytes_max
        self._buffer = ReceiveBuffer(CHUNK_BYTES)
        self._slots: deque[Slot] = deque()
        self._pending_bytes = 0
        self._paused_by_writes = False
        self._paused = False
        self._finished = False
        self._transport: asyncio.Transport | None = None
        self._reads = 0
        self.refused_sequences = RefusedSequences()
        self.peer = ""
        self.host = ""
        """The client's address alone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection unless there are too many."""
        stream = cast(asyncio.Transport, transport)  # uvloop's transports inherit nothing
        self._transport = stream
        name = stream.get_extra_info("peername")
        self.peer = str(name)
        self.host = str(name[0]) if isinstance(name, tuple) else self.peer
        stream.set_write_buffer_limits(high=4 << 20)
        if not self._gateway.connected(self):
            stream.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; answers that come later go nowhere."""
        self._slots.clear()
        self._buffer = ReceiveBuffer(0)  # collected late where answers are still on their way
        self._gateway.disconnected(self)

    @property
    def is_closing(self) -> bool:
        """Whether answers can no longer be sent."""
        return self._transport is None or self._transport.is_closing()

    @property
    def activity(self) -> tuple[int, int]:
        """Another value after anything was received, or taken by the client, since the last."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._reads, unsent

    @property
    def waits_for_answer(self) -> bool:
        """Whether a request is not answered yet."""
        return bool(self._slots)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for what comes in."""
        return self._buffer.writable(4 + max(0, self._buffer.peek_length()))

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every request that is whole."""
        buffer = self._buffer
        buffer.received(nbytes)
        self._reads += 1
        try:
            while (length := buffer.peek_length()) >= 0 and not self.is_closing:
                if length > self._request_bytes_max:
                    self._too_large(length)
                    break
                if buffer.unread < 4 + length:
                    break
                self._take(buffer.take(4 + length)[4:])
        except DecodeError as failure:
            self.give_up(str(failure))
        self._regulate()

    def _too_large(self, length: int) -> None:
        self.give_up(
            f"a request of {length} bytes: at most {self._request_bytes_max} are allowed "
            "(socket.request.max.bytes)"
        )

    def _take(self, request: memoryview) -> None:
        slot = Slot(self, len(request))
        self._slots.append(slot)
        self._pending_bytes += slot.size
        self._gateway.requested(self, slot, request)

    def filled(self, slot: Slot) -> None:
        """Send this answer and those behind it, as far as they are whole."""
        slots = self._slots
        if not slots or slots[0] is not slot or self._transport is None:
            return
        out: list[Buffer] = []
        while slots and slots[0].answer is not None:
            done = slots.popleft()
            assert done.answer is not None
            self._pending_bytes -= done.size
            out.extend(done.answer)
        if out and not self._transport.is_closing():
            self._transport.writelines(out)
        if self._finished and not slots:
            self._transport.close()
        if self._paused:
            self._regulate()

    def eof_received(self) -> bool:
        """The client sends no more: it still gets its answers, then the connection closes."""
        self._finished = True
        return bool(self._slots)

    def pause_writing(self) -> None:
        """The client does not read: take no more requests of it."""
        self._paused_by_writes = True
        self._regulate()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._paused_by_writes = False
        self._regulate()

    def _regulate(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        pause = (
            self._paused_by_writes
            or len(self._slots) > PIPELINED_MAX
            or self._pending_bytes > PIPELINED_BYTES_MAX
        )
        if pause != self._paused:
            self._paused = pause
            (self._transport.pause_reading if pause else self._transport.resume_reading)()

    def give_up(self, why: str) -> None:
        """Close on a client that broke the protocol or cannot be answered."""
        log.info("closing the connection of %s: %s", self.peer, why)
        self.close()

    def close(self) -> None:
        """Close, what is written already still goes out."""
        if self._transport is not None:
            self._transport.close()
