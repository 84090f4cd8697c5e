"""The link protocol: length-prefixed frames with a msgpack head and a raw payload.

| field       | bytes | meaning                                                       |
|-------------|-------|---------------------------------------------------------------|
| length      | 4     | of everything after this field                                |
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
"""The newest version that this build speaks. New fields at the end of requests and answers, with
a default, do not change it (`actors.message`)."""
LINK_VERSION_MIN = 3
"""The oldest. Two ends speak the newest version that both know."""
FRAME_BYTES_MAX = 256 << 20
CHUNK_BYTES = 512 << 10
FIRST_CHUNK_BYTES = 8 << 10
"""Initial size for a connection that has sent nothing, or sends little at a time."""

FEW_READS = 4
"""The chunk size doubles if this many reads or fewer fill a chunk."""

MAPPED_BYTES = 1 << 20
"""Chunks of this size and more are mapped, so that unfilled parts take no memory."""

PROMISED_BYTES_MAX = 4 << 20
"""The room made for a frame on the strength of its length alone. The rest follows once this much
has arrived."""

_LENGTHS = struct.Struct(">II")
_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack

Buffer = bytes | bytearray | memoryview
Frame = tuple[list[Any], memoryview]


def frame(head: list[Any], payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return the buffers of one frame, ready for `writelines`; the payload is not copied.

    Raises EncodeError for a head that msgpack cannot encode, and for a frame that is too long.
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
    """Memory that the transport fills and whose filled parts are handed out.

    Parts that were handed out stay valid as long as they are referenced, because a chunk is never
    filled twice. So a payload may be kept, changed and passed on without a copy. It keeps its whole
    chunk alive, so chunks are small for senders of little data.
    """

    __slots__ = ("_chunk", "_chunk_bytes", "_end", "_reads", "_start", "_usual", "_view")

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._usual = min(chunk_bytes, FIRST_CHUNK_BYTES)
        """Size of the next chunk, unless a frame needs more."""
        self._chunk: bytearray | mmap.mmap = bytearray(self._usual)
        self._view = memoryview(self._chunk)
        self._start = 0
        self._end = 0
        self._reads = 0
        """Reads that have filled the chunk so far."""

    @property
    def unread(self) -> int:
        """Bytes received but not yet taken."""
        return self._end - self._start

    def writable(self, needed: int) -> memoryview:
        """Return free space to receive into, for a frame of `needed` bytes from the unread start.

        A frame that merely announces to be large gets its room once a part of it has arrived.
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
        """Release the memory if nothing is unread; the next read allocates new."""
        if self._start == self._end and self._chunk:
            self._chunk = bytearray()
            self._view = memoryview(self._chunk)
            self._start = self._end = 0
            self._usual = min(self._chunk_bytes, FIRST_CHUNK_BYTES)
            self._reads = FEW_READS + 1

    def peek_length(self) -> int:
        """Return the 4-byte big-endian signed length at the unread start; -1 if incomplete."""
        if self._end - self._start < 4:
            return -1
        length: int = _INT32.unpack_from(self._chunk, self._start)[0]
        if length < 0:
            raise DecodeError(f"a frame of negative length {length}")
        return length

    def peek(self, count: int) -> bytes | None:
        """Return a copy of the next `count` unread bytes; None if they are incomplete."""
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
    with contextlib.suppress(OSError):  # kernels without huge pages reject the advice
        mapped.madvise(mmap.MADV_NOHUGEPAGE)  # so that the first byte takes 4 KiB and not 2 MiB
    return mapped


def take_frames(buffer: ReceiveBuffer) -> Iterator[Frame]:
    """Yield the complete frames in the buffer, with decoded heads; raises DecodeError."""
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
    """Return how much room the frame at the unread start needs."""
    length = buffer.peek_length()
    return 4 + length if 0 <= length <= FRAME_BYTES_MAX else 4
