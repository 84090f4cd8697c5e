"""The log as readers see it: slices of whole batches, lookups by time, transactions.

`read`, `load` and `last_stable_offset` answer at once. They read at most a few batch headers, or
data written recently. `is_indexed`, `unchecked` and `is_recent` say whether more would be needed.
Then a thread runs a job, created by `begin_...` and given back to `end_...`. A job reads through
its own descriptors, and the log may change meanwhile.
"""

import errno
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from raylog.storage.checking import Checked, Unchecked, check
from raylog.storage.epochs import LeaderEpochs
from raylog.storage.files import SegmentFiles
from raylog.storage.index import AbortedTransaction, SparseIndex
from raylog.storage.lookup import LookupJob
from raylog.storage.segment import Segment, Slice, segment_index
from raylog.storage.shared_state import SharedLogState
from raylog.wire.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange

RECENT_BYTES = 16 * 1024 * 1024
"""This many bytes at the end of a log are assumed to be in the page cache."""
_HINTS_KEPT = 16
_new = tuple.__new__  # half the cost of the generated constructor
T = TypeVar("T")


@dataclass(slots=True)
class ReadJob(Generic[T]):
    """Runs one read of a segment in a thread."""

    segment: Segment
    _read: Callable[[], T]
    found: T | None = None
    failure: OSError | None = None

    def run(self) -> None:
        """Run the job. Blocking; call once."""
        try:
            self.found = self._read()
        except OSError as failure:
            self.failure = failure


class LogReader:
    """Reads a log. Finds a slice in O(1) if it begins where a recent one ended."""

    __slots__ = ("_hints", "_shared", "unchecked")

    def __init__(self, shared: SharedLogState) -> None:
        self._shared = shared
        self._hints: dict[int, tuple[Segment, int]] = {}
        self.unchecked = Unchecked(shared.segments)
        """Parts that must be checked before they are served."""

    def read(
        self, offset: int, max_bytes: int, up_to_offset: int, *, at_least_one: bool = True
    ) -> Slice | None:
        """Return whole batches from `offset` on that end at or before `up_to_offset`.

        At most `max_bytes`, unless the first batch is larger and `at_least_one`. None if there is
        nothing to read yet. Raises OFFSET_OUT_OF_RANGE outside [log start, log end], and
        KAFKA_STORAGE_ERROR if the log is damaged, which takes it offline.
        """
        shared = self._shared
        shared.require_online()
        if not shared.start_offset <= offset <= shared.end_offset:
            raise OffsetOutOfRange(
                f"{offset} is not within [{shared.start_offset}, {shared.end_offset}]"
            )
        end = min(up_to_offset, shared.end_offset)
        if offset >= end:
            return None
        try:
            return self._slice(offset, end, max_bytes, at_least_one=at_least_one)
        except OSError as failure:
            shared.refuse("read", failure)
        except CorruptMessage as damage:
            shared.mark_damaged(
                shared.segments[segment_index(shared.segments, offset)], str(damage)
            )

    def _slice(
        self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool
    ) -> Slice | None:
        segment, position = self._locate(offset)
        if end_offset >= segment.next_offset:
            end, next_offset = segment.size, segment.next_offset
        else:
            end, next_offset = self._locate(end_offset)[1], end_offset
        if end - position > max_bytes:
            end, next_offset = self._shared.files.boundary(
                segment, position, max_bytes, at_least_one=at_least_one
            )
        if end <= position:
            return None
        self._hints[next_offset] = segment, end
        if len(self._hints) > _HINTS_KEPT:
            del self._hints[next(iter(self._hints))]
        return _new(Slice, (segment.name, position, end - position, offset, next_offset))

    def _locate(self, offset: int) -> tuple[Segment, int]:
        hint = self._hints.get(offset)
        if hint is not None and hint[1] < hint[0].size:
            return hint
        segments = self._shared.segments
        index = segment_index(segments, offset)
        segment = segments[index]
        if offset >= segment.next_offset and index + 1 < len(segments):
            return segments[index + 1], 0
        return segment, self._shared.files.position_of(segment, offset)

    def forget(self) -> None:
        """Forget where recent slices ended, because segments were removed."""
        self._hints.clear()

    # -- indexes -------------------------------------------------------------------------------

    def is_indexed(self, offset: int) -> bool:
        """Whether `read` finds an offset without reading or rebuilding a whole index."""
        segments = self._shared.segments
        segment = segments[-1] if segments else None
        if segment is None or offset >= segment.base_offset:
            return segment is None or segment.index is not None
        return segments[segment_index(segments, offset)].index is not None

    def begin_index(self, offset: int) -> ReadJob[SparseIndex]:
        """A job that loads the index for `offset`, or rebuilds it if its file is wrong."""
        self._shared.require_online()
        segment = self._shared.segments[segment_index(self._shared.segments, offset)]
        return ReadJob(segment, lambda: _index_of(self._shared.files, segment))

    def end_index(self, job: ReadJob[SparseIndex]) -> None:
        """Put a loaded index in place. Raises KAFKA_STORAGE_ERROR if the disk failed."""
        if self._is_there(job, "read") and job.found is not None:
            self._shared.files.take_index(job.segment, job.found)

    def _is_there(self, job: ReadJob[Any], what: str) -> bool:
        """Whether the segment still exists: it was not cut, cleaned or expired meanwhile."""
        self._shared.require_online()
        if job.segment not in self._shared.segments:
            return False
        if job.failure is not None:
            self._shared.refuse(what, job.failure)
        return True

    # -- checks --------------------------------------------------------------------------------

    def begin_check(self, found: Slice) -> ReadJob[Checked]:
        """A job that checks a slice just read, if `unchecked` includes it, for corruption."""
        self._shared.require_online()
        segment = next(each for each in self._shared.segments if each.name == found.segment_id)
        size, epochs = segment.size, LeaderEpochs(self._shared.epochs.entries())
        return ReadJob(segment, lambda: check(self._shared.files, segment, found, size, epochs))

    def end_check(self, job: ReadJob[Checked]) -> None:
        """Apply a check. Raises KAFKA_STORAGE_ERROR if it found damage: the log is then offline.

        When reopened, the log ends before the damage and is not whole.
        """
        if self._is_there(job, "check") and job.found is not None:
            if job.found.damage is not None:
                self._shared.mark_damaged(job.segment, job.found.damage)
            self.unchecked.remove(job.segment.name, job.found.position, job.found.end)

    # -- records -------------------------------------------------------------------------------

    def is_recent(self, found: Slice) -> bool:
        """Whether a slice just read was written recently, and so is probably in the page cache."""
        last = self._shared.segments[-1]
        behind = last.size - found.position
        return found.segment_id == last.name and last.fd >= 0 and behind <= RECENT_BYTES

    def load(self, found: Slice) -> bytes:
        """Bytes of a slice just read, for readers that cannot map files. Blocking if not cached."""
        shared = self._shared
        try:
            return shared.files.bytes_at(self._segment_of(found), found.position, found.length)
        except OSError as failure:
            shared.refuse("read", failure)

    def begin_load(self, found: Slice) -> ReadJob[bytes]:
        """A job that loads a slice just read."""
        self._shared.require_online()
        segment, files = self._segment_of(found), self._shared.files
        return ReadJob(segment, lambda: _bytes_of(files, segment, found))

    def end_load(self, job: ReadJob[bytes]) -> bytes:
        """The loaded bytes.

        Raises KAFKA_STORAGE_ERROR if the disk failed (the log is then offline), or if the segment
        was cut, cleaned or expired meanwhile and its file is gone.
        """
        self._shared.require_online()
        if job.found is not None:
            return job.found
        if job.segment in self._shared.segments and job.failure is not None:
            self._shared.refuse("read", job.failure)
        raise KafkaStorageError(f"segment {job.segment.name} is gone meanwhile")

    def _segment_of(self, found: Slice) -> Segment:
        segments = self._shared.segments
        index = segment_index(segments, found.first_offset)
        for segment in segments[index : index + 2]:
            if segment.name == found.segment_id:
                return segment
        raise OffsetOutOfRange(f"segment {found.segment_id} is gone")

    # -- lookups -------------------------------------------------------------------------------

    def begin_lookup(self, timestamp: int | None) -> LookupJob:
        """A job that finds the first record at or after `timestamp`, in ms (KIP-79).

        With None it finds the first record with the largest timestamp (KIP-734). The caller hides
        results at or above the high watermark.
        """
        self._shared.require_online()
        growing = [copy(each) for each in self._shared.segments[-1:]]
        segments = (*self._shared.segments[:-1], *growing)
        return LookupJob(self._shared.files, segments, self._shared.start_offset, timestamp)

    def end_lookup(self, job: LookupJob) -> bool:
        """End a lookup; return False if the log lost what it read meanwhile: look again then.

        Raises KAFKA_STORAGE_ERROR if the disk failed or the log is damaged, which takes it offline.
        """
        self._shared.require_online()
        looked_at = None if job.looked_at is None else job.looked_at.name
        segment = next((each for each in self._shared.segments if each.name == looked_at), None)
        if job.failure is not None or job.damage is not None:
            if segment is None:
                return False
            if job.failure is not None:
                self._shared.refuse("read", job.failure)
            self._shared.mark_damaged(segment, job.damage or "")
        return job.found is None or job.found.offset >= self._shared.start_offset

    # -- transactions --------------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: int) -> int:
        """Exclusive end of what read_committed consumers may see (KIP-98)."""
        shared = self._shared
        return max(shared.producers.last_stable_offset(high_watermark), shared.start_offset)

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [offset, end_offset), in order of their markers."""
        aborted: list[AbortedTransaction] = []
        segments = self._shared.segments
        for segment in segments[segment_index(segments, offset) :]:
            for transaction in segment.aborted or ():
                if transaction.last_offset >= offset and transaction.first_offset < end_offset:
                    aborted.append(transaction)
                if transaction.last_stable_offset >= end_offset:
                    return aborted
        return aborted


def _index_of(files: SegmentFiles, segment: Segment) -> SparseIndex:
    own = copy(segment)
    own.fd = -1
    return SegmentFiles(files.disk, files.directory).index_of(own)


def _bytes_of(files: SegmentFiles, segment: Segment, found: Slice) -> bytes:
    with files.opened(segment) as fd:
        data = files.disk.pread(fd, found.length, found.position)
    if len(data) != found.length:
        raise OSError(errno.EIO, "ends within a slice", segment.name)
    return data
