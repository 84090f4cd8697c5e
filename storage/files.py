"""Reads segments: opens descriptors and loads indexes on demand, finds offsets with both."""

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock

from raylog.storage.disk import Disk, opened
from raylog.storage.index import (
    HEAD_BYTES,
    IndexHead,
    SparseIndex,
    body_bytes,
    decode_body,
    decode_head,
    head_bytes,
)
from raylog.storage.layout import index_name
from raylog.storage.scan import Scanned, scan
from raylog.storage.segment import Segment
from raylog.wire.errors import CorruptMessage
from raylog.wire.records import BATCH_OVERHEAD, unpack_header

_INDEXES_KEPT = 2  # of closed segments, in memory


class SegmentFiles:
    """The files of one partition's segments; closed segments keep no descriptor open.

    `lock` is for jobs, which write files from several threads.
    """

    __slots__ = ("_is_named", "_loaded", "directory", "disk", "lock")

    def __init__(self, disk: Disk, directory: str) -> None:
        self.lock = Lock()
        self.disk = disk
        self.directory = directory
        self._is_named = False
        self._loaded: list[Segment] = []  # closed segments with their index in memory, oldest first

    def path(self, name: str) -> str:
        """Path of a file in the partition's directory."""
        return f"{self.directory}/{name}"

    def sync_name(self) -> None:
        """Make the directory's own name durable, once; its files depend on it. Blocking."""
        if not self._is_named:
            self.disk.fsync_dir(self.directory.rpartition("/")[0])
            self._is_named = True

    def largest_timestamp(self, segment: Segment) -> int:
        """A segment's newest timestamp in ms; the file's modification time if no record has one.

        May raise OSError if the file does not exist.
        """
        if segment.max_timestamp >= 0:
            return segment.max_timestamp
        return self.disk.modified_ms(self.path(segment.name))

    @contextmanager
    def reading(self, segment: Segment) -> Iterator[int]:
        """Descriptor to read the segment with: the open one if there is one."""
        if segment.fd >= 0:
            yield segment.fd
            return
        with self.opened(segment) as fd:
            yield fd

    def opened(self, segment: Segment) -> AbstractContextManager[int]:
        """A new descriptor, for threads: the log may close the segment meanwhile."""
        return opened(self.disk, self.path(segment.name))

    # -- lookups -------------------------------------------------------------------------------

    def position_of(self, segment: Segment, offset: int) -> int:
        """Position of the first batch that contains `offset` or comes after it.

        Return the size of the data if `offset` is at or past its end. Raises CORRUPT_MESSAGE if it
        is before the end but no batch is found.
        """
        if offset <= segment.base_offset:
            return 0
        if offset >= segment.next_offset:
            return segment.size
        asked = offset - segment.base_offset
        index = self.index_of(segment)
        start, indexed = index.floor_offset(asked)
        if index.is_unverified and not self._is_right(segment, start, indexed, asked):
            start, indexed = self._index_anew(segment).floor_offset(asked)
        if indexed == asked:
            return start
        with self.reading(segment) as fd:
            for position, header, _ in scan(self.disk, fd, start, segment.size, check=False):
                if header.last_offset >= offset:
                    return position
        raise CorruptMessage(f"{segment.name} has no batch with offset {offset}")

    def boundary(
        self, segment: Segment, position: int, max_bytes: int, *, at_least_one: bool
    ) -> tuple[int, int]:
        """End of a slice of at most `max_bytes` that begins with the batch at `position`.

        Return (position, offset) of the batch after the slice. Usually the index is enough; only
        slices about as small as its interval, or of one large batch, need a walk. A larger first
        batch is returned whole with `at_least_one`, otherwise the slice is empty.
        """
        limit = position + max_bytes
        index = self.index_of(segment)
        end, relative_offset = index.floor_position(limit)
        if index.is_unverified and not self._is_right(segment, end, relative_offset, 1 << 32):
            end, relative_offset = self._index_anew(segment).floor_position(limit)
        if end > position:
            return end, segment.base_offset + relative_offset
        end, next_offset = position, -1
        with self.reading(segment) as fd:
            for start, header, _ in scan(self.disk, fd, position, segment.size, check=False):
                if start + header.size > limit and not (start == position and at_least_one):
                    break
                end, next_offset = start + header.size, header.next_offset
        return end, next_offset

    def _is_right(
        self, segment: Segment, position: int, relative_offset: int, largest_offset: int
    ) -> bool:
        """Whether an index entry that was read from a file matches the segment."""
        if position == 0:
            return relative_offset == 0
        with self.reading(segment) as fd:
            head = self.disk.pread(fd, BATCH_OVERHEAD, position)
        if position >= segment.size or len(head) < BATCH_OVERHEAD:
            return False
        found = int(unpack_header(head, 0)[0]) - segment.base_offset
        return found == relative_offset <= largest_offset

    def _index_anew(self, segment: Segment) -> SparseIndex:
        """Rebuild the index of a segment whose index file is wrong."""
        segment.index = index = self._rebuilt(segment)
        return index

    def batches(self, segment: Segment, position: int, *, check: bool) -> Iterator[Scanned]:
        """The segment's batches, beginning with the one at `position`."""
        with self.reading(segment) as fd:
            yield from scan(self.disk, fd, position, segment.size, check=check)

    def bytes_at(self, segment: Segment, position: int, length: int) -> bytes:
        """Read bytes of the segment."""
        with self.reading(segment) as fd:
            data = self.disk.pread(fd, length, position)
        if len(data) != length:
            raise OSError(errno.EIO, f"ends within {position}+{length}", segment.name)
        return data

    # -- indexes -------------------------------------------------------------------------------

    def index_of(self, segment: Segment) -> SparseIndex:
        """The segment's index, read or rebuilt if it is not in memory."""
        index = segment.index
        if index is None:
            index = self.read_index(segment)
            if index is None:
                index = self._rebuilt(segment)
            self.take_index(segment, index)
        return index

    def take_index(self, segment: Segment, index: SparseIndex) -> None:
        """Keep an index in memory until others replace it."""
        if segment.index is None:
            segment.index = index
            self._loaded.append(segment)
            if len(self._loaded) > _INDEXES_KEPT:
                self._loaded.pop(0).index = None

    def keep_index(self, segment: Segment) -> None:
        """Load the index of a segment that will grow, and keep it."""
        self.index_of(segment)
        if segment in self._loaded:
            self._loaded.remove(segment)

    def release_index(self, segment: Segment) -> None:
        """Drop an index from memory; it is on disk."""
        segment.index = None
        if segment in self._loaded:
            self._loaded.remove(segment)

    def release_indexes(self) -> None:
        """Drop the indexes of closed segments from memory."""
        for segment in self._loaded:
            segment.index = None
        self._loaded.clear()

    def read_head(self, segment: Segment) -> IndexHead | None:
        """Head of the segment's index file; None if missing or damaged."""
        try:
            with opened(self.disk, self.path(index_name(segment.name))) as fd:
                data = self.disk.pread(fd, HEAD_BYTES, 0)
                rest = min(head_bytes(data), self.disk.size(fd)) - len(data)
                data += self.disk.pread(fd, max(rest, 0), len(data))
        except FileNotFoundError:
            return None
        return decode_head(data)

    def read_index(self, segment: Segment) -> SparseIndex | None:
        """The index in the segment's index file; None if missing, damaged or of another length."""
        head = self.read_head(segment)
        if head is None or head.summary != segment.summary():
            return None
        with opened(self.disk, self.path(index_name(segment.name))) as fd:
            body = self.disk.pread(fd, body_bytes(head), head.body_position)
        return decode_body(head, body)

    def _rebuilt(self, segment: Segment) -> SparseIndex:
        index = SparseIndex()
        timestamp = -1
        indexed = 0
        for position, header, _ in self.batches(segment, 0, check=False):
            if position - indexed >= _REBUILD_INTERVAL_BYTES:
                index.add(header.base_offset - segment.base_offset, position, timestamp)
                indexed = position
            timestamp = max(timestamp, header.max_timestamp)
        return index


_REBUILD_INTERVAL_BYTES = 4096
