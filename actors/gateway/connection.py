"""One client connection: frames in, handlers called, answers out in the order of the requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from raylog.actors.gateway.counts import NOT_COUNTED
from raylog.actors.gateway.memory import owned_bytes
from raylog.actors.gateway.refused_sequences import RefusedSequences
from raylog.actors.runtime.base import Buffer
from raylog.actors.runtime.frames import ReceiveBuffer
from raylog.wire.errors import DecodeError
from raylog.wire.limits import USUAL_BYTES_MAX, limit_of

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor
    from raylog.actors.gateway.telemetry.instance import ClientInstance

log = logging.getLogger(__name__)
CHUNK_BYTES = 256 << 10
PIPELINED_MAX = 1000
BEGUN_MAX = 5
"""Requests of a connection that are handled at once, beside Produce and those that wait."""
TURN_MS = 5
"""For so long requests of one connection are handled before others have their turn."""
PIPELINED_BYTES_MAX = 64 << 20
SMALL_UNSENT_BYTES = 64 << 10
"""So much of its answers a client may leave unread without being noticed."""
UNSENT_BYTES_MAX = 4 << 20
"""So much of its answers a client may leave unread before no more requests of it are taken."""
READ_BYTES_WHEN_FULL = 4 << 10
"""What a connection reads at once while there is no memory: it learns of that afterwards."""
API_KEY_BYTES = 2
UNKNOWN_SOFTWARE = ("unknown", "unknown")
WAITING_MAX = 8
"""Requests of a connection that wait for something to come; Apache Kafka takes one at a time."""


class Slot:
    """The place of one answer in the order of a connection's answers.

    It ends by `fill`, or by `drop` where there will be no answer.
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
        """When it was taken from the connection, and its handler began, by `Runtime.clock`.

        The handler of a small request begins as soon as that is decoded, which counts as its work.
        """
        self.left_s = 0.0
        """When the handler was left without an answer, which comes later; 0: it was not."""
        self.filled_s: float
        """When the answer was there, if it waits for earlier ones."""
        self.api_counts = NOT_COUNTED
        """Where its times are counted, from the moment when its handler begins."""
        self.size = size
        """Bytes of memory that are held for it: the request, then the answer while it waits."""
        self.counts = True
        """Whether that counts for the process; for the connection it always does."""
        self.is_begun = False
        """Whether it counts for `BEGUN_MAX`."""
        self.answer: Sequence[Buffer] | None = None
        self.on_settled: Callable[[], None] | None = None
        """Called when the request is answered, dropped, or waits until something comes."""
        self._left: Callable[[], None] | None = None

    def wait(self, left: Callable[[], None]) -> None:
        """The request waits until something comes, for as long as its client has asked for.

        Others need not wait for that, so the memory of the process is free meanwhile, as in Apache
        Kafka. `left` is called if the client is gone before the answer.
        """
        self._left = left
        self._connection.waits(self)
        self._settle()

    def leave(self) -> None:
        """The client is gone: nobody waits any more."""
        if self._left is not None:
            self._left()

    def fill(self, answer: Sequence[Buffer]) -> None:
        """Give the answer; empty for a request that gets none (acks=0)."""
        assert self.answer is None
        self.answer = answer
        self._left = None
        self._connection.filled(self)
        if self.on_settled is not None:
            self._settle()

    def drop(self) -> None:
        """Nobody will answer: the connection is to be closed, or closed already."""
        self._connection.resize(self, 0)
        self._settle()

    def _settle(self) -> None:
        if self.on_settled is not None:
            settled, self.on_settled = self.on_settled, None
            settled()

    def grow(self, count: int) -> None:
        """Note that the request takes so many bytes more than it came with."""
        self._connection.resize(self, self.size + count)


class ClientConnection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket.

    Reading pauses while the client leaves answers unread or has too much unanswered, while a
    large request of it is being begun, and while the process has no memory for requests.
    """

    def __init__(self, gateway: GatewayActor, request_bytes_max: int, listener: str) -> None:
        self._gateway = gateway
        self.listener = listener
        """The name of the listener that the client came on."""
        self._memory = gateway.memory
        self._counts = gateway.counts
        self._clock = gateway.runtime.clock
        self._request_bytes_max = request_bytes_max
        self._usual_bytes_max = min(request_bytes_max, USUAL_BYTES_MAX)
        self._buffer = ReceiveBuffer(CHUNK_BYTES)
        self._slots: deque[Slot] = deque()
        self._pending_bytes = 0
        """Of all slots."""
        self._begun = 0
        """Slots that count for `BEGUN_MAX`."""
        self._waiting = 0
        """Slots of requests that wait until something comes."""
        self._unsent = False
        """Whether the system has not taken all answers."""
        self._unsent_owned = 0
        """Bytes of memory held for answers since it did."""
        self._too_much_unsent = False
        self._held = 0
        self._taking = False
        self._paused = False
        self._finished = False
        self._transport: asyncio.Transport | None = None
        self._reads = 0
        self.requests = 0
        """Taken so far."""
        self.refused_sequences = RefusedSequences()
        self.peer = ""
        self.host = ""
        """The client's address alone."""
        self.port = 0
        self.software = UNKNOWN_SOFTWARE
        """Name and version of the client's software, once it has told them (KIP-511)."""
        self.telemetry: ClientInstance | None = None
        """State of the client instance that pushes metrics on this connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection unless there are too many."""
        stream = cast(asyncio.Transport, transport)  # uvloop's transports inherit nothing
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
        """Forget the connection; answers that come later go nowhere.

        Requests that are still being handled hold their memory until they are done; those that
        only wait end.
        """
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.answer is not None:
                self.resize(slot, 0)
        self._memory.free(self._buffer.unread)
        self._sent()
        self._buffer = ReceiveBuffer(0)  # collected late where answers are still on their way
        self._memory.forget(self)
        self._gateway.disconnected(self)
        for slot in slots:
            slot.leave()

    @property
    def is_closing(self) -> bool:
        """Whether answers can no longer be sent."""
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def activity(self) -> tuple[int, int]:
        """Another value after anything was received, or taken by the client, since the last."""
        return self._reads, self.unsent_bytes

    @property
    def is_ending(self) -> bool:
        """Whether no more requests come: the client has said so, or the connection closes."""
        return self._finished or self.is_closing

    @property
    def waits_for_answer(self) -> bool:
        """Whether a request is not answered yet, of a client that may still speak."""
        return bool(self._slots) and not self.is_ending

    @property
    def has_part(self) -> bool:
        """Whether the beginning of a request is here."""
        return self._buffer.unread > 0

    @property
    def part_bytes(self) -> int:
        """How much of a request is here that is not whole."""
        return self._buffer.unread

    @property
    def in_flight(self) -> tuple[int, int]:
        """Requests that are not answered, and how many of them wait until something comes."""
        return len(self._slots), self._waiting

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read from the client, whatever it sends."""
        return self._paused

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for what comes in."""
        room = self._buffer.writable(4 + max(0, self._buffer.peek_length()))
        memory = self._memory
        if memory.held >= memory.bytes_max and not memory.is_finishing(self):
            return room[:READ_BYTES_WHEN_FULL]
        return room

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every request that is whole."""
        self._buffer.received(nbytes)
        self._memory.held += nbytes
        self._counts.bytes_in += nbytes
        self._reads += 1
        self._take_whole()

    def _take_whole(self) -> None:
        """Take the requests that are whole, unless they must wait for those before them."""
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
        """Let others have their turn. As with large requests one connection goes on at a time."""
        self.hold()
        self._gateway.runtime.start(self._next_turn(), "the next turn of a connection")

    async def _next_turn(self) -> None:
        gateway = self._gateway
        async with gateway.turn:
            await gateway.runtime.sleep(0)
            self.release()

    def _is_too_large(self, length: int) -> bool:
        """Whether a request of that length is refused, which its first bytes tell."""
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
        if size < 4 + API_KEY_BYTES or frame[4] or frame[5]:  # another API than Produce, which is 0
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
        """Note how much memory is held for a slot from now on."""
        less = slot.size - size
        slot.size = size
        self._pending_bytes -= less
        if slot.counts:
            self._memory.free(less)

    def _settled(self, slot: Slot) -> None:
        slot.is_begun = False
        self._begun -= 1

    def waits(self, slot: Slot) -> None:
        """Note that a request waits until something comes."""
        if slot.is_begun:
            self._settled(slot)
        self._waiting += 1
        slot.counts = False
        self._memory.free(slot.size)

    def filled(self, slot: Slot) -> None:
        """Send this answer and those behind it, as far as they are whole."""
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
        """Take the next answers, which waited for the one before; the memory that they held."""
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
        """The system does not take all that was written: the client does not keep up."""
        self._unsent = True
        self._too_much_unsent = self.unsent_bytes > UNSENT_BYTES_MAX
        self._regulate()

    def resume_writing(self) -> None:
        """All is sent."""
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
        """Take no further request until `release`: one that takes long keeps its place."""
        self._held += 1

    def release(self) -> None:
        """The request that was waited for has been begun."""
        self._held -= 1
        self._regulate()

    def read_on(self) -> None:
        """There is memory again."""
        self._regulate()

    def eof_received(self) -> bool:
        """The client sends no more: it still gets its answers, then the connection closes."""
        self._finished = True
        return bool(self._slots)

    def _must_wait(self) -> bool:
        """Whether requests that are here already have to wait."""
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
        """Read, or stop reading, as it is right by now."""
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
        """Close on a client that broke the protocol or cannot be answered."""
        log.info("closing the connection of %s: %s", self.peer, why)
        self._counts.closed["protocol"] += 1
        self.close()

    def rests(self) -> None:
        """Nothing has come for a while: no memory is kept for what may come."""
        self._buffer.release()

    def cut_off(self, why: str) -> None:
        """End at once: a client that does not read would keep a closing connection for ever."""
        log.info("cutting off %s: %s", self.peer, why)
        self._counts.closed["silent"] += 1
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close, what is written already still goes out."""
        if self._transport is not None:
            self._transport.close()
