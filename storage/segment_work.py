"""Work that writes segments of a log anew: what it takes and brings about, reading, writing.

Work is done in steps, which a process of its own may do: it is plain data until its first step, and
what a step brings about is plain data, too. It reads segments that are closed and writes temporary
files, nothing else: they count once `clean_job.py` gives them names.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from raylog.storage.compaction import placeholder
from raylog.storage.disk import Disk, Writable, remove
from raylog.storage.index import AbortedTransaction, SegmentSummary, encode_index
from raylog.storage.layout import TEMPORARY_SUFFIX, index_name
from raylog.storage.scan import Surroundings, scan
from raylog.storage.segment import Segment
from raylog.wire.errors import KafkaError
from raylog.wire.records import NO_PRODUCER_ID, BatchHeader, read_header

_BUFFER_BYTES = 1024 * 1024
_RECORDS_BETWEEN_PAUSES = 500
_BYTES_LIKE_A_RECORD = 1024
"""A pause comes after so many records, or after as much work on other bytes."""

Pause = Callable[[int], None]
"""Called every millisecond or so with the bytes read and written since: rests, and limits them."""


class Source(NamedTuple):
    """A segment that is to be read, as it was when the work began."""

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
    """What a step did: the next source stays as it is, if need be though it is damaged."""

    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """There was nothing left to do."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A step that came to nothing. `damaged` is the segment that is not what it was."""

    failure: OSError | KafkaError
    damaged: str | None = None


Outcome = KeysRead | Made | Unchanged | Finished | Failed


class Stopped(Exception):
    """The log needs its segments for something else."""


class Damaged(Exception):
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


class Filled(NamedTuple):
    """What a segment was filled with: so many sources, their aborted transactions."""

    group: int
    aborted: list[AbortedTransaction]


class SegmentOutput:
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


class SegmentReader:
    """Reads segments for work, and rests in between."""

    __slots__ = ("_bytes", "_directory", "_disk", "_pause", "_records", "_stopping")

    def __init__(self, disk: Disk, directory: str, pause: Pause) -> None:
        self._disk = disk
        self._directory = directory
        self._pause = pause
        self._records = 0  # since the last pause
        self._bytes = 0
        self._stopping = False

    def stop(self) -> None:
        """End whoever reads with `Stopped`, soon. From any thread."""
        self._stopping = True

    def batches(self, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
        """All batches of a segment, checked; `Damaged` if they end before it does."""
        end = 0
        fd = self._disk.open(f"{self._directory}/{source.name}")
        try:
            around = Surroundings(source.base_offset, end_offset=source.next_offset)
            for position, header, batch in scan(
                self._disk, fd, 0, source.size, around=around, check=True
            ):
                end = position + header.size
                self._spend(header.record_count, header.size)
                yield header, batch
        finally:
            self._disk.close(fd)
        if end != source.size:
            raise Damaged(source.name, end)

    def wrote(self, size: int) -> None:
        """So many bytes were written: the next pause is for them, too."""
        self._bytes += size

    def _spend(self, records: int, size: int) -> None:
        self._bytes += size
        self._records += records + size // _BYTES_LIKE_A_RECORD + 1
        if self._records >= _RECORDS_BETWEEN_PAUSES:
            spent, self._bytes, self._records = self._bytes, 0, 0
            self._pause(spent)
            if self._stopping:
                raise Stopped


def make_segment(
    disk: Disk,
    directory: str,
    token: str,
    segment: Segment,
    interval_bytes: int,
    fill: Callable[[SegmentOutput], Filled | None],
) -> Made | None:
    """Write a segment and its index under temporary names, what `fill` puts into it.

    Nothing stays where that says None, or raises. Blocking; OSError.
    """
    names = (segment.name, index_name(segment.name))
    path, index_path = [temporary_path(directory, name, token) for name in names]
    made: Made | None = None
    try:
        output = SegmentOutput(disk, path, segment, interval_bytes)
        try:
            filled = fill(output)
            if filled is None:
                return None
            output.sync()
        finally:
            output.close()
        assert segment.index is not None, "it was just written"
        summary = segment.summary()
        _write_all(disk, index_path, encode_index(summary, segment.index, filled.aborted))
        made = Made(filled.group, segment.name, summary, filled.aborted)
        return made
    finally:
        if made is None:
            remove(disk, path)
            remove(disk, index_path)
