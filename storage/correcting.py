"""Corrects what older builds stored: batches whose header has a wrong largest timestamp.

Builds before version 2 of the `state` file trusted the client's value, and some clients send 0 or
-1. Retention, `min.compaction.lag.ms` and lookups by time depend on it. All of these, later copies
and rebuilt indexes take it from the log, so the log itself is corrected. `Correction` is work in
steps (`segment_work.py`), one for each segment. A segment with a wrong batch is rewritten with such
batches patched and all positions unchanged.

Unreadable batches are left unchanged, and so is a damaged segment: a reader will find the damage.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.storage.disk import Disk
from raylog.storage.index import AbortedTransaction
from raylog.storage.layout import segment_name
from raylog.storage.segment import Segment
from raylog.storage.segment_work import (
    Damaged,
    Failed,
    Filled,
    Finished,
    Made,
    Outcome,
    Pause,
    SegmentOutput,
    SegmentReader,
    Source,
    Stopped,
    Unchanged,
    make_segment,
)
from raylog.wire.errors import InvalidRecord, KafkaError
from raylog.wire.record import decode_records
from raylog.wire.records import (
    DECOMPRESSED_BYTES_MAX,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    body_of,
    read_header,
    set_max_timestamp,
    validate_records,
)


class Suspect(NamedTuple):
    """A segment to be checked, and its aborted transactions."""

    source: Source
    aborted: list[AbortedTransaction]


@dataclass(slots=True)
class Correction:
    """The work of correcting some segments of a log, oldest first.

    `token` differs from that of any work that may still run in a process that was lost.
    """

    disk: Disk
    directory: str
    interval_bytes: int
    suspects: deque[Suspect]
    generation: int  # of the segments made; no earlier one had it
    now_ms: int
    pause: Pause
    token: str
    _reader: SegmentReader = field(init=False)

    def __post_init__(self) -> None:
        """Create the reader."""
        self._reader = SegmentReader(self.disk, self.directory, self.pause)

    def step(self) -> Outcome:
        """Check the next segment. Blocking; call until it returns `Finished` or `Failed`."""
        if not self.suspects:
            return Finished()
        suspect = self.suspects.popleft()
        try:
            return Unchanged() if self._is_right(suspect.source) else self._corrected(suspect)
        except Damaged as damage:
            path = f"{self.directory}/{damage.name}"
            return Unchanged(f"{path} is damaged at byte {damage.position}")
        except OSError as failure:
            return Failed(failure)
        except Stopped:
            return Finished()

    def stop(self) -> None:
        """Ask the running step to end soon; no other step follows. Thread-safe."""
        self._reader.stop()

    def _is_right(self, source: Source) -> bool:
        """Whether all batches of a segment are right."""
        return all(
            right_max_timestamp(batch, header) == header.max_timestamp
            for header, batch in self._reader.batches(source)
        )

    def _corrected(self, suspect: Suspect) -> Made | Unchanged:
        source, aborted = suspect

        def fill(output: SegmentOutput) -> Filled:
            for header, batch in self._reader.batches(source):
                timestamp = right_max_timestamp(batch, header)
                if timestamp == header.max_timestamp:
                    output.add(header, batch)
                else:
                    right = bytearray(batch)
                    set_max_timestamp(right, timestamp)
                    output.add(read_header(right), right)
                self._reader.wrote(header.size)
            return Filled(1, aborted)

        segment = Segment(segment_name(source.base_offset, self.generation), self.now_ms)
        made = make_segment(
            self.disk, self.directory, self.token, segment, self.interval_bytes, fill
        )
        assert made is not None, "it was filled"
        return made


def right_max_timestamp(batch: memoryview, header: BatchHeader) -> int:
    """Largest timestamp in a stored batch; the header's value if the batch cannot be read."""
    if (
        header.is_control
        or header.record_count == 0
        or header.timestamp_type is TimestampType.LOG_APPEND_TIME
    ):
        return header.max_timestamp  # set by a broker
    try:
        found = validate_records(batch, header)
    except InvalidRecord:
        return _largest(batch, header)  # a cleaned batch has gaps
    except KafkaError:
        return header.max_timestamp
    assert found is not None, "patience has no end here"
    return found.max_timestamp


def _largest(batch: memoryview, header: BatchHeader) -> int:
    """As `right_max_timestamp`, reading one record at a time."""
    try:
        body = body_of(batch, header, DECOMPRESSED_BYTES_MAX)
        records = decode_records(
            body, header.record_count, header.base_offset, header.base_timestamp
        )
        found = max([record.timestamp for record in records])
    except KafkaError:
        return header.max_timestamp
    return max(found, NO_TIMESTAMP)
