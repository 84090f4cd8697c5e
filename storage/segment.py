"""One segment: a file of record batches, its state in memory, and its index."""

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from raylog.storage.disk import Disk
from raylog.storage.index import AbortedTransaction, SegmentSummary, SparseIndex
from raylog.storage.layout import parse_segment_name
from raylog.wire.records import LENGTH_OVERHEAD, BatchHeader

_FIRST_EXTENT = 64 * 1024
_LARGEST_EXTENT = 64 * 1024 * 1024
_OFFSETS_MAX = 2**31 - 1  # Kafka's limit for relative offsets
_base_offset = attrgetter("base_offset")


class Slice(NamedTuple):
    """Whole batches in one segment, the first of which contains `first_offset` or comes after it.

    `segment_id` is a file in the log's directory; `next_offset` follows the last batch.
    """

    segment_id: str
    position: int
    length: int
    first_offset: int
    next_offset: int


class Segment:
    """State of one segment; `size` is where its data ends, `file_size` where its file ends.

    `fd` is -1 while the segment is not written to. `index` is None while it is not in memory. For
    the first `trusted_size` bytes only the index was read.
    """

    __slots__ = (
        "aborted",
        "base_offset",
        "created_ms",
        "fd",
        "file_size",
        "first_timestamp",
        "index",
        "max_timestamp",
        "max_timestamp_offset",
        "name",
        "next_checkpoint_at",
        "next_entry_at",
        "next_offset",
        "sealed",
        "size",
        "trusted_size",
    )

    def __init__(self, name: str, created_ms: int) -> None:
        parsed = parse_segment_name(name)
        assert parsed is not None, f"{name} is no segment's name"
        self.name = name
        self.base_offset = parsed.base_offset
        self.created_ms = created_ms
        self.fd = -1
        self.sealed = False  # recovery left something other than zeros after the data
        self.clear()

    def clear(self) -> None:
        """Reset to an empty segment."""
        self.size = 0
        self.trusted_size = 0
        self.file_size = 0
        self.next_offset = self.base_offset
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.next_entry_at = 1
        self.next_checkpoint_at = 0  # once the segment has this size, save its index
        self.index: SparseIndex | None = SparseIndex()
        self.aborted: list[AbortedTransaction] | None = None

    def note(self, header: BatchHeader, base_offset: int, interval_bytes: int) -> None:
        """Account for a batch written at the end of the data."""
        next_offset = base_offset + header.last_offset_delta + 1
        size = LENGTH_OVERHEAD + header.batch_length
        self.note_batch(base_offset, next_offset, size, header.max_timestamp, interval_bytes)

    def note_batch(
        self, base_offset: int, next_offset: int, size: int, timestamp: int, interval_bytes: int
    ) -> None:
        """Like `note`; `size` is in bytes, `timestamp` the batch's largest."""
        position = self.size
        if position >= self.next_entry_at:
            assert self.index is not None, "a segment that grows has its index in memory"
            self.index.add(base_offset - self.base_offset, position, self.max_timestamp)
            self.next_entry_at = position + interval_bytes
        elif position == 0:
            self.first_timestamp = timestamp
            self.next_entry_at = interval_bytes
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = base_offset
        self.size = position + size
        self.next_offset = next_offset

    def is_full_for(
        self, header: BatchHeader, next_offset: int, segment_bytes: int, index_bytes: int
    ) -> bool:
        """Whether a batch that ends before `next_offset` must go into a new segment."""
        return self.size > 0 and (
            self.size + LENGTH_OVERHEAD + header.batch_length > segment_bytes
            or next_offset - self.base_offset > _OFFSETS_MAX
            or (self.index is not None and 8 * len(self.index) >= index_bytes)
        )

    def has_room_for(
        self, next_offset: int, size: int, segment_bytes: int, index_bytes: int
    ) -> bool:
        """Whether several further batches, `size` bytes in total, certainly fit."""
        return (
            0 < self.size <= segment_bytes - size
            and next_offset - self.base_offset <= _OFFSETS_MAX
            and self.index is not None
            and 8 * len(self.index) + size < index_bytes
        )

    def is_due(self, timestamp: int, now_ms: int, segment_ms: int) -> bool:
        """Whether the segment is too old for a batch with this largest timestamp."""
        if self.size == 0:
            return False
        if self.first_timestamp >= 0 and timestamp >= 0:
            return timestamp - self.first_timestamp > segment_ms
        return now_ms - self.created_ms > segment_ms

    def extend(self, disk: Disk, needed: int, segment_bytes: int) -> None:
        """Lengthen the file to at least `needed` bytes, ahead of the data, with a hole."""
        step = min(max(self.file_size, _FIRST_EXTENT), _LARGEST_EXTENT)
        target = max(needed, min(self.file_size + step, segment_bytes))
        disk.ftruncate(self.fd, target)
        self.file_size = target

    def summary(self) -> SegmentSummary:
        """The summary that the index file stores besides the index."""
        return SegmentSummary(
            self.base_offset,
            self.size,
            self.next_offset,
            self.first_timestamp,
            self.max_timestamp,
            self.max_timestamp_offset,
        )

    def restore(self, summary: SegmentSummary, aborted: list[AbortedTransaction]) -> None:
        """Set the values from an index file; the index itself stays on disk."""
        self.size = self.trusted_size = summary.size
        self.next_offset = summary.next_offset
        self.first_timestamp = summary.first_timestamp
        self.max_timestamp = summary.max_timestamp
        self.max_timestamp_offset = summary.max_timestamp_offset
        self.aborted = aborted or None
        self.index = None


def segment_index(segments: list[Segment], offset: int) -> int:
    """Index of the segment that contains `offset`; 0 for an offset before all segments."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
