"""Walk over the batches of a segment file, checking them or just skipping from head to head."""

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from raylog.storage.disk import Disk
from raylog.wire.errors import DecodeError, KafkaError
from raylog.wire.records import BATCH_OVERHEAD, LENGTH_OVERHEAD, BatchHeader, read_header

_CHECKED_WINDOW = 4 * 1024 * 1024
_SKIPPING_WINDOW = 16 * 1024
_CRC_END = 21  # the checksum covers a batch from its attributes on


class Scanned(NamedTuple):
    """A batch found at `position`; `batch` is whole when checked or a control batch.

    `batch` is a view of a buffer that the next step overwrites.
    """

    position: int
    header: BatchHeader
    batch: memoryview


def scan(
    disk: Disk, fd: int, position: int, end: int, *, next_offset: int = 0, check: bool
) -> Iterator[Scanned]:
    """Batches in [position, end) of a file, up to the first that is cut, or out of order.

    With `check`, also up to the first whose CRC is wrong, and every byte is read; else only
    headers are. The first batch must begin at `next_offset` or later.
    """
    window = _Window(disk, fd, end, _CHECKED_WINDOW if check else _SKIPPING_WINDOW)
    while True:
        head = window.view(position, BATCH_OVERHEAD)
        if head is None:
            return
        try:
            header = read_header(head)
        except (KafkaError, DecodeError):
            return  # the end of the data: zeros, or a batch that was not written whole
        size = LENGTH_OVERHEAD + header.batch_length
        batch = window.view(position, size if check or header.is_control else BATCH_OVERHEAD)
        if batch is None or position + size > end or header.base_offset < next_offset:
            return
        if check and crc32c(batch[_CRC_END:]) != header.crc:
            return
        yield Scanned(position, header, batch)
        position += size
        next_offset = header.base_offset + header.last_offset_delta + 1


class _Window:
    """A part of the file in memory that moves forward."""

    def __init__(self, disk: Disk, fd: int, end: int, size: int) -> None:
        self._disk, self._fd, self._end = disk, fd, end
        self._buffer = memoryview(bytearray(min(size, max(end, 0))))
        self._start = self._filled = 0

    def view(self, position: int, length: int) -> memoryview | None:
        """These bytes of the file; None if they go past its end."""
        if position + length > self._end:
            return None
        if position < self._start or position + length > self._filled:
            self._fill(position, length)
            if position + length > self._filled:
                return None
        at = position - self._start
        return self._buffer[at : at + length]

    def _fill(self, position: int, length: int) -> None:
        if length > len(self._buffer):
            self._buffer = memoryview(bytearray(length))
        self._start = self._filled = position
        wanted = min(len(self._buffer), self._end - position)
        while self._filled < position + wanted:
            free = self._buffer[self._filled - position : wanted]
            got = self._disk.preadv(self._fd, (free,), self._filled)
            if got == 0:
                return
            self._filled += got
