"""Lookups by timestamp (KIP-79, KIP-734)."""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

from raylog.storage.files import SegmentFiles
from raylog.storage.segment import Segment
from raylog.wire.errors import CorruptMessage, KafkaError
from raylog.wire.records import NO_TIMESTAMP, BatchHeader, Record, check_crc, iter_records


class TimestampOffset(NamedTuple):
    """A record found by its timestamp (in ms); leader epoch -1 if the batch has none."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(slots=True)
class LookupJob:
    """Find the first record at or after `timestamp`, or with None the first with the largest one.

    It uses its own descriptors and indexes, so the log can be used and changed meanwhile. `found`
    is the result, None if there is no such record. `looked_at` is the segment in which `damage` or
    `failure` occurred.
    """

    files: SegmentFiles
    segments: tuple[Segment, ...]
    start_offset: int
    timestamp: int | None
    found: TimestampOffset | None = None
    looked_at: Segment | None = None
    damage: str | None = None
    failure: OSError | None = None

    def run(self) -> None:
        """Run the job. Blocking; call once."""
        files = SegmentFiles(self.files.disk, self.files.directory)
        copies = self._copies(files)
        try:
            if self.timestamp is None:
                self.found = first_with_max_timestamp(files, copies, self.start_offset)
            else:
                self.found = first_at_or_after(files, copies, self.start_offset, self.timestamp)
        except OSError as failure:
            self.failure = failure
        except CorruptMessage as damage:
            self.damage = str(damage)

    def _copies(self, files: SegmentFiles) -> Iterator[Segment]:
        """Copies of the segments without the descriptors, which the log may close at any time."""
        for segment in self.segments:
            self.looked_at = segment
            own = copy(segment)
            own.fd = -1
            yield own
            files.release_index(own)


def first_at_or_after(
    files: SegmentFiles, segments: Iterable[Segment], start_offset: int, timestamp: int
) -> TimestampOffset | None:
    """The first record from `start_offset` on whose timestamp is at or after `timestamp`."""
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        start = files.index_of(segment).floor_timestamp(timestamp)
        if segment.base_offset < start_offset:
            start = max(start, files.position_of(segment, start_offset))
        for position, header, _ in files.batches(segment, start, check=False):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in _records(files, segment, position, header):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return _found(record, header)
    return None


def first_with_max_timestamp(
    files: SegmentFiles, segments: Iterable[Segment], start_offset: int
) -> TimestampOffset | None:
    """The first record from `start_offset` on that has the largest timestamp."""
    best: TimestampOffset | None = None
    for segment in segments:
        if best is not None and segment.max_timestamp <= best.timestamp:
            continue
        found = _max_in(files, segment, start_offset)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best


def _max_in(files: SegmentFiles, segment: Segment, start_offset: int) -> TimestampOffset | None:
    best = None
    if segment.max_timestamp_offset >= start_offset:
        best = _max_from(files, segment, segment.max_timestamp_offset, start_offset)
    if best is None:  # that batch is below the log start, or compaction emptied it
        best = _max_from(files, segment, start_offset, start_offset)
    return best


def _max_from(
    files: SegmentFiles, segment: Segment, offset: int, start_offset: int
) -> TimestampOffset | None:
    """As `_max_in`, starting at the batch that contains `offset`."""
    start = files.position_of(segment, offset)
    best: TimestampOffset | None = None
    latest = NO_TIMESTAMP - 1  # of earlier batches, whose times are unknown
    for position, header, _ in files.batches(segment, start, check=False):
        if header.max_timestamp <= latest:
            continue
        for record in _records(files, segment, position, header):
            if record.offset >= start_offset and record.timestamp > latest:
                best, latest = _found(record, header), record.timestamp
        if best is not None and best.timestamp == segment.max_timestamp:
            break
    return best


def _records(
    files: SegmentFiles, segment: Segment, position: int, header: BatchHeader
) -> Iterator[Record]:
    """Yield a batch's records up to the first unreadable one, which older builds let pass.

    Raises CORRUPT_MESSAGE if the disk has changed the batch.
    """
    batch = files.bytes_at(segment, position, header.size)
    check_crc(batch, header)
    try:
        yield from iter_records(batch)
    except KafkaError:
        return


def _found(record: Record, header: BatchHeader) -> TimestampOffset:
    return TimestampOffset(record.offset, record.timestamp, header.partition_leader_epoch)
