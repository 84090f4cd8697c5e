"""The log of one partition replica: segments, appended at the end, read anywhere.

Not for several threads at once. Calls that block on the disk say so, and are made in an executor
while nothing else uses the log: opening, closing, truncation. What must be made durable while the
log is in use is handed out as a job (`jobs.py`) that an executor runs.

A disk that is full refuses a batch (KAFKA_STORAGE_ERROR) and the log goes on when there is space;
any other failure to write, or to make durable, takes the log offline until it is opened again.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from raylog.storage.checkpoint import (
    CleanEnd,
    HighWatermarkFile,
    LogState,
    Reached,
    StateFile,
    WrittenPoint,
    write_file,
)
from raylog.storage.config import LogConfig as LogConfig
from raylog.storage.disk import Disk, is_passing, remove
from raylog.storage.files import SegmentFiles
from raylog.storage.index import encode_index
from raylog.storage.jobs import CheckpointJob, DerivedFile
from raylog.storage.layout import (
    index_name,
    is_log_file,
    producers_name,
    segment_name,
)
from raylog.storage.maintained import MaintainedLog
from raylog.storage.reader import Slice as Slice
from raylog.storage.reader import segment_index
from raylog.storage.recovery import Recovered, Recovery, RecoveryReport, producers_at
from raylog.storage.rewriting import note_if_possible
from raylog.storage.segment import Segment
from raylog.storage.truncation import shortened
from raylog.storage.writer import AppendInfo as AppendInfo


class Log(MaintainedLog):
    """One partition replica's log.

    Its owner appends as leader (`append`) or follower (`append_verbatim`), reads slices, and does
    the upkeep: every few seconds a flush where `needs_flush` and a checkpoint (they close full
    segments and bound what a restart scans), every few minutes `roll_if_due` and `retention`.
    """

    __slots__ = (
        "_checkpoints",
        "_high_watermark_file",
        "_set_aside",
        "_state_file",
        "_state_number",
        "high_watermark_saved",
        "report",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        disk: Disk,
        files: SegmentFiles,
        state_file: StateFile,
        found: Recovered,
    ) -> None:
        super().__init__(directory, config, disk, files, found)
        self.report: RecoveryReport = found.report
        self._state_file = state_file
        self._state_number = 0
        self._checkpoints = 0  # under way
        self._high_watermark_file = HighWatermarkFile(disk, directory)
        self.high_watermark_saved = min(self._high_watermark_file.read().high_watermark, self._end)
        self._set_aside = found.set_aside

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        disk: Disk,
        *,
        now_ms: int,
        clean: bool = True,
        flush_failed: bool = False,
    ) -> "Log":
        """Open or make a log; what a crash left is scanned, `report` says what that took.

        With `clean` false nothing above the recovery point is believed without a scan; with
        `flush_failed`, or a note of that in the directory, it is also written anew. Blocking.
        OSError if the disk fails, KAFKA_STORAGE_ERROR for what a newer build wrote: nothing was
        changed then.
        """
        path = str(directory.absolute())
        disk.mkdir(path)
        files = SegmentFiles(disk, path)
        state_file = StateFile(disk, path)
        recovery = Recovery(path, config, disk, files, now_ms)
        found = recovery.run(state_file, clean=clean, flush_failed=flush_failed)
        return cls(path, config, disk, files, state_file, found)

    # -- figures -------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of data."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> list[str]:
        """Names of the segment files, oldest first."""
        return [segment.name for segment in self._segments]

    @property
    def segment_count(self) -> int:
        """Number of segments."""
        return len(self._segments)

    def reconfigure(self, config: LogConfig) -> None:
        """Obey other settings from now on."""
        self.config = config

    # -- checkpoints ---------------------------------------------------------------------------

    def begin_checkpoint(self, now_ms: int, high_watermark: int) -> CheckpointJob | None:
        """A job that saves the log's state and removes files that expired; None if nothing is due.

        Run in an executor and given to `end_checkpoint`; several may be under way.
        """
        self._require_online()
        index = self._index_of_last()
        if index is not None:
            self._doom_snapshots(now_ms)
        due = [name for due_ms, name in self._doomed if due_ms <= now_ms]
        if self.is_whole:
            due += self._set_aside
            self._set_aside = []
        return self._checkpoint(self._state(), high_watermark, due, index)

    def _index_of_last(self) -> DerivedFile | None:
        """The index of the growing segment, if it grew enough to spare a restart the scan."""
        last = self._segments[-1] if self._segments else None
        if last is None or last.index is None or last.size < last.next_checkpoint_at:
            return None
        last.next_checkpoint_at = last.size + self.config.index_checkpoint_bytes
        self._written = WrittenPoint(self._end, self._disk.boot_id())
        self._keep_snapshot()
        data = encode_index(last.summary(), last.index, last.aborted or [])
        return DerivedFile(index_name(last.name), data)

    def _checkpoint(
        self,
        state: LogState,
        high_watermark: int,
        due: list[str],
        index: DerivedFile | None = None,
    ) -> CheckpointJob | None:
        snapshots, self._pending_snapshots = self._pending_snapshots, []
        fresh = state != self._saved
        if not (fresh or due or snapshots or high_watermark != self.high_watermark_saved):
            return None
        self._doomed = [each for each in self._doomed if each[1] not in due]
        self._state_number += 1
        self._checkpoints += 1
        return CheckpointJob(
            self._disk,
            self._files,
            self.directory,
            self._state_file,
            state if fresh or due else None,
            self._state_number,
            self._high_watermark_file,
            Reached(high_watermark, self._end, self._disk.boot_id()),
            snapshots,
            due,
            index,
        )

    def end_checkpoint(self, job: CheckpointJob) -> None:
        """Take a checkpoint back; KAFKA_STORAGE_ERROR if it failed, then it is due again."""
        self._checkpoints -= 1
        if job.failure is not None:
            self._pending_snapshots = job.snapshots + self._pending_snapshots
            self._doomed += [(0, name) for name in job.doomed]
            self.flush_failed = self.flush_failed or not is_passing(job.failure)
            self._refuse("checkpoint", job.failure)
        if job.state is not None:
            self._saved = job.state
        self.high_watermark_saved = job.reached.high_watermark
        self._snapshots = sorted({*self._snapshots, *(each.offset for each in job.snapshots)})

    @property
    def busy(self) -> bool:
        """Whether a flush, checkpoint or cleaning is under way: no truncation then."""
        return self._flushing is not None or self._checkpoints > 0 or self._cleaning is not None

    def _state(self) -> LogState:
        return LogState(
            log_start_offset=self._start,
            recovery_point=self.recovery_point,
            generation=self._generation,
            epochs=[entry for entry in self.epochs.entries() if entry.start_offset < self._end],
            clean_end=self._clean_end,
            written=self._written,
            held=0 if self.is_whole else self.held,
            claims=self.claims,
        )

    def _save(self) -> None:
        """Make the state durable now. Blocking."""
        self._state_number += 1
        state = self._state()
        self._state_file.write(state, self._state_number)
        self._files.sync_name()
        self._saved = state

    # -- truncation ----------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop every batch that holds `offset` or comes after it, as a follower does. Blocking.

        At or below the log start nothing is left, and the log goes on at `offset`. Afterwards
        segments that were cut have other names. Epochs without records that begin there go in any
        case: the leader may have others. Not while `busy`.
        """
        if offset >= self._end:
            self.epochs.truncate_from_end(offset)
            return
        if offset <= self._start:
            self.truncate_fully(offset)
            return
        self._require_online()
        try:
            self._truncate(offset, now_ms)
        except OSError as failure:
            self._refuse_truncation(failure)

    def _truncate(self, offset: int, now_ms: int) -> None:
        assert not self.busy, "no truncation while a job is under way"
        self._begin_truncation(offset)
        index = segment_index(self._segments, offset)
        last = self._segments[index]
        keep = self._files.position_of(last, offset)
        new = None
        if 0 < keep < last.size:
            name = segment_name(last.base_offset, self._generation)
            new = shortened(self._disk, self._files, last, keep, name)
        self._remove_segments(self._segments[index + 1 :])
        if new is not None:
            new.put_in_place()
            self._unchecked.copied(last.name, keep, name)
            self._remove_segments([last])
            self._segments.append(new.segment(self.config.index_interval_bytes))
        elif keep == 0:
            self._remove_segments([last])
        end = self._segments[-1].next_offset if self._segments else self._start
        self._end_at(max(self._start, min(offset, end)), now_ms)

    def truncate_fully(self, offset: int) -> None:
        """Drop everything; the log goes on at `offset`, empty. Blocking."""
        assert not self.busy, "no truncation while a job is under way"
        self._require_online()
        try:
            self._begin_truncation(0)
            self._remove_segments(list(self._segments))
            self._drop_snapshots_above(-1)
            self._start = self.recovery_point = offset
            self.epochs.truncate_from_end(0)
            self._end_at(offset, 0)
        except OSError as failure:
            self._refuse_truncation(failure)

    def _refuse_truncation(self, failure: OSError) -> NoReturn:
        """What it made durable may be so or not, whatever is read: opening writes it anew."""
        if not is_passing(failure):
            self.flush_failed = True
            note_if_possible(self._disk, self.directory)
        self._refuse("truncation", failure)

    def _begin_truncation(self, offset: int) -> None:
        """Use up the names given so far, even if a crash follows, and remove what expired.

        What was held from `offset` on is not missed from now on: whoever leads has other records.
        """
        self._write_snapshots()  # they stand for records that expired, too
        self._generation += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.held = min(self.held, offset)
        self._clean_end = None
        self._written = None
        self._save()
        high_watermark = min(self.high_watermark_saved, offset)
        self._high_watermark_file.write(Reached(high_watermark, offset, self._disk.boot_id()))
        self.high_watermark_saved = high_watermark
        for _, name in self._doomed:
            remove(self._disk, self._files.path(name))
        self._doomed.clear()

    def _remove_segments(self, segments: list[Segment]) -> None:
        """Remove files from the end backwards, so that a crash leaves no gap."""
        for segment in reversed(segments):
            self._close_descriptor(segment)
            remove(self._disk, self._files.path(segment.name))
            remove(self._disk, self._files.path(index_name(segment.name)))
            self._segments.remove(segment)
        self._retired = [each for each in self._retired if each not in segments]

    def _end_at(self, offset: int, now_ms: int) -> None:
        """The log ends here now: so do epochs and producers."""
        self._end = offset
        self.claims = self.claims and self.claims.within(self._start, offset)
        self._clean_end = None
        self._written = None
        self._reader.forget()
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_from_end(offset)
        if self._cleaner.first_dirty_offset > offset:
            self._cleaner = replace(self._cleaner, first_dirty_offset=offset)
            self._cleaner_file.write(self._cleaner)
        self._drop_snapshots_above(offset)
        self.producers = producers_at(
            self._disk, self._files, self._segments, self._snapshots, offset, now_ms
        )
        self._keep_snapshot()
        self._write_snapshots()
        self._save()

    def _write_snapshots(self) -> None:
        """Write now what the next checkpoint would. Blocking."""
        while self._pending_snapshots:
            snapshot = self._pending_snapshots[0]
            path = self._files.path(producers_name(snapshot.offset))
            write_file(self._disk, path, snapshot.states.encode(), durable=True)
            self._snapshots = sorted({*self._snapshots, snapshot.offset})
            del self._pending_snapshots[0]

    def _drop_snapshots_above(self, offset: int) -> None:
        self._pending_snapshots = [e for e in self._pending_snapshots if e.offset <= offset]
        for stale in [each for each in self._snapshots if each > offset]:
            remove(self._disk, self._files.path(producers_name(stale)))
            self._snapshots.remove(stale)

    # -- the end -------------------------------------------------------------------------------

    def close(self, high_watermark: int | None = None) -> None:
        """Leave everything durable, so that opening needs no scan; the log is then offline.

        Blocking; not while `busy`. KAFKA_STORAGE_ERROR if the disk fails: opening will scan.
        """
        try:
            if self._offline is None:
                self._close_cleanly(high_watermark)
            elif self._condemned is not None:
                self._have_scanned(self._condemned)
            elif self.flush_failed:
                self._note_failure()
        except OSError as failure:
            if not is_passing(failure):
                self.flush_failed = True
                self._note_failure()
            self._go_offline("close", failure)
        finally:
            for segment in self._segments:
                self._close_descriptor(segment)
            self._offline = self._offline or f"{self.directory} is closed"

    def _close_cleanly(self, high_watermark: int | None) -> None:
        last = self._segments[-1] if self._segments else None
        if last is not None and last.file_size > last.size and not last.sealed:
            with self._files.reading(last) as fd:
                self._disk.ftruncate(fd, last.size)
            last.file_size = last.size
        job = self.begin_flush()
        job.run()
        self.end_flush(job)
        if last is not None:
            self._write_last(last)
            if last.file_size == last.size:
                self._clean_end = CleanEnd(last.name, last.size, last.next_offset)
        self._written = None
        checkpoint = self._checkpoint(
            self._state(),
            self.high_watermark_saved if high_watermark is None else high_watermark,
            [name for _, name in self._doomed],
        )
        if checkpoint is not None:
            checkpoint.run()
            self.end_checkpoint(checkpoint)

    def _note_failure(self) -> None:
        """Have opening write anew what was not flushed, and miss what it cannot read any more."""
        high_watermark = min(self.high_watermark_saved, self._end)
        reached = Reached(high_watermark, self._end, self._disk.boot_id())
        note_if_possible(self._disk, self.directory)
        with suppress(OSError):  # this process knows (`flush_failed`)
            self._high_watermark_file.write(reached)

    def _have_scanned(self, offset: int) -> None:
        """Leave a state by which opening scans from `offset` on, and misses what is damaged."""
        self._state_number += 1
        state = replace(
            self._state(),
            recovery_point=min(self.recovery_point, offset),
            clean_end=None,
            written=None,
            held=max(self.held, self._end),
        )
        self._state_file.write(state, self._state_number)

    def _write_last(self, last: Segment) -> None:
        """Write what belongs to the last segment, unless it is what was read on opening."""
        if last.index is not None:
            path = self._files.path(index_name(last.name))
            data = encode_index(last.summary(), last.index, last.aborted or [])
            write_file(self._disk, path, data, durable=False)
        self._keep_snapshot()

    def delete(self) -> None:
        """Close without care and remove every file of the log. Blocking; not while `busy`."""
        for segment in self._segments:
            self._close_descriptor(segment)
        self._offline = f"{self.directory} is deleted"
        for name in self._disk.listdir(self.directory):
            if is_log_file(name):
                remove(self._disk, self._files.path(name))
