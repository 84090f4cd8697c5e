"""A client connection: receives requests, calls handlers, sends responses in request order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from raylog.actors.gateway.counts import NOT_COUNTED
from raylog.actors.gateway.memory import owned_bytes
from raylog.actors.gateway.rules.refused_sequences import RefusedSequences
from raylog.actors.runtime.base import Buffer
from raylog.actors.runtime.frames import ReceiveBuffer
from raylog.wire.api import USUAL_BYTES_MAX, limit_of
from raylog.wire.errors import DecodeError

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor
    from raylog.actors.gateway.telemetry.instance import ClientInstance

log = logging.getLogger(__name__)
CHUNK_BYTES = 256 << 10
PIPELINED_MAX = 1000
BEGUN_MAX = 5
"""Maximum requests of a connection handled at once, not counting Produce and those that wait."""
TURN_MS = 5
"""How long requests of one connection are handled before other connections get a turn."""
PIPELINED_BYTES_MAX = 64 << 20
SMALL_UNSENT_BYTES = 64 << 10
"""Unread response bytes below which a client is not considered slow."""
UNSENT_BYTES_MAX = 4 << 20
"""Unread response bytes above which no more requests of the client are handled."""
READ_BYTES_WHEN_FULL = 4 << 10
"""Maximum bytes that a connection reads at once while there is no memory."""
API_KEY_BYTES = 2
UNKNOWN_SOFTWARE = ("unknown", "unknown")
WAITING_MAX = 8
"""Maximum requests of a connection that may wait for something; Apache Kafka allows one."""


class Slot:
    """The place of one response in the order of a connection's responses.

    It ends with `fill`, or with `drop` if there will be no response.
    """

    __slots__ = (
        "_connection",
        "_left",
        "answer",
        "api_counts",
        "begun_s",
        "counts",
        "filled_s",
        "is_begun",
        "left_s",
        "on_settled",
        "size",
        "taken_s",
    )

    def __init__(self, connection: ClientConnection, size: int, taken_s: float) -> None:
        self._connection = connection
        self.taken_s = self.begun_s = taken_s
        """The times at which the request was taken from the connection and its handler began, by
        `Runtime.clock`.

        The handler of a small request begins right after decoding, which counts as its work.
        """
        self.left_s = 0.0
        """The time at which the handler returned without a response; 0 if it did not."""
        self.filled_s: float
        """The time at which the response was ready, if it waits for earlier ones."""
        self.api_counts = NOT_COUNTED
        """The counts for its times, set when its handler begins."""
        self.size = size
        """Bytes of memory that it holds: those of the request, then those of the waiting
        response."""
        self.counts = True
        """Whether these bytes count for the process; for the connection they always do."""
        self.is_begun = False
        """Whether the request counts towards `BEGUN_MAX`."""
        self.answer: Sequence[Buffer] | None = None
        self.on_settled: Callable[[], None] | None = None
        """Called when the request is answered, dropped, or starts to wait."""
        self._left: Callable[[], None] | None = None

    def wait(self, left: Callable[[], None]) -> None:
        """Start to wait, for as long as the client has asked for.

        No other request depends on it, so it does not count towards the memory of the process, as
        in Apache Kafka. `left` is called if the client disconnects before the response.
        """
        self._left = left
        self._connection.waits(self)
        self._settle()

    def leave(self) -> None:
        """Tell a waiting request that its client has disconnected."""
        if self._left is not None:
            self._left()

    def fill(self, answer: Sequence[Buffer]) -> None:
        """Set the response; empty for a request that gets none (acks=0)."""
        assert self.answer is None
        self.answer = answer
        self._left = None
        self._connection.filled(self)
        if self.on_settled is not None:
            self._settle()

    def drop(self) -> None:
        """Give up the response: the connection is closed, or will be."""
        self._connection.resize(self, 0)
        self._settle()

    def _settle(self) -> None:
        if self.on_settled is not None:
            settled, self.on_settled = self.on_settled, None
            settled()

    def grow(self, count: int) -> None:
        """Record that the request holds this many more bytes."""
        self._connection.resize(self, self.size + count)


class ClientConnection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket.

    Reading pauses while the client leaves responses unread or has too many unanswered requests,
    while a large request of the client starts, and while the process has no memory for requests.
    """

    def __init__(self, gateway: GatewayActor, request_bytes_max: int, listener: str) -> None:
        self._gateway = gateway
        self.listener = listener
        """The name of the listener that the client uses."""
        self._memory = gateway.memory
        self._counts = gateway.counts
        self._clock = gateway.runtime.clock
        self._request_bytes_max = request_bytes_max
        self._usual_bytes_max = min(request_bytes_max, USUAL_BYTES_MAX)
        self._buffer = ReceiveBuffer(CHUNK_BYTES)
        self._slots: deque[Slot] = deque()
        self._pending_bytes = 0
        """Bytes of all slots."""
        self._begun = 0
        """The number of slots that count towards `BEGUN_MAX`."""
        self._waiting = 0
        """The number of slots of requests that wait for something."""
        self._unsent = False
        """Whether the operating system has not accepted all responses."""
        self._unsent_owned = 0
        """Bytes of memory held for responses since then."""
        self._too_much_unsent = False
        self._held = 0
        self._taking = False
        self._paused = False
        self._finished = False
        self._transport: asyncio.Transport | None = None
        self._reads = 0
        self.requests = 0
        """The number of requests taken so far."""
        self.refused_sequences = RefusedSequences()
        self.peer = ""
        self.host = ""
        """The client's address without the port."""
        self.port = 0
        self.software = UNKNOWN_SOFTWARE
        """Name and version of the client's software, once known (KIP-511)."""
        self.telemetry: ClientInstance | None = None
        """The client instance that pushes metrics on this connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection unless there are too many."""
        stream = cast(asyncio.Transport, transport)  # uvloop's transports have no base class
        self._transport = stream
        name = stream.get_extra_info("peername")
        self.peer = str(name)
        if isinstance(name, tuple):
            self.host, self.port = str(name[0]), int(name[1])
        else:
            self.host = self.peer
        stream.set_write_buffer_limits(high=SMALL_UNSENT_BYTES, low=0)
        if not self._gateway.connected(self):
            stream.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection; later responses are dropped.

        Requests that are being handled hold their memory until they are done. Requests that wait
        end now.
        """
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.answer is not None:
                self.resize(slot, 0)
        self._memory.free(self._buffer.unread)
        self._sent()
        self._buffer = ReceiveBuffer(0)  # responses in progress keep it alive
        self._memory.forget(self)
        self._gateway.disconnected(self)
        for slot in slots:
            slot.leave()

    @property
    def is_closing(self) -> bool:
        """Whether responses can no longer be sent."""
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Response bytes that the client has not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def activity(self) -> tuple[int, int]:
        """A value that changes whenever anything is received, or read by the client."""
        return self._reads, self.unsent_bytes

    @property
    def is_ending(self) -> bool:
        """Whether no more requests will come: the client has finished, or the connection closes."""
        return self._finished or self.is_closing

    @property
    def waits_for_answer(self) -> bool:
        """Whether a request is unanswered and its client may still send."""
        return bool(self._slots) and not self.is_ending

    @property
    def has_part(self) -> bool:
        """Whether the beginning of a request has arrived."""
        return self._buffer.unread > 0

    @property
    def part_bytes(self) -> int:
        """How many bytes of an unfinished request have arrived."""
        return self._buffer.unread

    @property
    def in_flight(self) -> tuple[int, int]:
        """The number of unanswered requests, and how many of these wait for something."""
        return len(self._slots), self._waiting

    @property
    def is_paused(self) -> bool:
        """Whether reading from the client is paused."""
        return self._paused

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a buffer for incoming data."""
        room = self._buffer.writable(4 + max(0, self._buffer.peek_length()))
        memory = self._memory
        if memory.held >= memory.bytes_max and not memory.is_finishing(self):
            return room[:READ_BYTES_WHEN_FULL]
        return room

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every complete request."""
        self._buffer.received(nbytes)
        self._memory.held += nbytes
        self._counts.bytes_in += nbytes
        self._reads += 1
        self._take_whole()

    def _take_whole(self) -> None:
        """Take the complete requests, unless they must wait for earlier ones."""
        buffer = self._buffer
        now_s = self._clock()
        turn_ends_s = now_s + TURN_MS / 1000
        is_first = True
        self._taking = True
        try:
            while (length := buffer.peek_length()) >= 0 and not self._must_wait():
                if length > self._usual_bytes_max and self._is_too_large(length):
                    break
                if buffer.unread < 4 + length:
                    break
                if not is_first and (now_s := self._clock()) >= turn_ends_s:
                    self._go_on_later()
                    break
                is_first = False
                self._take(buffer.take(4 + length), now_s)
        except DecodeError as failure:
            self.give_up(str(failure))
        finally:
            self._taking = False
        self._regulate()

    def _go_on_later(self) -> None:
        """Yield to others. Only one such connection, or large request, continues at a time."""
        self.hold()
        self._gateway.runtime.start(self._next_turn(), "the next turn of a connection")

    async def _next_turn(self) -> None:
        gateway = self._gateway
        async with gateway.turn:
            await gateway.runtime.sleep(0)
            self.release()

    def _is_too_large(self, length: int) -> bool:
        """Close the connection if the size field says that its next request is too large."""
        if length > self._request_bytes_max:
            self.give_up(
                f"a request of {length} bytes: at most {self._request_bytes_max} are allowed "
                "(socket.request.max.bytes)"
            )
            return True
        start = self._buffer.peek(4 + API_KEY_BYTES)
        if start is None:
            return False
        api_key = int.from_bytes(start[4:], "big", signed=True)
        bytes_max = limit_of(api_key).bytes_max
        if length > bytes_max:
            self.give_up(f"a request {api_key} of {length} bytes: at most {bytes_max} are allowed")
            return True
        return False

    def _take(self, frame: memoryview, now_s: float) -> None:
        size = len(frame)
        slot = Slot(self, size, now_s)
        if size < 4 + API_KEY_BYTES or frame[4] or frame[5]:  # not Produce, whose key is 0
            slot.is_begun = True
            self._begun += 1
        self._slots.append(slot)
        self._pending_bytes += size
        self.requests += 1
        try:
            self._gateway.requested(self, slot, frame[4:])
        except DecodeError:
            slot.drop()
            raise

    def resize(self, slot: Slot, size: int) -> None:
        """Update how much memory is held for a slot."""
        less = slot.size - size
        slot.size = size
        self._pending_bytes -= less
        if slot.counts:
            self._memory.free(less)

    def _settled(self, slot: Slot) -> None:
        slot.is_begun = False
        self._begun -= 1

    def waits(self, slot: Slot) -> None:
        """Note that a request starts to wait."""
        if slot.is_begun:
            self._settled(slot)
        self._waiting += 1
        slot.counts = False
        self._memory.free(slot.size)

    def filled(self, slot: Slot) -> None:
        """Send this response and the complete ones after it."""
        slots = self._slots
        now_s = self._clock()
        if slot.is_begun:
            self._settled(slot)
        if not slot.counts:
            self._waiting -= 1
            slot.counts = True
            self._memory.held += slot.size
        assert slot.answer is not None
        if not slots or slots[0] is not slot or self._transport is None:
            slot.filled_s = now_s
            self.resize(slot, owned_bytes(slot.answer) if slots else 0)
            if self._paused:
                self._regulate()
            return
        slots.popleft()
        out = slot.answer
        freed, slot.size = slot.size, 0
        slot.api_counts.answered(slot, now_s)
        if slots and slots[0].answer is not None:
            out = [*out]
            freed += self._take_filled(out)
        self._pending_bytes -= freed
        if out and not self._transport.is_closing():
            self._transport.writelines(out)
            self._counts.bytes_out += len(out[0]) if len(out) == 1 else sum(map(len, out))
            if self._unsent:
                self._leaves_unread(out)
        if self._finished and not slots:
            self._transport.close()
        self._memory.free(freed)
        if self._paused:
            self._regulate()

    def _take_filled(self, out: list[Buffer]) -> int:
        """Take the next responses, which waited for this one; return the memory that they held."""
        slots = self._slots
        now_s = self._clock()
        freed = 0
        while slots and (answer := slots[0].answer) is not None:
            done = slots.popleft()
            freed += done.size
            done.size = 0
            out.extend(answer)
            done.api_counts.waited(done, done.filled_s, now_s)
        return freed

    # ---- what the client does not read ----------------------------------------------------

    def pause_writing(self) -> None:
        """Called when the operating system has not accepted everything: the client is too slow."""
        self._unsent = True
        self._too_much_unsent = self.unsent_bytes > UNSENT_BYTES_MAX
        self._regulate()

    def resume_writing(self) -> None:
        """Called when everything has been sent."""
        self._unsent = self._too_much_unsent = False
        self._sent()
        self._regulate()

    def _leaves_unread(self, answer: Sequence[Buffer]) -> None:
        owned = owned_bytes(answer)
        self._unsent_owned += owned
        self._memory.held += owned
        self._too_much_unsent = self.unsent_bytes > UNSENT_BYTES_MAX
        self._regulate()

    def _sent(self) -> None:
        owned, self._unsent_owned = self._unsent_owned, 0
        self._memory.free(owned)

    # ---- when to read ---------------------------------------------------------------------

    def hold(self) -> None:
        """Take no further requests until `release`, so that none overtakes a long request."""
        self._held += 1

    def release(self) -> None:
        """Take requests again: the long request has started."""
        self._held -= 1
        self._regulate()

    def read_on(self) -> None:
        """Read again, since there is memory."""
        self._regulate()

    def eof_received(self) -> bool:
        """Called when the client sends no more. It gets its responses, then the socket closes."""
        self._finished = True
        return bool(self._slots)

    def _must_wait(self) -> bool:
        """Whether requests that have arrived must wait."""
        return (
            self._held > 0
            or self._too_much_unsent
            or self._begun >= BEGUN_MAX
            or len(self._slots) > PIPELINED_MAX
            or self._waiting >= WAITING_MAX
            or self._pending_bytes > PIPELINED_BYTES_MAX
            or self._transport is None
            or self._transport.is_closing()
        )

    def _regulate(self) -> None:
        """Start or stop reading, as the state requires."""
        if self._taking or self._transport is None or self._transport.is_closing():
            return
        memory = self._memory
        has_memory = memory.held < memory.bytes_max or memory.may_read(self)
        pause = not has_memory or self._must_wait()
        if pause != self._paused:
            self._paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
                self._take_whole()

    def give_up(self, why: str) -> None:
        """Close the connection of a client that broke the protocol or cannot be answered."""
        log.info("closing the connection of %s: %s", self.peer, why)
        self._counts.closed["protocol"] += 1
        self.close()

    def rests(self) -> None:
        """Release the receive buffer, after a quiet period."""
        self._buffer.release()

    def cut_off(self, why: str) -> None:
        """Abort, because a client that does not read would keep a closing connection open."""
        log.info("cutting off %s: %s", self.peer, why)
        self._counts.closed["silent"] += 1
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection; data that was already written is still sent."""
        if self._transport is not None:
            self._transport.close()
