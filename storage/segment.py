"""One segment: a file of record batches, what is known of it, and its index."""

from raylog.storage.disk import Disk
from raylog.storage.index import AbortedTransaction, SegmentSummary, SparseIndex
from raylog.storage.layout import parse_segment_name
from raylog.wire.records import LENGTH_OVERHEAD, BatchHeader

_FIRST_EXTENT = 64 * 1024
_LARGEST_EXTENT = 64 * 1024 * 1024
_OFFSETS_MAX = 2**31 - 1  # Kafka's bound on relative offsets


class Segment:
    """State of one segment; `size` is where its data ends, `file_size` where its file does.

    `fd` is -1 while the segment is not written to. `index` is None while it is not in memory.
    Of the first `trusted_size` bytes only the index was read.
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
        self.sealed = False  # recovery left something else than zeros behind the data
        self.clear()

    def clear(self) -> None:
        """Forget what is known of the contents, as of an empty segment."""
        self.size = 0
        self.trusted_size = 0
        self.file_size = 0
        self.next_offset = self.base_offset
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.next_entry_at = 1
        self.next_checkpoint_at = 0  # once the segment has this size its index is worth saving
        self.index: SparseIndex | None = SparseIndex()
        self.aborted: list[AbortedTransaction] | None = None

    def note(self, header: BatchHeader, base_offset: int, interval_bytes: int) -> None:
        """Account for a batch that was written at the end of the data."""
        next_offset = base_offset + header.last_offset_delta + 1
        size = LENGTH_OVERHEAD + header.batch_length
        self.note_batch(base_offset, next_offset, size, header.max_timestamp, interval_bytes)

    def note_batch(
        self, base_offset: int, next_offset: int, size: int, timestamp: int, interval_bytes: int
    ) -> None:
        """The same; `size` in bytes, `timestamp` its largest one."""
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
        """Whether a batch that ends before `next_offset` belongs into another segment."""
        return self.size > 0 and (
            self.size + LENGTH_OVERHEAD + header.batch_length > segment_bytes
            or next_offset - self.base_offset > _OFFSETS_MAX
            or (self.index is not None and 8 * len(self.index) >= index_bytes)
        )

    def has_room_for(
        self, next_offset: int, size: int, segment_bytes: int, index_bytes: int
    ) -> bool:
        """Whether several batches of `size` bytes in all surely belong here, behind others."""
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
        """Lengthen the file to at least `needed` bytes, ahead of the data, by a hole."""
        step = min(max(self.file_size, _FIRST_EXTENT), _LARGEST_EXTENT)
        target = max(needed, min(self.file_size + step, segment_bytes))
        disk.ftruncate(self.fd, target)
        self.file_size = target

    def summary(self) -> SegmentSummary:
        """What the index file keeps beside the index."""
        return SegmentSummary(
            self.base_offset,
            self.size,
            self.next_offset,
            self.first_timestamp,
            self.max_timestamp,
            self.max_timestamp_offset,
        )

    def restore(self, summary: SegmentSummary, aborted: list[AbortedTransaction]) -> None:
        """Take over what an index file says; the index itself stays on disk."""
        self.size = self.trusted_size = summary.size
        self.next_offset = summary.next_offset
        self.first_timestamp = summary.first_timestamp
        self.max_timestamp = summary.max_timestamp
        self.max_timestamp_offset = summary.max_timestamp_offset
        self.aborted = aborted or None
        self.index = None
