"""Makes a log durable: flushes of its records, checkpoints of its state.

The jobs work on data given to them when they are created, never on the log, so appends and reads
continue meanwhile. A job stores a failure; the log handles it when the job ends.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from raylog.storage.checkpoint import (
    HighWatermarkFile,
    LogState,
    Reached,
    StateFile,
    WrittenPoint,
    write_file,
)
from raylog.storage.config import NEVER
from raylog.storage.disk import is_passing, remove
from raylog.storage.files import SegmentFiles
from raylog.storage.index import encode_index
from raylog.storage.layout import index_name, producers_name
from raylog.storage.rewriting import note_if_possible
from raylog.storage.segment import Segment, segment_index
from raylog.storage.shared_state import SharedLogState, Snapshot


@dataclass(slots=True)
class FlushJob:
    """Make everything below `up_to` durable, and write the indexes of full segments.

    `failure` is a failed write-back: the data may be lost, even if a later sync succeeds. The job
    leaves a note of that on disk at once (`rewriting.py`). `index_failure` concerns an index: the
    first `indexed` segments of `retired` have theirs; the others can be tried again.
    """

    files: SegmentFiles
    up_to: int
    descriptors: list[int] = field(default_factory=list)  # owned by the job, which closes them
    names: list[str] = field(default_factory=list)  # segments without an open descriptor
    retired: list[Segment] = field(default_factory=list)
    indexed: int = 0
    failure: OSError | None = None
    index_failure: OSError | None = None

    def run(self) -> None:
        """Run the job. Blocking; call once."""
        try:
            self._sync()
        except OSError as failure:
            self.failure = failure
            note_if_possible(self.files.disk, self.files.directory)
            return
        try:
            with self.files.lock:
                self._write_indexes()
        except OSError as failure:
            self.index_failure = failure

    def _sync(self) -> None:
        if not self.names and not self.descriptors:
            return
        try:
            for name in self.names:
                self.descriptors.append(self.files.disk.open(self.files.path(name)))
            for fd in self.descriptors:
                self.files.disk.fdatasync(fd)
        finally:
            for fd in self.descriptors:
                self.files.disk.close(fd)
        self.files.disk.fsync_dir(self.files.directory)
        self.files.sync_name()

    def _write_indexes(self) -> None:
        for segment in self.retired:
            index = segment.index
            if index is not None:  # otherwise it was read from its file, which exists
                path = self.files.path(index_name(segment.name))
                data = encode_index(segment.summary(), index, segment.aborted or [])
                write_file(self.files.disk, path, data, durable=False)
            self.indexed += 1


class Flushes:
    """The flushes of one log, one at a time."""

    __slots__ = ("_flushed_ms", "_shared", "job")

    def __init__(self, shared: SharedLogState) -> None:
        self._shared = shared
        self._flushed_ms = 0
        self.job: FlushJob | None = None
        """The flush under way."""

    def is_due(self, now_ms: int) -> bool:
        """Whether segments wait to be closed, or `flush.ms` has passed. False during a flush."""
        shared = self._shared
        if self.job is not None or shared.offline is not None:
            return False
        flush_ms = shared.config.flush_ms
        return bool(shared.retired) or (
            flush_ms < NEVER
            and shared.recovery_point < shared.end_offset
            and not 0 <= now_ms - self._flushed_ms < flush_ms  # negative: the clock was set back
        )

    def begin(self) -> FlushJob:
        """Begin a flush that makes all records so far durable and closes full segments.

        The caller runs the job in an executor and gives it to `end`, whether it failed or not.
        """
        assert self.job is None, "one flush at a time"
        shared = self._shared
        shared.require_online()
        job = FlushJob(shared.files, shared.end_offset)
        last = shared.segments[-1] if shared.segments else None
        try:
            if last is not None and last.fd >= 0 and shared.recovery_point < shared.end_offset:
                job.descriptors.append(shared.disk.duplicate(last.fd))
        except OSError as failure:
            shared.refuse("flush", failure)
        for segment in shared.segments[segment_index(shared.segments, shared.recovery_point) :]:
            if segment.fd < 0 and segment.next_offset > shared.recovery_point:
                job.names.append(segment.name)
        job.retired, shared.retired = shared.retired, []
        for segment in job.retired:
            if segment.fd >= 0:
                job.descriptors.append(segment.fd)
                segment.fd = -1
        self.job = job
        return job

    def end(self, job: FlushJob, now_ms: int = 0) -> None:
        """Apply the result of a flush. KAFKA_STORAGE_ERROR if it failed; it is not repeated."""
        assert job is self.job, "a flush ends once, and was begun here"
        shared = self._shared
        self.job = None
        self._flushed_ms = now_ms
        if job.failure is not None:
            shared.flush_failed = True
            shared.go_offline("flush", job.failure)
        shared.recovery_point = max(shared.recovery_point, job.up_to)
        for segment in job.retired[: job.indexed]:
            shared.files.release_index(segment)
        shared.retired = job.retired[job.indexed :] + shared.retired
        if job.index_failure is not None and not is_passing(job.index_failure):
            shared.go_offline("writing an index", job.index_failure)


class DerivedFile(NamedTuple):
    """A file that can be rebuilt from the segments."""

    name: str
    contents: bytes


@dataclass(slots=True)
class CheckpointJob:
    """Make producer snapshots and the log's state durable, then remove files no longer needed.

    Several may be under way: an older job does not overwrite a newer state. After a lasting
    `failure` it is unknown which state a power loss would leave; a note of that is left at once.
    """

    files: SegmentFiles
    state_file: StateFile
    state: LogState | None  # None if it is already saved
    number: int
    high_watermark_file: HighWatermarkFile
    reached: Reached
    snapshots: list[Snapshot]
    to_delete: list[str]
    index: DerivedFile | None = None  # of the growing segment
    failure: OSError | None = None

    def run(self) -> None:
        """Run the job. Blocking; call once."""
        try:
            with self.files.lock:
                self._write()
        except OSError as failure:
            self.failure = failure
            if not is_passing(failure):
                note_if_possible(self.files.disk, self.files.directory)

    def _write(self) -> None:
        for snapshot in self.snapshots:  # first, as the state lets their records go
            path = self.files.path(producers_name(snapshot.offset))
            write_file(self.files.disk, path, snapshot.states.encode(), durable=True)
        if self.index is not None:
            path = self.files.path(self.index.name)
            write_file(self.files.disk, path, self.index.contents, durable=False)
        if self.state is not None:
            self.state_file.write(self.state, self.number)
            self.files.sync_name()
        self.high_watermark_file.write(self.reached)
        for name in self.to_delete:
            remove(self.files.disk, self.files.path(name))


class Checkpoints:
    """The checkpoints of one log; several may be under way."""

    __slots__ = (
        "_high_watermark_file",
        "_shared",
        "_state_file",
        "_state_number",
        "high_watermark_saved",
        "under_way",
    )

    def __init__(self, shared: SharedLogState, state_file: StateFile) -> None:
        self._shared = shared
        self._state_file = state_file
        self._state_number = 0
        self._high_watermark_file = HighWatermarkFile(shared.disk, shared.directory)
        saved = self._high_watermark_file.read().high_watermark
        self.high_watermark_saved = min(saved, shared.end_offset)
        self.under_way = 0

    def begin(self, now_ms: int, high_watermark: int) -> CheckpointJob | None:
        """Begin saving the log's state and removing expired files; None if nothing is due.

        The caller runs the job in an executor and gives it to `end`.
        """
        self._shared.require_online()
        self._shared.producers.forget_below(high_watermark)  # leaders nobody reads, and followers
        index = self._index_of_last()
        if index is not None:
            self._shared.schedule_snapshot_deletion(now_ms)
        latest_ms = now_ms + self._shared.config.file_delete_delay_ms
        self._shared.to_delete = [  # due soon even if the clock was set back
            (min(due_ms, latest_ms), name) for due_ms, name in self._shared.to_delete
        ]
        due = [name for due_ms, name in self._shared.to_delete if due_ms <= now_ms]
        if self._shared.is_whole:
            due += self._shared.set_aside
            self._shared.set_aside = []
        return self._job(high_watermark, due, index)

    def begin_last(self, high_watermark: int | None) -> CheckpointJob | None:
        """Begin the checkpoint of a clean close, which removes every file to delete, due or not.

        A `high_watermark` of None keeps the saved one. Return None if nothing changed.
        """
        known = self.high_watermark_saved if high_watermark is None else high_watermark
        return self._job(known, [name for _, name in self._shared.to_delete])

    def _index_of_last(self) -> DerivedFile | None:
        """Index of the growing segment, if it grew enough since the last save; else None."""
        last = self._shared.segments[-1] if self._shared.segments else None
        if last is None or last.index is None or last.size < last.next_checkpoint_at:
            return None
        last.next_checkpoint_at = last.size + self._shared.config.index_checkpoint_bytes
        self._shared.written = WrittenPoint(self._shared.end_offset, self._shared.disk.boot_id())
        self._shared.keep_snapshot()
        data = encode_index(last.summary(), last.index, last.aborted or [])
        return DerivedFile(index_name(last.name), data)

    def _job(
        self, high_watermark: int, due: list[str], index: DerivedFile | None = None
    ) -> CheckpointJob | None:
        shared = self._shared
        state = self._state()
        snapshots, shared.pending_snapshots = shared.pending_snapshots, []
        fresh = state != shared.saved
        if not (fresh or due or snapshots or high_watermark != self.high_watermark_saved):
            return None
        shared.to_delete = [each for each in shared.to_delete if each[1] not in due]
        self._state_number += 1
        self.under_way += 1
        return CheckpointJob(
            shared.files,
            self._state_file,
            state if fresh or due else None,
            self._state_number,
            self._high_watermark_file,
            self._reached(high_watermark, shared.end_offset),
            snapshots,
            due,
            index,
        )

    def end(self, job: CheckpointJob) -> None:
        """Apply the result of a checkpoint. KAFKA_STORAGE_ERROR if it failed; it is due again."""
        shared = self._shared
        self.under_way -= 1
        if job.failure is not None:
            shared.pending_snapshots = job.snapshots + shared.pending_snapshots
            shared.to_delete += [(0, name) for name in job.to_delete]
            shared.flush_failed = shared.flush_failed or not is_passing(job.failure)
            shared.refuse("checkpoint", job.failure)
        if job.state is not None:
            shared.saved = job.state
        self.high_watermark_saved = job.reached.high_watermark
        shared.snapshots = sorted({*shared.snapshots, *(each.offset for each in job.snapshots)})

    def _state(self) -> LogState:
        shared = self._shared
        end = shared.end_offset
        return LogState(
            log_start_offset=shared.start_offset,
            recovery_point=shared.recovery_point,
            generation=shared.generation,
            epochs=[entry for entry in shared.epochs.entries() if entry.start_offset < end],
            clean_end=shared.clean_end,
            written=shared.written,
            held=0 if shared.is_whole else shared.held,
            claims=shared.claims,
        )

    # -- immediate: blocking, for a log that nothing else uses ---------------------------------

    def save(self) -> None:
        """Make the state durable."""
        state = self._state()
        self._write(state)
        self._shared.files.sync_name()
        self._shared.saved = state

    def save_damaged(self, offset: int) -> None:
        """Save a state that makes opening scan from `offset` on and detect what damage cost."""
        self._write(
            replace(
                self._state(),
                recovery_point=min(self._shared.recovery_point, offset),
                clean_end=None,
                written=None,
                held=max(self._shared.held, self._shared.end_offset),
            )
        )

    def _write(self, state: LogState) -> None:
        self._state_number += 1
        self._state_file.write(state, self._state_number)

    def save_high_watermark(self, end_offset: int) -> None:
        """Write the high watermark of a log that ends at `end_offset`, and that offset."""
        high_watermark = min(self.high_watermark_saved, end_offset)
        self._high_watermark_file.write(self._reached(high_watermark, end_offset))
        self.high_watermark_saved = high_watermark

    def _reached(self, high_watermark: int, end_offset: int) -> Reached:
        return Reached(high_watermark, end_offset, self._shared.disk.boot_id())

    def write_snapshots(self) -> None:
        """Write the snapshots that wait for the next checkpoint."""
        while self._shared.pending_snapshots:
            snapshot = self._shared.pending_snapshots[0]
            path = self._shared.files.path(producers_name(snapshot.offset))
            write_file(self._shared.disk, path, snapshot.states.encode(), durable=True)
            self._shared.snapshots = sorted({*self._shared.snapshots, snapshot.offset})
            del self._shared.pending_snapshots[0]

    def drop_snapshots_above(self, offset: int) -> None:
        """Remove the snapshots of records beyond `offset`, which are gone."""
        self._shared.pending_snapshots = [
            e for e in self._shared.pending_snapshots if e.offset <= offset
        ]
        for stale in [each for each in self._shared.snapshots if each > offset]:
            remove(self._shared.disk, self._shared.files.path(producers_name(stale)))
            self._shared.snapshots.remove(stale)
