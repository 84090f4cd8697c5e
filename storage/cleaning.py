"""Cleaning a log: reads the keys, then writes segments anew without what later records overtook.

A job (`jobs.py`) in steps. The first step reads the keys, each further one makes one segment of a
group of neighbours, as many as surely fit: `run` in an executor thread, then the log's `end_clean`,
until that says that it is done. A segment takes the place of its group in this order:

1. its file is written under a temporary name and made durable, then its index;
2. the `cleaner` file says, durably, what it stands for;
3. it gets its name, durably;
4. the log reads it instead of the group, whose files go like those that expired.

Whatever a crash leaves of this, opening finds either the group or the segment: what has its name
has passed 2. A full disk ends the cleaning before 3, and the group stays.

A cleaned segment ends at the offset at which its group did, with a batch of no records if need
be, so that no offsets are missing between segments.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from raylog.storage.checkpoint import CleanerFile, CleanerState, Swap, write_file
from raylog.storage.cleanable import fits
from raylog.storage.cleaned_transactions import CleanedTransactions
from raylog.storage.compaction import Compaction, key_records, placeholder
from raylog.storage.config import LogConfig
from raylog.storage.disk import Disk, Writable, remove
from raylog.storage.files import SegmentFiles
from raylog.storage.index import AbortedTransaction, encode_index
from raylog.storage.latest import LatestOffsets
from raylog.storage.layout import TEMPORARY_SUFFIX, index_name, segment_name
from raylog.storage.producers import LastOfProducer
from raylog.storage.scan import Surroundings, scan
from raylog.storage.segment import Segment
from raylog.wire.errors import CorruptMessage, DecodeError, KafkaError
from raylog.wire.records import NO_PRODUCER_ID, BatchHeader, read_header

_BUFFER_BYTES = 1024 * 1024
_RECORDS_BETWEEN_PAUSES = 500
_BYTES_LIKE_A_RECORD = 1024
"""A pause comes after so many records, or after as much work on other bytes."""

Pause = Callable[[int], None]
"""Called every millisecond or so with the bytes read and written since: rests, and limits them."""


class _Stopped(Exception):
    """The log needs its segments for something else."""


class _Output:
    """A segment that is being written under its temporary name."""

    def __init__(self, disk: Disk, path: str, segment: Segment, interval_bytes: int) -> None:
        self.segment = segment
        self.rewritten = 0
        """Batches that are not what they were, or not there."""
        self._disk = disk
        self._interval_bytes = interval_bytes
        self._parts: list[bytes] = []
        self._buffered = 0
        self._written = 0
        self._dropped: BatchHeader | None = None  # if it was the last one
        self._fd = disk.open(path, create=True)
        disk.ftruncate(self._fd, 0)

    def add(self, header: BatchHeader, batch: Writable) -> None:
        """Write a batch."""
        self._dropped = None
        self.segment.note(header, header.base_offset, self._interval_bytes)
        self._parts.append(bytes(batch))
        self._buffered += len(batch)
        if self._buffered >= _BUFFER_BYTES:
            self._write()

    def drop(self, header: BatchHeader) -> None:
        """Leave a batch out."""
        self._dropped = header
        self.rewritten += 1

    def end(self) -> None:
        """Make the offsets end where they did."""
        header = self._dropped
        if header is not None:
            is_placeholder = header.record_count == 0 and header.producer_id == NO_PRODUCER_ID
            self.rewritten -= is_placeholder
            batch = placeholder(header)
            self.add(read_header(batch), batch)

    def _write(self) -> None:
        data = memoryview(b"".join(self._parts))
        self._parts.clear()
        self._buffered = 0
        while data:
            written = self._disk.pwritev(self._fd, (data,), self._written)
            self._written += written
            data = data[written:]

    def sync(self) -> None:
        """Have everything durable. Blocking."""
        self._write()
        assert self.segment.size == self._written, "headers tell the sizes of their batches"
        self._disk.fdatasync(self._fd)
        self.segment.file_size = self._written

    def close(self) -> None:
        """Give the descriptor back."""
        self._disk.close(self._fd)


@dataclass(slots=True)
class CleanJob:
    """One cleaning of the first segments of a log, which are closed and durable.

    `swapped` is what the last step made, for the log: the group and the segment in its place.
    """

    disk: Disk
    files: SegmentFiles
    cleaner_file: CleanerFile
    state: CleanerState  # as it is on disk
    config: LogConfig
    segments: list[Segment]
    generation: int  # of the segments made; none had it before
    aborted: list[AbortedTransaction]
    producers: Mapping[int, LastOfProducer]
    now_ms: int
    memory_bytes: int
    pause: Pause
    failure: OSError | KafkaError | None = None
    damaged: Segment | None = None
    done: bool = False
    stopping: bool = False
    swapped: tuple[list[Segment], Segment] | None = None
    records_read: int = 0
    _covered: deque[Segment] = field(default_factory=deque)  # those that are still to be cleaned
    _compaction: Compaction | None = None
    _transactions: CleanedTransactions = field(init=False)
    _clean_end: int = 0
    _records: int = 0  # since the last pause
    _bytes: int = 0

    def run(self) -> None:
        """One step. Blocking; call until `done` or `failure`, with `Log.end_clean` after each."""
        self.swapped = None
        try:
            if self._compaction is None:
                self._begin()
            else:
                self._go_on(self._compaction)
        except _Stopped:
            self.done = True
        except DecodeError as failure:
            self.failure = CorruptMessage(str(failure))
        except (OSError, KafkaError) as failure:
            self.failure = failure

    def stop(self) -> None:
        """Let the running step be the last, and end soon."""
        self.stopping = True

    # -- the keys ------------------------------------------------------------------------------

    def _begin(self) -> None:
        start = max(self.state.first_dirty_offset, self.segments[0].base_offset)
        latest = LatestOffsets(start, self.memory_bytes)
        transactions = CleanedTransactions(
            [each for each in self.aborted if each.last_offset >= start]
        )
        for segment in self.segments:
            if segment.next_offset > start and not latest.is_full:
                self._note_keys(segment, latest, transactions)
        self._clean_end = latest.end_offset
        self._covered.extend(
            [each for each in self.segments if each.base_offset < latest.end_offset]
        )
        self._transactions = CleanedTransactions(self.aborted)
        self._compaction = Compaction(
            latest,
            self._transactions,
            self.producers,
            now_ms=self.now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
        )

    def _note_keys(
        self, segment: Segment, latest: LatestOffsets, transactions: CleanedTransactions
    ) -> None:
        for header, batch in self._batches(segment):
            if header.last_offset < latest.start_offset:
                continue
            latest.note(key_records(header, batch, transactions))
            latest.end_offset = header.next_offset
            self.records_read += header.record_count
            if latest.is_full:
                return

    # -- the segments --------------------------------------------------------------------------

    def _go_on(self, compaction: Compaction) -> None:
        if self._covered:
            self._clean(compaction)
            return
        self.state = replace(self.state, first_dirty_offset=self._clean_end)
        self.cleaner_file.write(self.state)
        self.done = True

    def _clean(self, compaction: Compaction) -> None:
        """Make one segment of the next one and those that fit."""
        name = segment_name(self._covered[0].base_offset, self.generation)
        temporary = self.files.path(name) + TEMPORARY_SUFFIX
        segment = Segment(name, self.now_ms)
        try:
            output = _Output(self.disk, temporary, segment, self.config.index_interval_bytes)
            try:
                group = self._rewrite_group(compaction, output)
                changed = len(group) > 1 or output.rewritten > 0
                if changed:
                    output.sync()
            finally:
                output.close()
            if changed:
                self._put_in_place(segment)
                self.swapped = group, segment
            else:
                remove(self.disk, temporary)
        except (OSError, KafkaError, DecodeError, _Stopped):
            remove(self.disk, temporary)
            raise

    def _rewrite_group(self, compaction: Compaction, output: _Output) -> list[Segment]:
        group: list[Segment] = []
        segment = output.segment
        self._transactions.kept.clear()
        while not group or (
            self._covered and fits(segment, self._covered[0], self.config.segment_bytes)
        ):
            group.append(self._covered.popleft())
            self._rewrite(group[-1], compaction, output)
        output.end()
        segment.created_ms = group[-1].created_ms
        segment.aborted = list(self._transactions.kept) or None
        assert segment.next_offset == group[-1].next_offset, "no offsets between segments"
        return group

    def _rewrite(self, source: Segment, compaction: Compaction, output: _Output) -> None:
        """Write what stays of a segment."""
        for header, batch in self._batches(source):
            left = compaction.left_of(header, batch)
            if left is batch:
                output.add(header, batch)
            elif left is None:
                output.drop(header)
            else:
                output.add(read_header(left), left)
                output.rewritten += 1
                self._bytes += len(left)

    def _put_in_place(self, segment: Segment) -> None:
        assert segment.index is not None, "it was just written"
        path = self.files.path(segment.name)
        data = encode_index(segment.summary(), segment.index, segment.aborted or [])
        write_file(self.disk, self.files.path(index_name(segment.name)), data, durable=False)
        segment.index = None
        swaps = (*self.state.swaps, Swap(segment.name, segment.next_offset))
        state = replace(self.state, swaps=swaps)
        try:
            self.cleaner_file.write(state)
            self.disk.rename(path + TEMPORARY_SUFFIX, path)
            self.disk.fsync_dir(path.rpartition("/")[0])
        except OSError:
            remove(self.disk, path)
            remove(self.disk, self.files.path(index_name(segment.name)))
            raise
        self.state = state

    # -- reading -------------------------------------------------------------------------------

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """All batches of a segment, checked; CORRUPT_MESSAGE if they end before it does."""
        end = 0
        with self.files.reading(segment) as fd:
            around = Surroundings(segment.base_offset, end_offset=segment.next_offset)
            for position, header, batch in scan(
                self.disk, fd, 0, segment.size, around=around, check=True
            ):
                end = position + header.size
                self._spend(header.record_count, header.size)
                yield header, batch
        if end != segment.size:
            self.damaged = segment
            raise CorruptMessage(f"{self.files.path(segment.name)} is damaged at byte {end}")

    def _spend(self, records: int, size: int) -> None:
        self._bytes += size
        self._records += records + size // _BYTES_LIKE_A_RECORD + 1
        if self._records >= _RECORDS_BETWEEN_PAUSES:
            spent, self._bytes, self._records = self._bytes, 0, 0
            self.pause(spent)
            if self.stopping:
                raise _Stopped
