"""The log of one partition replica: segments, appended at the end, read anywhere.

Not thread-safe. Calls that block on the disk say so, and are made in an executor while nothing else
uses the log: opening, closing, truncation. Work that must sync or read files while the log is in
use is returned as a job for an executor.

If the disk is full, a batch is refused (KAFKA_STORAGE_ERROR) and the log continues once there is
space. Any other failed write or sync takes the log offline until it is opened again, and so does a
truncation that fails midway.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from raylog.storage.checkpoint import CleanEnd, StateFile, write_file
from raylog.storage.cleaner import LogCleaner
from raylog.storage.config import NEVER
from raylog.storage.config import LogConfig as LogConfig
from raylog.storage.disk import Disk, is_passing, remove
from raylog.storage.durability import Checkpoints, Flushes
from raylog.storage.files import SegmentFiles
from raylog.storage.index import encode_index
from raylog.storage.layout import index_name, is_log_file, segment_name
from raylog.storage.producers import ProducerStates
from raylog.storage.reader import LogReader
from raylog.storage.recovery import Recovery, RecoveryReport, producers_at
from raylog.storage.retention import expired_count
from raylog.storage.rewriting import note_if_possible
from raylog.storage.segment import Segment, segment_index
from raylog.storage.segment import Slice as Slice
from raylog.storage.shared_state import SharedLogState
from raylog.storage.truncation import put_in_place, shortened
from raylog.storage.writer import AppendInfo as AppendInfo
from raylog.storage.writer import LogWriter
from raylog.wire.errors import KafkaError, OffsetOutOfRange


class Log:
    """One partition replica's log, with one part object for each kind of operation.

    Its owner appends as leader (`append`) or follower (`append_verbatim`) and reads slices
    (`read`). Every few seconds it flushes if `is_due` says so and makes a checkpoint; these close
    full segments and limit how much a restart scans. Every few minutes it calls `roll_if_due` and
    `retention`.
    """

    __slots__ = (
        "append",
        "append_verbatim",
        "checkpoints",
        "cleaner",
        "directory",
        "epochs",
        "flushes",
        "read",
        "reader",
        "report",
        "state",
        "writer",
    )

    def __init__(
        self, state: SharedLogState, state_file: StateFile, report: RecoveryReport
    ) -> None:
        self.state = state
        self.report = report
        """What opening the log took."""
        self.directory, self.epochs = state.directory, state.epochs
        self.reader = LogReader(state)
        self.writer = LogWriter(state)
        self.flushes = Flushes(state)
        self.checkpoints = Checkpoints(state, state_file)
        self.cleaner = LogCleaner(state, self.writer, self.flushes, self.reader)
        self.append = self.writer.append  # bound here: saves a call frame per append
        self.append_verbatim = self.writer.append_verbatim
        self.read = self.reader.read

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
        """Open or create a log. What a crash left is scanned; `report` says what that took.

        With `clean` false, nothing above the recovery point is trusted without a scan. With
        `flush_failed`, or if a note in the directory records a failed flush, that part is also
        rewritten. Blocking. Raises OSError if the disk fails, and KAFKA_STORAGE_ERROR, before
        changing anything, for files of a newer build.
        """
        path = str(directory.absolute())
        disk.mkdir(path)
        state_file = StateFile(disk, path)
        recovery = Recovery(path, config, disk, SegmentFiles(disk, path), now_ms)
        state = recovery.run(state_file, clean=clean, flush_failed=flush_failed)
        return cls(state, state_file, recovery.report)

    # -- figures -------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        return self.state.start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record; exclusive end of the log."""
        return self.state.end_offset

    @property
    def durable_start_offset(self) -> int:
        """The checkpointed log start; a crash never moves it further back."""
        return self.state.saved.log_start_offset

    @property
    def producers(self) -> ProducerStates:
        """The producer states at the log end."""
        return self.state.producers

    @property
    def offline(self) -> bool:
        """Whether the disk failed, so that every further call raises KAFKA_STORAGE_ERROR."""
        return self.state.offline is not None

    @property
    def trouble(self) -> str:
        """Why the newest write failed or the log is offline; empty if the write succeeded."""
        return self.state.offline or self.state.refused or ""

    @property
    def size(self) -> int:
        """Size of the data in bytes."""
        return sum(segment.size for segment in self.state.segments)

    @property
    def segments(self) -> list[str]:
        """Names of the segment files, oldest first."""
        return [segment.name for segment in self.state.segments]

    @property
    def segment_count(self) -> int:
        """Number of segments."""
        return len(self.state.segments)

    def reconfigure(self, config: LogConfig) -> None:
        """Apply new settings."""
        self.state.config = config

    @property
    def busy(self) -> bool:
        """Whether a job that writes is under way; the log cannot be truncated or closed then."""
        writes = self.flushes.job is not None or self.cleaner.job is not None
        return writes or self.checkpoints.under_way > 0

    # -- retention -----------------------------------------------------------------------------

    def roll_if_due(self, now_ms: int) -> bool:
        """Close the last segment if it is older than `segment.ms`: retention may then drop it."""
        self.state.require_online()
        last = self.state.segments[-1] if self.state.segments else None
        if last is None or not last.is_due(-1, now_ms, self.state.config.segment_ms):
            return False
        self.writer.roll(now_ms)
        return True

    def retention(self, now_ms: int, high_watermark: int) -> list[str]:
        """Drop segments that are too old, beyond the size limit, or deleted; return their names.

        No segment is too old while its timestamps are claims (`correcting.py`).

        Call this whatever `cleanup.policy` is, because producers expire too. No segments are
        dropped while the log is cleaned. The log start moves at once. A checkpoint makes that
        durable, then removes the files once `file.delete.delay.ms` has passed, so that readers
        already given them still find them.
        """
        state = self.state
        state.require_online()
        state.files.release_indexes()
        state.producers.expire(now_ms, state.config.producer_expiration_ms)
        try:
            count = expired_count(
                state.segments,
                state.config,
                now_ms=now_ms,
                high_watermark=high_watermark,
                log_start_offset=state.start_offset,
                largest_timestamp=self._largest_timestamp,
            )
        except OSError as failure:
            state.refuse("retention", failure)
        count = min(count, self.cleaner.free_count())
        if count == 0:
            return []
        if count == len(state.segments):
            state.keep_snapshot()
        gone, state.segments = state.segments[:count], state.segments[count:]
        self.reader.forget()
        first = state.segments[0].base_offset if state.segments else state.end_offset
        state.move_start(max(state.start_offset, first))
        state.schedule_segment_deletion(gone, now_ms)
        state.schedule_snapshot_deletion(now_ms)
        return [segment.name for segment in gone]

    def _largest_timestamp(self, segment: Segment) -> int:
        """Like `largest_timestamp`, but a segment with claimed timestamps is never old."""
        claims = self.state.claims
        if claims and segment.next_offset > claims.start and segment.base_offset < claims.end:
            return NEVER
        return self.state.files.largest_timestamp(segment)

    def delete_records_to(self, offset: int) -> None:
        """Move the log start up to `offset`; the next checkpoint makes that durable.

        The caller keeps `offset` at or below the high watermark, and answers after the checkpoint.
        Raises OFFSET_OUT_OF_RANGE beyond the log end. The next retention drops the files.
        """
        self.state.require_online()
        if offset > self.state.end_offset:
            raise OffsetOutOfRange(f"{offset} is beyond the log end {self.state.end_offset}")
        if offset > self.state.start_offset:
            self.state.move_start(offset)

    # -- truncation ----------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop every batch that contains `offset` or comes after it, as a follower. Blocking.

        If `offset` is at or below the log start, nothing remains and the log continues at `offset`.
        Truncated segments get new names. Epochs without records that begin at or after `offset` are
        dropped in any case, because the leader may have others. Not allowed while `busy`.

        Raises KAFKA_STORAGE_ERROR. If the disk was full before anything was cut, nothing changes.
        Otherwise the log is offline, and the next opening determines its end.
        """
        if offset >= self.state.end_offset:
            self.epochs.truncate_from_end(offset)
            return
        if offset <= self.state.start_offset:
            self.truncate_fully(offset)
            return
        self.state.require_online()
        self._truncate(offset, now_ms)

    def _truncate(self, offset: int, now_ms: int) -> None:
        state = self.state
        index = segment_index(state.segments, offset)
        last, new = state.segments[index], None
        with self._truncating(offset, state.refuse):
            self._begin_truncation(offset)
            keep = state.files.position_of(last, offset)
            if 0 < keep < last.size:
                name = segment_name(last.base_offset, state.generation)
                interval = state.config.index_interval_bytes
                new = shortened(state.files, last, keep, name, interval)
        with self._truncating(offset, state.go_offline):
            self._remove_segments(state.segments[index + 1 :])
            if new is not None:
                put_in_place(state.files, new)
                self.reader.unchecked.copied(last.name, keep, new.name)
                state.segments.append(new)
            if keep < last.size:
                self._remove_segments([last])
            end = state.segments[-1].next_offset if state.segments else state.start_offset
            self._end_at(max(state.start_offset, min(offset, end)), now_ms)

    def truncate_fully(self, offset: int) -> None:
        """Drop everything; the log continues at `offset`, empty. Blocking; not while `busy`."""
        state = self.state
        state.require_online()
        with self._truncating(offset, state.refuse):
            self._begin_truncation(0)
        with self._truncating(offset, state.go_offline):
            self._remove_segments(list(state.segments))
            self.checkpoints.drop_snapshots_above(-1)
            state.start_offset = state.recovery_point = offset
            self.epochs.truncate_from_end(0)
            self._end_at(offset, 0)

    @contextmanager
    def _truncating(self, offset: int, fail: Callable[[str, OSError], NoReturn]) -> Iterator[None]:
        """End a failed step of a truncation with `fail`, or find the damage at the next opening.

        A lasting failure leaves it unknown what is durable, so the next opening rewrites the log.
        """
        state = self.state
        held, recovery_point = state.held, state.recovery_point
        try:
            yield
        except OSError as failure:
            state.held, state.recovery_point = held, recovery_point  # in case nothing was cut
            if not is_passing(failure):
                state.flush_failed = True
                note_if_possible(state.disk, state.directory)
            fail("truncation", failure)
        except KafkaError as damage:
            state.end_offset = min(state.end_offset, offset)  # the leader has others from there on
            known = max([each for each in state.snapshots if each <= offset], default=0)
            state.mark_damaged(state.segments[segment_index(state.segments, known)], str(damage))

    def _begin_truncation(self, offset: int) -> None:
        """Reserve the names used so far, even across a crash, and remove expired files.

        Records from `offset` on no longer count as missing, because the leader has others.
        """
        assert not self.busy, "no truncation while a job is under way"
        state = self.state
        self.checkpoints.write_snapshots()  # they may summarize expired records
        state.generation += 1
        state.recovery_point = min(state.recovery_point, offset)
        state.held = min(state.held, offset)
        state.clean_end = state.written = None
        self.checkpoints.save()
        self.checkpoints.save_high_watermark(offset)
        for _, name in state.to_delete:
            remove(state.disk, state.files.path(name))
        state.to_delete.clear()

    def _remove_segments(self, segments: list[Segment]) -> None:
        """Remove files from the end backwards, so that a crash leaves no gap."""
        state = self.state
        for segment in reversed(segments):
            state.close_descriptor(segment)
            remove(state.disk, state.files.path(segment.name))
            remove(state.disk, state.files.path(index_name(segment.name)))
            state.segments.remove(segment)
        state.retired = [each for each in state.retired if each not in segments]

    def _end_at(self, offset: int, now_ms: int) -> None:
        """Apply the new log end to epochs and producers."""
        state = self.state
        state.end_offset = offset
        state.claims = state.claims and state.claims.within(state.start_offset, offset)
        state.clean_end = state.written = None
        self.reader.forget()
        state.recovery_point = min(state.recovery_point, offset)
        self.epochs.truncate_from_end(offset)
        self.cleaner.end_at(offset)
        self.checkpoints.drop_snapshots_above(offset)
        state.producers = producers_at(state.files, state.segments, state.snapshots, offset, now_ms)
        state.keep_snapshot()
        self.checkpoints.write_snapshots()
        self.checkpoints.save()

    # -- the end -------------------------------------------------------------------------------

    def close(self, high_watermark: int | None = None) -> None:
        """Make everything durable, so that opening needs no scan; then go offline.

        Blocking; not while `busy`. Raises KAFKA_STORAGE_ERROR if the disk fails; opening then
        scans.
        """
        state = self.state
        try:
            if state.offline is None:
                self._close_cleanly(high_watermark)
            elif state.damaged_base_offset is not None:
                self.checkpoints.save_damaged(state.damaged_base_offset)
            elif state.flush_failed:
                self._note_failure()
        except OSError as failure:
            if not is_passing(failure):
                state.flush_failed = True
                self._note_failure()
            state.go_offline("close", failure)
        finally:
            for segment in state.segments:
                state.close_descriptor(segment)
            state.offline = state.offline or f"{state.directory} is closed"

    def _close_cleanly(self, high_watermark: int | None) -> None:
        last = self.state.segments[-1] if self.state.segments else None
        if last is not None and last.file_size > last.size and not last.sealed:
            with self.state.files.reading(last) as fd:
                self.state.disk.ftruncate(fd, last.size)
            last.file_size = last.size
        flush = self.flushes.begin()
        flush.run()
        self.flushes.end(flush)
        if last is not None:
            self._write_last(last)
            if last.file_size == last.size:
                self.state.clean_end = CleanEnd(last.name, last.size, last.next_offset)
        self.state.written = None
        checkpoint = self.checkpoints.begin_last(high_watermark)
        if checkpoint is not None:
            checkpoint.run()
            self.checkpoints.end(checkpoint)

    def _note_failure(self) -> None:
        """Make the next opening rewrite unflushed data and detect what can no longer be read."""
        note_if_possible(self.state.disk, self.state.directory)
        with suppress(OSError):  # this process remembers (`flush_failed`)
            self.checkpoints.save_high_watermark(self.state.end_offset)

    def _write_last(self, last: Segment) -> None:
        """Write the last segment's own files, unless they are unchanged since opening."""
        if last.index is not None:
            path = self.state.files.path(index_name(last.name))
            data = encode_index(last.summary(), last.index, last.aborted or [])
            write_file(self.state.disk, path, data, durable=False)
        self.state.keep_snapshot()

    def delete(self) -> None:
        """Close without syncing and remove every file of the log. Blocking; not while `busy`."""
        state = self.state
        for segment in state.segments:
            state.close_descriptor(segment)
        state.offline = f"{state.directory} is deleted"
        for name in state.disk.listdir(state.directory):
            if is_log_file(name):
                remove(state.disk, state.files.path(name))
