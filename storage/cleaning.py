"""Cleaning a log: reads the keys, then writes segments anew without what later records overtook.

`Cleaning` is work in steps, which a process of its own may do: it is plain data until its first
step, and what a step brings about is plain data, too. It reads segments that are closed and
durable and writes temporary files, nothing else: they count once `clean_job.py` gives them names.

The first step reads the keys, each further one makes one segment of a group of neighbours, as many
as surely fit, and leaves it durable, with its index beside it.

A cleaned segment ends at the offset at which its group did, with a batch of no records if need
be, so that no offsets are missing between segments.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.storage.cleanable import fits
from raylog.storage.cleaned_transactions import CleanedTransactions
from raylog.storage.compaction import Compaction, key_records, placeholder
from raylog.storage.config import LogConfig
from raylog.storage.disk import Disk, Writable, remove
from raylog.storage.index import AbortedTransaction, SegmentSummary, encode_index
from raylog.storage.latest import LatestOffsets
from raylog.storage.layout import TEMPORARY_SUFFIX, index_name, segment_name
from raylog.storage.producers import LastOfProducers
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


class Source(NamedTuple):
    """A segment that is to be cleaned, as it was when the cleaning began."""

    name: str
    base_offset: int
    next_offset: int
    size: int  # in bytes of data


@dataclass(frozen=True, slots=True)
class KeysRead:
    """What a step did: it read the keys below `end_offset`, of so many records."""

    end_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class Made:
    """What a step did: it wrote a segment for the next `group` of the sources.

    Its files have temporary names; the data is durable, the index could be made again.
    """

    group: int
    name: str
    summary: SegmentSummary
    aborted: list[AbortedTransaction]


@dataclass(frozen=True, slots=True)
class Unchanged:
    """What a step did: the next source has nothing to lose."""


@dataclass(frozen=True, slots=True)
class Finished:
    """There was nothing left to do."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A step that came to nothing. `damaged` is the segment that is not what it was."""

    failure: OSError | KafkaError
    damaged: str | None = None


Outcome = KeysRead | Made | Unchanged | Finished | Failed


class _Stopped(Exception):
    """The log needs its segments for something else."""


class _Damaged(Exception):
    """A segment ends before it should."""

    def __init__(self, name: str, position: int) -> None:
        super().__init__(name, position)
        self.name = name
        self.position = position


def _write_all(disk: Disk, path: str, data: bytes) -> None:
    """Make a file."""
    fd = disk.open(path, create=True)
    try:
        _write_at(disk, fd, memoryview(data), 0)
    finally:
        disk.close(fd)


def _write_at(disk: Disk, fd: int, data: memoryview, position: int) -> None:
    while data:
        written = disk.pwritev(fd, (data,), position)
        position += written
        data = data[written:]


def temporary_path(directory: str, name: str, token: str) -> str:
    """Where a file is written before it has its name; nobody with another token writes there."""
    return f"{directory}/{name}.{token}{TEMPORARY_SUFFIX}"


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
        _write_at(self._disk, self._fd, data, self._written)
        self._written += len(data)

    def sync(self) -> None:
        """Have everything durable. Blocking."""
        self._write()
        assert self.segment.size == self._written, "headers tell the sizes of their batches"
        self._disk.fdatasync(self._fd)

    def close(self) -> None:
        """Give the descriptor back."""
        self._disk.close(self._fd)


@dataclass(slots=True)
class Cleaning:
    """The work of one cleaning of the first segments of a log.

    `token` is unlike that of any cleaning that might still be running, of a process that is lost.
    """

    disk: Disk
    directory: str
    config: LogConfig
    sources: list[Source]
    first_dirty_offset: int
    generation: int  # of the segments made; none had it before
    aborted: list[AbortedTransaction]
    producers: LastOfProducers
    now_ms: int
    memory_bytes: int
    pause: Pause
    token: str
    _covered: deque[Source] = field(default_factory=deque)  # those that are still to be cleaned
    _compaction: Compaction | None = None
    _transactions: CleanedTransactions = field(init=False)
    _records: int = 0  # since the last pause
    _bytes: int = 0
    _stopping: bool = False

    def step(self) -> Outcome:
        """Do one step. Blocking; call until it has `Finished` or `Failed`."""
        try:
            if self._compaction is None:
                return self._read_keys()
            if self._covered:
                return self._clean(self._compaction)
        except _Damaged as damage:
            path = f"{self.directory}/{damage.name}"
            failure = CorruptMessage(f"{path} is damaged at byte {damage.position}")
            return Failed(failure, damage.name)
        except DecodeError as failure:
            return Failed(CorruptMessage(str(failure)))
        except (OSError, KafkaError) as failure:
            return Failed(failure)
        except _Stopped:
            pass
        return Finished()

    def stop(self) -> None:
        """Let the running step end soon, and be the last. From any thread."""
        self._stopping = True

    # -- the keys ------------------------------------------------------------------------------

    def _read_keys(self) -> KeysRead:
        start = max(self.first_dirty_offset, self.sources[0].base_offset)
        latest = LatestOffsets(start, self.memory_bytes)
        transactions = CleanedTransactions(
            [each for each in self.aborted if each.last_offset >= start]
        )
        records = 0
        for source in self.sources:
            if source.next_offset > start and not latest.is_full:
                records += self._note_keys(source, latest, transactions)
        self._covered.extend(
            [each for each in self.sources if each.base_offset < latest.end_offset]
        )
        self._transactions = CleanedTransactions(self.aborted)
        self._compaction = Compaction(
            latest,
            self._transactions,
            self.producers,
            now_ms=self.now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
        )
        return KeysRead(latest.end_offset, records)

    def _note_keys(
        self, source: Source, latest: LatestOffsets, transactions: CleanedTransactions
    ) -> int:
        """Note a segment's keys, as many as there is room for; how many records those were."""
        records = 0
        for header, batch in self._batches(source):
            if header.last_offset < latest.start_offset:
                continue
            latest.note(key_records(header, batch, transactions))
            latest.end_offset = header.next_offset
            records += header.record_count
            if latest.is_full:
                break
        return records

    # -- the segments --------------------------------------------------------------------------

    def _clean(self, compaction: Compaction) -> Made | Unchanged:
        """Make one segment of the next one and those that fit."""
        name = segment_name(self._covered[0].base_offset, self.generation)
        paths = [
            temporary_path(self.directory, each, self.token) for each in (name, index_name(name))
        ]
        made: Made | None = None
        try:
            made = self._make(compaction, Segment(name, self.now_ms), *paths)
        finally:
            if made is None:
                for path in paths:
                    remove(self.disk, path)
        return made or Unchanged()

    def _make(
        self, compaction: Compaction, segment: Segment, path: str, index_path: str
    ) -> Made | None:
        """Write a segment and its index; None if it would be what is there."""
        output = _Output(self.disk, path, segment, self.config.index_interval_bytes)
        try:
            group = self._rewrite_group(compaction, output)
            if group == 1 and not output.rewritten:
                return None
            output.sync()
        finally:
            output.close()
        assert segment.index is not None, "it was just written"
        made = Made(group, segment.name, segment.summary(), list(self._transactions.kept))
        data = encode_index(made.summary, segment.index, made.aborted)
        _write_all(self.disk, index_path, data)
        return made

    def _rewrite_group(self, compaction: Compaction, output: _Output) -> int:
        """Write what stays of the next segments; how many those were."""
        group = 0
        segment = output.segment
        self._transactions.kept.clear()
        while not group or (
            self._covered and fits(segment, self._covered[0], self.config.segment_bytes)
        ):
            last = self._covered.popleft()
            group += 1
            self._rewrite(last, compaction, output)
        output.end()
        assert segment.next_offset == last.next_offset, "no offsets between segments"
        return group

    def _rewrite(self, source: Source, compaction: Compaction, output: _Output) -> None:
        """Write what stays of a segment."""
        for header, batch in self._batches(source):
            left = compaction.left_of(header, batch)
            if left is batch:
                output.add(header, batch)
            elif left is None:
                output.drop(header)
                continue
            else:
                output.add(read_header(left), left)
                output.rewritten += 1
            self._bytes += len(left)

    # -- reading -------------------------------------------------------------------------------

    def _batches(self, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
        """All batches of a segment, checked; `_Damaged` if they end before it does."""
        end = 0
        fd = self.disk.open(f"{self.directory}/{source.name}")
        try:
            around = Surroundings(source.base_offset, end_offset=source.next_offset)
            for position, header, batch in scan(
                self.disk, fd, 0, source.size, around=around, check=True
            ):
                end = position + header.size
                self._spend(header.record_count, header.size)
                yield header, batch
        finally:
            self.disk.close(fd)
        if end != source.size:
            raise _Damaged(source.name, end)

    def _spend(self, records: int, size: int) -> None:
        self._bytes += size
        self._records += records + size // _BYTES_LIKE_A_RECORD + 1
        if self._records >= _RECORDS_BETWEEN_PAUSES:
            spent, self._bytes, self._records = self._bytes, 0, 0
            self.pause(spent)
            if self._stopping:
                raise _Stopped
