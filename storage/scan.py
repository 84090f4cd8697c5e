"""Walks through the batches of a segment file, checking them or only skipping from head to head."""

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from raylog.storage.disk import Disk
from raylog.wire.errors import DecodeError, KafkaError
from raylog.wire.records import (
    BASE_OFFSET_MAX,
    BATCH_OVERHEAD,
    CONTROL_BIT,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    BatchHeader,
    read_header,
    unpack_header,
)

_CHECKED_WINDOW = 4 * 1024 * 1024
_SKIPPING_WINDOW = 8 * 1024
_CHECKSUM_START = 21  # the checksum covers a batch from its attributes on
_LENGTH_MIN = BATCH_OVERHEAD - LENGTH_OVERHEAD

Scanned = tuple[int, BatchHeader, memoryview]
"""Position of a batch, its header, and its bytes in a buffer that the next step overwrites: the
whole batch if checked or a control batch, otherwise perhaps only the header."""

Checked = tuple[int, tuple[int, ...], memoryview, int]
"""Position of a batch, its header fields, a buffer that holds the whole batch until the next step,
and the batch's place in the buffer."""

_new = tuple.__new__  # half the cost of the generated constructor


class Surroundings(NamedTuple):
    """What is known of the batches around a part of the log; unknown values have defaults.

    No checksum covers a batch's offset and leader epoch. If these do not continue from the previous
    batch, they must agree with the following batch, provided that one is intact. The last batch has
    no successor: it is accepted if the log is known to have reached that far, since damage never
    makes a log end exactly where it ended before.
    """

    next_offset: int = 0  # start of the part, or an earlier offset
    epoch: int = NO_LEADER_EPOCH  # of the previous batch
    end_offset: int | None = None  # base offset of the batch after the part
    end_epoch: int | None = None  # its leader epoch
    has_holes: bool = False  # whether offsets may be missing, as in copies of compacted logs
    held: int = 0  # exclusive end of what the log certainly held


_UNKNOWN = Surroundings()


def scan(
    disk: Disk,
    fd: int,
    position: int,
    end: int,
    *,
    around: Surroundings = _UNKNOWN,
    check: bool,
) -> Iterator[Scanned]:
    """Yield batches in [position, end) of a file, up to the first that is cut or out of order.

    With `check`, stop also at the first batch with a wrong CRC, and read every byte; otherwise read
    only headers. The first batch must begin at `around.next_offset` or later.
    """
    if not check:
        yield from _skip(disk, fd, position, end, around.next_offset)
        return
    for found, fields, data, at in checked(disk, fd, position, end, around):
        header = _new(BatchHeader, fields)
        yield found, header, data[at : at + header.size]


def checked(
    disk: Disk, fd: int, position: int, end: int, around: Surroundings = _UNKNOWN
) -> Iterator[Checked]:
    """Like `scan` with `check`. This loop determines how long a recovery takes."""
    window = _Window(disk, fd, end, _CHECKED_WINDOW)
    data, start, filled = window.bytes, 0, 0
    next_offset, last_epoch = around.next_offset, around.epoch
    course = _Course(disk, fd, end, around)
    while position + BATCH_OVERHEAD <= end:
        if position + BATCH_OVERHEAD > filled:
            data, start, filled = window.move(position, BATCH_OVERHEAD)
            if position + BATCH_OVERHEAD > filled:
                return
        fields = unpack_header(data, position - start)
        base_offset, length, epoch, magic, crc, _, delta, _, _, _, _, _, count = fields
        if magic != MAGIC or length < _LENGTH_MIN or not 0 <= count <= delta + 1:
            return  # end of the data: zeros, or an incomplete batch
        behind = position + LENGTH_OVERHEAD + length
        if behind > end or not next_offset <= base_offset <= BASE_OFFSET_MAX or epoch < last_epoch:
            return
        if behind > filled:
            data, start, filled = window.move(position, behind - position)
            if behind > filled:
                return
        at = position - start
        if crc32c(data[at + _CHECKSUM_START : behind - start]) != crc:
            return
        leaps = base_offset != next_offset
        next_offset = base_offset + delta + 1
        if (leaps or epoch != last_epoch) and not course.agrees(behind, next_offset, epoch, leaps):
            return
        yield position, fields, data, at
        position, last_epoch = behind, epoch


class _Course:
    """Judges batches whose offset or epoch does not continue from the previous one."""

    __slots__ = ("_around", "_disk", "_end", "_fd", "_has_holes")

    def __init__(self, disk: Disk, fd: int, end: int, around: Surroundings) -> None:
        self._disk, self._fd, self._end, self._around = disk, fd, end, around
        self._has_holes = around.has_holes

    def agrees(self, behind: int, next_offset: int, epoch: int, leaps: bool) -> bool:
        """Whether to accept a batch that ends at position `behind` and offset `next_offset`."""
        head = b""
        if behind + BATCH_OVERHEAD <= self._end:
            head = self._disk.pread(self._fd, BATCH_OVERHEAD, behind)
        if len(head) == BATCH_OVERHEAD:
            base_offset, length, following_epoch, magic, crc, *_ = unpack_header(head, 0)
            if magic == MAGIC and length >= _LENGTH_MIN:
                if base_offset >= next_offset and following_epoch >= epoch:
                    self._has_holes = self._has_holes or leaps
                    return True
                if self._is_whole(behind, LENGTH_OVERHEAD + length, crc):
                    return False
        _, _, end_offset, end_epoch, _, held = self._around
        if end_epoch is not None and epoch > end_epoch:
            return False
        reaches_end = end_offset is not None and next_offset >= end_offset
        return not leaps or self._has_holes or reaches_end or next_offset <= held

    def _is_whole(self, position: int, size: int, crc: int) -> bool:
        """Whether the following batch is intact; a torn one proves nothing."""
        if position + size > self._end:
            return False
        data = self._disk.pread(self._fd, size, position)
        return len(data) == size and crc32c(data[_CHECKSUM_START:]) == crc


def _skip(disk: Disk, fd: int, position: int, end: int, next_offset: int) -> Iterator[Scanned]:
    window = _Window(disk, fd, end, _SKIPPING_WINDOW)
    data, start, filled = window.bytes, 0, 0
    while position + BATCH_OVERHEAD <= end:
        if position + BATCH_OVERHEAD > filled:
            data, start, filled = window.move(position, BATCH_OVERHEAD)
            if position + BATCH_OVERHEAD > filled:
                return
        try:
            header = read_header(data, position - start)
        except (KafkaError, DecodeError):
            return  # as in `checked`
        behind = position + header.size
        if behind > end or header.base_offset < next_offset:
            return
        if behind > filled and header.attributes & CONTROL_BIT:
            data, start, filled = window.move(position, behind - position)
            if behind > filled:
                return
        yield position, header, data[position - start : behind - start]  # as much as is there
        position = behind
        next_offset = header.next_offset


class _Window:
    """A part of the file in memory that moves forward."""

    __slots__ = ("_disk", "_fd", "_limit", "bytes")

    def __init__(self, disk: Disk, fd: int, limit: int, size: int) -> None:
        self._disk, self._fd, self._limit = disk, fd, limit
        self.bytes = memoryview(bytearray(min(size, max(limit, 0))))

    def move(self, position: int, length: int) -> tuple[memoryview, int, int]:
        """Move to `position`, with room for `length` bytes; return the bytes, start and end."""
        if length > len(self.bytes):
            self.bytes = memoryview(bytearray(length))
        limit = min(position + len(self.bytes), self._limit)
        filled = position
        while filled < limit:
            free = self.bytes[filled - position : limit - position]
            got = self._disk.preadv(self._fd, (free,), filled)
            if got == 0:
                break
            filled += got
        return self.bytes, position, filled
