"""Work that rewrites segments of a log: its steps' results, and how it reads and writes.

A separate process may do the steps: work is plain data until its first step, and so are the
results. A step reads closed segments and writes temporary files, nothing else; these take effect
once `clean_job.py` gives them their names.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from raylog.storage.compaction import placeholder
from raylog.storage.disk import Disk, Writable, opened, remove, write_fully
from raylog.storage.index import AbortedTransaction, SegmentSummary, encode_index
from raylog.storage.layout import TEMPORARY_SUFFIX, index_name
from raylog.storage.scan import Surroundings, scan
from raylog.storage.segment import Segment
from raylog.wire.errors import KafkaError
from raylog.wire.records import NO_PRODUCER_ID, BatchHeader, read_header

_BUFFER_BYTES = 1024 * 1024
_RECORDS_BETWEEN_PAUSES = 500
_BYTES_LIKE_A_RECORD = 1024
"""Pause after this many records, or after the same amount of work on other bytes."""

Pause = Callable[[int], None]
"""Called every millisecond or so with the bytes read and written since; sleeps and throttles."""


class Source(NamedTuple):
    """A segment to be read, as it was when the work began."""

    name: str
    base_offset: int
    next_offset: int
    size: int  # size of the data in bytes


@dataclass(frozen=True, slots=True)
class KeysRead:
    """Outcome of a step: it read the keys below `end_offset`, from `records` records."""

    end_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class Made:
    """Outcome of a step: it wrote a segment for the next `group` of the sources.

    Its files have temporary names. The data is durable; the index could be rebuilt.
    """

    group: int
    name: str
    summary: SegmentSummary
    aborted: list[AbortedTransaction]


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Outcome of a step: the next source stays unchanged, possibly because it is damaged."""

    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Outcome of a step: there was nothing left to do."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Outcome of a step that failed. `damaged` names a damaged segment."""

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


def temporary_path(directory: str, name: str, token: str) -> str:
    """Path of a file until it gets its name; only the token's owner writes there."""
    return f"{directory}/{name}.{token}{TEMPORARY_SUFFIX}"


class Filled(NamedTuple):
    """What a segment was filled with: the number of sources, their aborted transactions."""

    group: int
    aborted: list[AbortedTransaction]


class SegmentOutput:
    """A segment being written under its temporary name."""

    def __init__(self, disk: Disk, path: str, segment: Segment, interval_bytes: int) -> None:
        self.segment = segment
        self.rewritten = 0
        """Number of batches changed or left out."""
        self._disk = disk
        self._interval_bytes = interval_bytes
        self._parts: list[bytes] = []
        self._buffered = 0
        self._written = 0
        self._dropped: BatchHeader | None = None  # the last batch, if it was left out
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
        """Keep the end offset: if the last batch was left out, write an empty one instead."""
        header = self._dropped
        if header is not None:
            is_placeholder = header.record_count == 0 and header.producer_id == NO_PRODUCER_ID
            self.rewritten -= is_placeholder
            batch = placeholder(header)
            self.add(read_header(batch), batch)

    def _write(self) -> None:
        data = b"".join(self._parts)
        self._parts.clear()
        self._buffered = 0
        write_fully(self._disk, self._fd, data, self._written)
        self._written += len(data)

    def sync(self) -> None:
        """Write the rest and sync the file. Blocking."""
        self._write()
        assert self.segment.size == self._written, "headers tell the sizes of their batches"
        self._disk.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self._fd)


class SegmentReader:
    """Reads segments for work, with pauses."""

    __slots__ = ("_bytes", "_directory", "_disk", "_pause", "_records", "_stopping")

    def __init__(self, disk: Disk, directory: str, pause: Pause) -> None:
        self._disk = disk
        self._directory = directory
        self._pause = pause
        self._records = 0  # since the last pause
        self._bytes = 0
        self._stopping = False

    def stop(self) -> None:
        """Make the running read raise `Stopped` soon. Thread-safe."""
        self._stopping = True

    def batches(self, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield all batches of a segment, checked; raise `Damaged` if they end before it does."""
        end = 0
        with opened(self._disk, f"{self._directory}/{source.name}") as fd:
            around = Surroundings(source.base_offset, end_offset=source.next_offset)
            for position, header, batch in scan(
                self._disk, fd, 0, source.size, around=around, check=True
            ):
                end = position + header.size
                self._spend(header.record_count, header.size)
                yield header, batch
        if end != source.size:
            raise Damaged(source.name, end)

    def wrote(self, size: int) -> None:
        """Count `size` bytes written, so that the next pause includes them."""
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
    """Write a segment and its index under temporary names; `fill` supplies the batches.

    If `fill` returns None or raises, nothing is left behind. Blocking; may raise OSError.
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
        with opened(disk, index_path, create=True) as fd:
            write_fully(disk, fd, encode_index(summary, segment.index, filled.aborted), 0)
        made = Made(filled.group, segment.name, summary, filled.aborted)
        return made
    finally:
        if made is None:
            remove(disk, path)
            remove(disk, index_path)
