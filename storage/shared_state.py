"""State that the parts of one log share: segments, bounds, producers and disk failures."""

from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from raylog.storage.checkpoint import Claims, CleanEnd, CleanerState, LogState, WrittenPoint
from raylog.storage.config import LogConfig
from raylog.storage.disk import Disk, is_passing
from raylog.storage.epochs import LeaderEpochs
from raylog.storage.files import SegmentFiles
from raylog.storage.layout import index_name, producers_name
from raylog.storage.producers import ProducerSnapshot, ProducerStates
from raylog.storage.segment import Segment
from raylog.wire.errors import KafkaStorageError


class Snapshot(NamedTuple):
    """Producer states to be encoded and written."""

    offset: int
    states: ProducerSnapshot


@dataclass(slots=True, eq=False)
class SharedLogState:
    """The state of one open log. `Recovery` makes it; the parts of `Log` change it.

    Invariants: start_offset <= end_offset; recovery_point <= end_offset, and all bytes before the
    recovery point are durable, including those before the start. Nothing below end_offset in a
    segment's file is ever overwritten or cut. Only the last segment grows.
    """

    directory: str
    config: LogConfig
    disk: Disk
    files: SegmentFiles
    saved: LogState = field(default_factory=LogState)
    """The state in the newest checkpoint."""
    segments: list[Segment] = field(default_factory=list)
    """Oldest first."""
    start_offset: int = 0
    end_offset: int = 0
    """Exclusive."""
    recovery_point: int = 0
    held: int = 0
    """Exclusive end of what the log certainly held before it was damaged; 0 if it never was."""
    generation: int = 0
    """Part of a segment's name, so that no name is used twice."""
    claims: Claims | None = None
    """Where timestamps still have to be corrected; None if all are right."""
    clean_end: CleanEnd | None = None
    """What a clean close left; None once the log has changed."""
    written: WrittenPoint | None = None
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerStates = field(default_factory=ProducerStates)
    snapshots: list[int] = field(default_factory=list)
    """Offsets of the producer snapshots on disk."""
    retired: list[Segment] = field(default_factory=list)
    """Full segments that the next flush closes."""
    cleaner: CleanerState = field(default_factory=CleanerState)
    set_aside: list[str] = field(default_factory=list)
    """Segments that follow damage, kept until the log is whole."""
    has_holes: bool = False
    """Whether a file on disk records that offsets may be missing."""
    pending_snapshots: list[Snapshot] = field(default_factory=list)
    """Snapshots for the next checkpoint to write."""
    to_delete: list[tuple[int, str]] = field(default_factory=list)
    """(when due, name) of files to be removed."""
    flush_failed: bool = False
    """Whether unflushed data is in doubt; `Log.open` must then be given `flush_failed`."""
    offline: str | None = None
    """Why every further call raises KAFKA_STORAGE_ERROR."""
    refused: str | None = None
    """Why the disk refused the newest write."""
    damaged_base_offset: int | None = None
    """Base offset of a damaged segment; the next opening scans from it."""

    @property
    def is_whole(self) -> bool:
        """Whether the log holds as much as it certainly held before it was damaged."""
        return self.end_offset >= self.held

    # -- failures ------------------------------------------------------------------------------

    def require_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log is offline."""
        if self.offline is not None:
            raise KafkaStorageError(self.offline)

    def refuse(self, what: str, failure: OSError) -> NoReturn:
        """Raise KAFKA_STORAGE_ERROR; take the log offline unless the failure may pass."""
        if is_passing(failure):
            self.refused = f"{self.directory}: {what}: {failure}"
            raise KafkaStorageError(self.refused) from failure
        self.go_offline(what, failure)

    def go_offline(self, what: str, failure: OSError) -> NoReturn:
        """Take the log offline because the disk failed: no more I/O until it is opened again."""
        self.offline = f"{self.directory} is offline: {what}: {failure}"
        raise KafkaStorageError(self.offline) from failure

    def mark_damaged(self, segment: Segment, damage: str) -> NoReturn:
        """Take the log offline because a durable segment is damaged; the next opening scans it."""
        self.damaged_base_offset = segment.base_offset
        self.offline = f"{self.files.path(segment.name)} is damaged: {damage}"
        raise KafkaStorageError(self.offline)

    # -- segments and snapshots ----------------------------------------------------------------

    def move_start(self, offset: int) -> None:
        """Move the log start to `offset`; the next checkpoint makes that durable."""
        self.start_offset = offset
        self.claims = self.claims and self.claims.within(offset, self.end_offset)
        self.epochs.truncate_from_start(offset)
        self.producers.forget_below(offset)

    def close_descriptor(self, segment: Segment) -> None:
        """Close a segment's file if it is open."""
        if segment.fd >= 0:
            self.disk.close(segment.fd)
            segment.fd = -1

    def keep_snapshot(self) -> None:
        """Schedule a snapshot of the producers as of the log end for the next checkpoint."""
        pending = {snapshot.offset for snapshot in self.pending_snapshots}
        if self.end_offset not in pending and self.end_offset not in self.snapshots:
            self.pending_snapshots.append(Snapshot(self.end_offset, self.producers.snapshot()))

    def schedule_segment_deletion(self, gone: list[Segment], now_ms: int) -> None:
        """Schedule files for removal after `file.delete.delay.ms`; readers may still use them."""
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in gone:
            self.close_descriptor(segment)
            self.files.release_index(segment)
            self.to_delete += [(due_ms, segment.name), (due_ms, index_name(segment.name))]
        self.retired = [each for each in self.retired if each not in gone]

    def schedule_snapshot_deletion(self, now_ms: int) -> None:
        """Drop snapshots where no scan begins: all but the newest and those at segment starts."""
        useful = {segment.base_offset for segment in self.segments} | set(self.snapshots[-1:])
        self.to_delete += [
            (now_ms, producers_name(each)) for each in self.snapshots if each not in useful
        ]
        self.snapshots = [each for each in self.snapshots if each in useful]
