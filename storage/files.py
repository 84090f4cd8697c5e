"""Reading of segments: descriptors on demand, indexes on demand, lookups in both."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from raylog.storage.disk import Disk
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
    """The files of one partition's segments; closed ones keep no descriptor open.

    `lock` is for jobs, which write files in several threads.
    """

    __slots__ = ("_directory", "_disk", "_is_named", "_loaded", "lock")

    def __init__(self, disk: Disk, directory: str) -> None:
        self.lock = Lock()
        self._disk = disk
        self._directory = directory
        self._is_named = False
        self._loaded: list[Segment] = []  # closed segments with their index in memory, oldest first

    def path(self, name: str) -> str:
        """Path of a file in the partition's directory."""
        return f"{self._directory}/{name}"

    def sync_name(self) -> None:
        """Make the directory's own name durable, once: without it nothing in it is. Blocking."""
        if not self._is_named:
            self._disk.fsync_dir(self._directory.rpartition("/")[0])
            self._is_named = True

    def largest_timestamp(self, segment: Segment) -> int:
        """How old a segment is: by its newest record, or its file where none has a time.

        In ms. OSError if the file is not there.
        """
        if segment.max_timestamp >= 0:
            return segment.max_timestamp
        return self._disk.modified_ms(self.path(segment.name))

    @contextmanager
    def reading(self, segment: Segment) -> Iterator[int]:
        """A descriptor to read the segment by."""
        if segment.fd >= 0:
            yield segment.fd
            return
        with self.opened(segment) as fd:
            yield fd

    @contextmanager
    def opened(self, segment: Segment) -> Iterator[int]:
        """A descriptor of its own: for threads, while the segment may be closed."""
        fd = self._disk.open(self.path(segment.name))
        try:
            yield fd
        finally:
            self._disk.close(fd)

    # -- lookups -------------------------------------------------------------------------------

    def position_of(self, segment: Segment, offset: int) -> int:
        """Position of the first batch that holds `offset` or comes after.

        The size of the data where `offset` is not below its end. CORRUPT_MESSAGE if it is, and no
        batch is found.
        """
        if offset <= segment.base_offset:
            return 0
        if offset >= segment.next_offset:
            return segment.size
        asked = offset - segment.base_offset
        index = self.index_of(segment)
        start, indexed = index.floor_offset(asked)
        if index.is_hearsay and not self._is_right(segment, start, indexed, asked):
            start, indexed = self._index_anew(segment).floor_offset(asked)
        if indexed == asked:
            return start
        with self.reading(segment) as fd:
            for position, header, _ in scan(self._disk, fd, start, segment.size, check=False):
                if header.last_offset >= offset:
                    return position
        raise CorruptMessage(f"{segment.name} has no batch with offset {offset}")

    def boundary(
        self, segment: Segment, position: int, max_bytes: int, *, at_least_one: bool
    ) -> tuple[int, int]:
        """Where a slice of at most `max_bytes` from a batch at `position` ends.

        (position, offset) of the batch behind it. The index decides where it can; only slices
        about as small as its interval, or of one large batch, are walked. A first batch that is
        larger is taken whole with `at_least_one`, else the slice is empty.
        """
        limit = position + max_bytes
        index = self.index_of(segment)
        end, relative_offset = index.floor_position(limit)
        if index.is_hearsay and not self._is_right(segment, end, relative_offset, 1 << 32):
            end, relative_offset = self._index_anew(segment).floor_position(limit)
        if end > position:
            return end, segment.base_offset + relative_offset
        end, next_offset = position, -1
        with self.reading(segment) as fd:
            for start, header, _ in scan(self._disk, fd, position, segment.size, check=False):
                if start + header.size > limit and not (start == position and at_least_one):
                    break
                end, next_offset = start + header.size, header.next_offset
        return end, next_offset

    def _is_right(
        self, segment: Segment, position: int, relative_offset: int, largest_offset: int
    ) -> bool:
        """Whether an entry of an index that was read from a file is right: files may lie."""
        if position == 0:
            return relative_offset == 0
        with self.reading(segment) as fd:
            head = self._disk.pread(fd, BATCH_OVERHEAD, position)
        if position >= segment.size or len(head) < BATCH_OVERHEAD:
            return False
        found = int(unpack_header(head, 0)[0]) - segment.base_offset
        return found == relative_offset <= largest_offset

    def _index_anew(self, segment: Segment) -> SparseIndex:
        """Make the index of a segment again: its file is wrong."""
        segment.index = index = self._rebuilt(segment)
        return index

    def batches(self, segment: Segment, position: int, *, check: bool) -> Iterator[Scanned]:
        """The segment's batches from the one at `position` on."""
        with self.reading(segment) as fd:
            yield from scan(self._disk, fd, position, segment.size, check=check)

    def bytes_at(self, segment: Segment, position: int, length: int) -> bytes:
        """Bytes of the segment."""
        with self.reading(segment) as fd:
            data = self._disk.pread(fd, length, position)
        if len(data) != length:
            raise OSError(errno.EIO, f"ends within {position}+{length}", segment.name)
        return data

    # -- indexes -------------------------------------------------------------------------------

    def index_of(self, segment: Segment) -> SparseIndex:
        """The segment's index, read or made anew when it is not in memory."""
        if segment.index is None:
            segment.index = self.read_index(segment)
            if segment.index is None:
                segment.index = self._rebuilt(segment)
            self._loaded.append(segment)
            if len(self._loaded) > _INDEXES_KEPT:
                self._loaded.pop(0).index = None
        return segment.index

    def take_index(self, segment: Segment, index: SparseIndex) -> None:
        """Keep an index that somebody else has read, for a while."""
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
        """Drop the index of a segment that is on disk now."""
        segment.index = None
        if segment in self._loaded:
            self._loaded.remove(segment)

    def release_indexes(self) -> None:
        """Drop indexes of closed segments from memory."""
        for segment in self._loaded:
            segment.index = None
        self._loaded.clear()

    def read_head(self, segment: Segment) -> IndexHead | None:
        """The head of the segment's index file; None if missing or damaged."""
        try:
            fd = self._disk.open(self.path(index_name(segment.name)))
        except FileNotFoundError:
            return None
        try:
            data = self._disk.pread(fd, HEAD_BYTES, 0)
            rest = min(head_bytes(data), self._disk.size(fd)) - len(data)
            data += self._disk.pread(fd, max(rest, 0), len(data))
        finally:
            self._disk.close(fd)
        return decode_head(data)

    def read_index(self, segment: Segment) -> SparseIndex | None:
        """The index as its file has it; None if missing, damaged or of another length."""
        head = self.read_head(segment)
        if head is None or head.summary != segment.summary():
            return None
        fd = self._disk.open(self.path(index_name(segment.name)))
        try:
            body = self._disk.pread(fd, body_bytes(head), head.body_position)
        finally:
            self._disk.close(fd)
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
