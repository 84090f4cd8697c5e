"""The log as readers see it: slices of whole batches, lookups by time, transactions."""

import errno
from copy import copy
from dataclasses import dataclass

from raylog.storage.checking import CheckJob, Unchecked
from raylog.storage.config import LogConfig
from raylog.storage.disk import Disk
from raylog.storage.epochs import LeaderEpochs
from raylog.storage.files import SegmentFiles
from raylog.storage.index import AbortedTransaction, SparseIndex
from raylog.storage.lookup import LookupJob
from raylog.storage.reader import Slice, SliceReader, segment_index
from raylog.storage.recovery import Recovered
from raylog.storage.segment import Segment
from raylog.storage.writer import LogWriter
from raylog.wire.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange

RECENT_BYTES = 16 * 1024 * 1024
"""As much at the end of a log is taken to be in memory."""


@dataclass(slots=True)
class IndexJob:
    """Read the index of a segment that is not written to, or make it anew where it is wrong."""

    disk: Disk
    directory: str
    segment: Segment
    index: SparseIndex | None = None
    failure: OSError | None = None

    def run(self) -> None:
        """Blocking. Call once."""
        own = copy(self.segment)
        own.fd = -1
        try:
            self.index = SegmentFiles(self.disk, self.directory).index_of(own)
        except OSError as failure:
            self.failure = failure


@dataclass(slots=True)
class LoadJob:
    """Read the bytes of a slice, by a descriptor of its own."""

    disk: Disk
    files: SegmentFiles
    segment: Segment
    found: Slice
    data: bytes = b""
    failure: OSError | None = None

    def run(self) -> None:
        """Blocking. Call once."""
        try:
            self._read()
        except OSError as failure:
            self.failure = failure

    def _read(self) -> None:
        with self.files.opened(self.segment) as fd:
            self.data = self.disk.pread(fd, self.found.length, self.found.position)
        if len(self.data) != self.found.length:
            raise OSError(errno.EIO, "ends within a slice", self.segment.name)


class ReadableLog(LogWriter):
    """The part of a log that is read; offsets that are no more are passed over."""

    __slots__ = ("_reader", "_unchecked")

    def __init__(
        self, directory: str, config: LogConfig, disk: Disk, files: SegmentFiles, found: Recovered
    ) -> None:
        super().__init__(directory, config, disk, files, found)
        self._reader = SliceReader(files)
        self._unchecked = Unchecked(found.segments)

    def read(
        self, offset: int, max_bytes: int, up_to_offset: int, *, at_least_one: bool = True
    ) -> Slice | None:
        """Whole batches from `offset` on that end at or before `up_to_offset`.

        At most `max_bytes`, unless the first batch is larger and `at_least_one`. None if there is
        nothing to read yet. OFFSET_OUT_OF_RANGE outside [log start, log end]. KAFKA_STORAGE_ERROR
        where the log is damaged, which is offline then.
        """
        self._require_online()
        if not self._start <= offset <= self._end:
            raise OffsetOutOfRange(f"{offset} is not within [{self._start}, {self._end}]")
        end = min(up_to_offset, self._end)
        if offset >= end:
            return None
        try:
            return self._reader.slice(
                self._segments, offset, end, max_bytes, at_least_one=at_least_one
            )
        except OSError as failure:
            self._refuse("read", failure)
        except CorruptMessage as damage:
            self._condemn(self._segments[segment_index(self._segments, offset)], str(damage))

    # -- indexes -------------------------------------------------------------------------------

    def is_indexed(self, offset: int) -> bool:
        """Whether `read` finds an offset without reading, or making anew, a whole index."""
        segment = self._segments[-1] if self._segments else None
        if segment is None or offset >= segment.base_offset:
            return segment is None or segment.index is not None
        return self._segments[segment_index(self._segments, offset)].index is not None

    def begin_index(self, offset: int) -> IndexJob:
        """A job that gets the index for `offset`, for an executor and then `end_index`."""
        self._require_online()
        segment = self._segments[segment_index(self._segments, offset)]
        return IndexJob(self._disk, self.directory, segment)

    def end_index(self, job: IndexJob) -> None:
        """Take an index back. KAFKA_STORAGE_ERROR if the disk failed."""
        self._require_online()
        if job.segment not in self._segments:
            return  # cut, cleaned or expired meanwhile
        if job.failure is not None:
            self._refuse("read", job.failure)
        if job.index is not None:
            self._files.take_index(job.segment, job.index)

    # -- checking ------------------------------------------------------------------------------

    def needs_check(self, found: Slice) -> bool:
        """Whether a slice must be checked before it is served: a disk may have changed it."""
        return self._unchecked.touches(found)

    def begin_check(self, found: Slice) -> CheckJob:
        """A job that checks a slice just read, for an executor and then `end_check`."""
        self._require_online()
        segment = next(each for each in self._segments if each.name == found.segment_id)
        epochs = LeaderEpochs(self.epochs.entries())
        return CheckJob(self._disk, self._files, segment, found, segment.size, epochs)

    def end_check(self, job: CheckJob) -> None:
        """Take a check back. KAFKA_STORAGE_ERROR at damage: the log is offline then.

        When it is opened again it ends before the damage, and is not whole.
        """
        self._require_online()
        if job.segment not in self._segments:
            return  # cut, cleaned or expired meanwhile
        if job.failure is not None:
            self._refuse("check", job.failure)
        if job.damage is not None:
            self._condemn(job.segment, job.damage)
        self._unchecked.remove(job.segment.name, job.found.position, job.end)

    def is_recent(self, found: Slice) -> bool:
        """Whether a slice just read was written lately, and so is in memory in all likelihood."""
        last = self._segments[-1]
        behind = last.size - found.position
        return found.segment_id == last.name and last.fd >= 0 and behind <= RECENT_BYTES

    def load(self, found: Slice) -> bytes:
        """The bytes of a slice just read, for readers that cannot map files. Blocking if cold."""
        try:
            return self._files.bytes_at(self._segment_of(found), found.position, found.length)
        except OSError as failure:
            self._refuse("read", failure)

    def begin_load(self, found: Slice) -> LoadJob:
        """The same as a job for an executor, and then `end_load`."""
        self._require_online()
        return LoadJob(self._disk, self._files, self._segment_of(found), found)

    def end_load(self, job: LoadJob) -> bytes:
        """The bytes. KAFKA_STORAGE_ERROR if the disk failed, and the log is offline then.

        Or if the segment was cut, cleaned or expired meanwhile, and its file is gone.
        """
        self._require_online()
        if job.failure is None:
            return job.data
        if job.segment in self._segments:
            self._refuse("read", job.failure)
        raise KafkaStorageError(f"segment {job.found.segment_id} is gone meanwhile")

    def _segment_of(self, found: Slice) -> Segment:
        index = segment_index(self._segments, found.first_offset)
        for segment in self._segments[index : index + 2]:
            if segment.name == found.segment_id:
                return segment
        raise OffsetOutOfRange(f"segment {found.segment_id} is gone")

    def begin_lookup(self, timestamp: int | None) -> LookupJob:
        """A job that finds the first record not older than `timestamp`, in ms (KIP-79).

        None: the first one with the largest timestamp (KIP-734). For an executor and then
        `end_lookup`. The caller hides what lies at or above the high watermark.
        """
        self._require_online()
        growing = [copy(each) for each in self._segments[-1:]]
        segments = (*self._segments[:-1], *growing)
        return LookupJob(self._disk, self.directory, segments, self._start, timestamp)

    def end_lookup(self, job: LookupJob) -> bool:
        """Take a lookup back; False if the log has lost meanwhile what it looked at: look again.

        KAFKA_STORAGE_ERROR if the disk failed, or the log is damaged, which is offline then.
        """
        self._require_online()
        looked_at = None if job.looked_at is None else job.looked_at.name
        segment = next((each for each in self._segments if each.name == looked_at), None)
        if job.failure is not None or job.damage is not None:
            if segment is None:
                return False
            if job.failure is not None:
                self._refuse("read", job.failure)
            self._condemn(segment, job.damage or "")
        return job.found is None or job.found.offset >= self._start

    def last_stable_offset(self, high_watermark: int) -> int:
        """Exclusive end of what readers of committed records may see (KIP-98)."""
        return max(self.producers.last_stable_offset(high_watermark), self._start)

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [offset, end_offset), in order of their markers."""
        aborted: list[AbortedTransaction] = []
        for segment in self._segments[segment_index(self._segments, offset) :]:
            for transaction in segment.aborted or ():
                if transaction.last_offset >= offset and transaction.first_offset < end_offset:
                    aborted.append(transaction)
                if transaction.last_stable_offset >= end_offset:
                    return aborted
        return aborted
