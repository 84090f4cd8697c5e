"""The link protocol: length-prefixed frames with a msgpack head and a raw payload.

| field       | bytes | meaning                                                       |
|-------------|-------|---------------------------------------------------------------|
| length      | 4     | of everything behind this field                               |
| head length | 4     | of the head                                                   |
| head        | n     | msgpack: a request `[id, kind, header]`, an answer            |
|             |       | `[id, 0, header]` or a failure `[id, error code, message]`    |
| payload     | rest  | raw bytes                                                     |

A link begins with the frames of `handshake`. Nothing is ever unpickled. This module is sans-I/O:
bytes in, frames out.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack

from raylog.wire.errors import DecodeError, EncodeError

LINK_VERSION = 3
"""The newest that this build speaks. Fields that requests and answers gain at their end, with a
default, do not raise it (`actors.plain`)."""
LINK_VERSION_MIN = 3
"""The oldest. Two ends speak the newest that both know."""
FRAME_BYTES_MAX = 256 << 20
CHUNK_BYTES = 512 << 10
FIRST_CHUNK_BYTES = 8 << 10
"""Memory of a connection that has not sent anything yet, or little by little."""

FEW_READS = 4
"""Chunks double where as few reads fill them: much comes at a time."""

MAPPED_BYTES = 1 << 20
"""Chunks from here on are mapped: what is not filled yet takes no memory, as zeros would."""

PROMISED_BYTES_MAX = 4 << 20
"""Room that is made for a frame by its length alone; the rest when so much of it is there."""

_LENGTHS = struct.Struct(">II")
_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack

Buffer = bytes | bytearray | memoryview
Frame = tuple[list[Any], memoryview]


def frame(head: list[Any], payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """The buffers of one frame, ready for `writelines`; the payload is not copied.

    Raises EncodeError for a head that msgpack cannot write, and a frame that is too long.
    """
    try:
        packed: bytes = _pack(head)
    except (TypeError, ValueError, OverflowError) as failure:
        raise EncodeError(f"a link head that cannot be written: {failure}") from failure
    size = len(packed)
    total = 4 + size
    for part in payload:
        total += len(part)
    if total > FRAME_BYTES_MAX:
        raise EncodeError(f"a link frame of {total} bytes: at most {FRAME_BYTES_MAX} are allowed")
    return [_LENGTHS.pack(total, size) + packed, *payload]


class ReceiveBuffer:
    """Memory that the transport fills and whose filled parts are handed away.

    Parts that were handed out stay valid for as long as somebody holds them: a chunk is never
    filled twice. So a payload may be kept, changed and passed on without a copy. It keeps its whole
    chunk, so chunks are small where little comes at a time.
    """

    __slots__ = ("_chunk", "_chunk_bytes", "_end", "_reads", "_start", "_usual", "_view")

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._usual = min(chunk_bytes, FIRST_CHUNK_BYTES)
        """Size of the next chunk, where no frame needs more."""
        self._chunk: bytearray | mmap.mmap = bytearray(self._usual)
        self._view = memoryview(self._chunk)
        self._start = 0
        self._end = 0
        self._reads = 0
        """That have filled the chunk so far."""

    @property
    def unread(self) -> int:
        """Bytes received and not yet taken."""
        return self._end - self._start

    def writable(self, needed: int) -> memoryview:
        """Free space to receive into, for a frame of `needed` bytes from the unread start.

        A frame that only promises to be large gets its room when a part of it is there.
        """
        believed = min(needed, PROMISED_BYTES_MAX)
        if self._start + believed > len(self._chunk) or self._end == len(self._chunk):
            self._renew(needed if self.unread >= PROMISED_BYTES_MAX else believed)
        return self._view[self._end :]

    def _renew(self, needed: int) -> None:
        rest = self._view[self._start : self._end]
        if self._reads <= FEW_READS:
            self._usual = min(self._chunk_bytes, 2 * self._usual)
        fresh = _memory(max(self._usual, needed, len(rest) + 4096))
        view = memoryview(fresh)
        view[: len(rest)] = rest
        self._chunk, self._view = fresh, view
        self._end -= self._start
        self._start = 0
        self._reads = 0

    def received(self, count: int) -> None:
        """Note that `count` bytes were written into `writable()`."""
        self._end += count
        self._reads += 1

    def release(self) -> None:
        """Give the memory back while nothing is unread; what comes next gets new."""
        if self._start == self._end and self._chunk:
            self._chunk = bytearray()
            self._view = memoryview(self._chunk)
            self._start = self._end = 0
            self._usual = min(self._chunk_bytes, FIRST_CHUNK_BYTES)
            self._reads = FEW_READS + 1

    def peek_length(self) -> int:
        """The 4-byte big-endian signed length at the unread start; -1 when not yet there."""
        if self._end - self._start < 4:
            return -1
        length: int = _INT32.unpack_from(self._chunk, self._start)[0]
        if length < 0:
            raise DecodeError(f"a frame of negative length {length}")
        return length

    def peek(self, count: int) -> bytes | None:
        """A copy of the next `count` unread bytes; None when they are not all there."""
        if self._end - self._start < count:
            return None
        return bytes(self._view[self._start : self._start + count])

    def take(self, count: int) -> memoryview:
        """Hand out the next `count` unread bytes."""
        start = self._start
        self._start = start + count
        return self._view[start : start + count]


_INT32 = struct.Struct(">i")


def _memory(size: int) -> bytearray | mmap.mmap:
    if size < MAPPED_BYTES:
        return bytearray(size)
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages does not know the advice
        mapped.madvise(mmap.MADV_NOHUGEPAGE)  # a first byte takes 4 KiB then, not 2 MiB
    return mapped


def take_frames(buffer: ReceiveBuffer) -> Iterator[Frame]:
    """The whole frames in the buffer, each with its head decoded; raises DecodeError."""
    while (length := buffer.peek_length()) >= 0:
        if length > FRAME_BYTES_MAX or length < 5:
            raise DecodeError(f"a link frame of {length} bytes")
        if buffer.unread < 4 + length:
            return
        whole = buffer.take(4 + length)
        head_size = _LENGTHS.unpack_from(whole)[1]
        if head_size > length - 4:
            raise DecodeError(f"a link head of {head_size} bytes in a frame of {length}")
        try:
            head = msgpack.unpackb(whole[8 : 8 + head_size], raw=False, use_list=True)
        except (ValueError, msgpack.exceptions.UnpackException) as failure:
            raise DecodeError(f"a link head that is not msgpack: {failure}") from failure
        if not isinstance(head, list) or len(head) < 3:
            raise DecodeError("a link head that is not a list of three")
        yield head, whole[8 + head_size :]


def bytes_wanted(buffer: ReceiveBuffer) -> int:
    """How much room the frame at the unread start needs."""
    length = buffer.peek_length()
    return 4 + length if 0 <= length <= FRAME_BYTES_MAX else 4
