"""The log as it is looked after: retention, deleted records, compaction."""

from raylog.storage.checkpoint import CleanerFile, CleanerState, LogState
from raylog.storage.clean_job import CleanJob
from raylog.storage.cleanable import Cleanable, cleanable
from raylog.storage.cleaning import Cleaning
from raylog.storage.config import LogConfig
from raylog.storage.disk import Disk
from raylog.storage.files import SegmentFiles
from raylog.storage.jobs import Snapshot
from raylog.storage.layout import index_name, producers_name
from raylog.storage.readable import ReadableLog
from raylog.storage.recovery import Recovered
from raylog.storage.retention import expired_count
from raylog.storage.segment import Segment
from raylog.storage.segment_work import Pause, Source
from raylog.wire.errors import KafkaError, OffsetOutOfRange


class MaintainedLog(ReadableLog):
    """The part of a log that lets go of segments, or has others take their places."""

    __slots__ = ("_cleaner", "_cleaner_file", "_cleaning", "_doomed", "_saved", "uncleanable")

    def __init__(
        self, directory: str, config: LogConfig, disk: Disk, files: SegmentFiles, found: Recovered
    ) -> None:
        super().__init__(directory, config, disk, files, found)
        self._saved: LogState = found.saved
        self._doomed: list[tuple[int, str]] = []  # (when, name) of files to be removed
        self._cleaner_file = CleanerFile(disk, directory)
        self._cleaner = found.cleaner
        self._cleaning: CleanJob | None = None
        self.uncleanable: str | None = None  # why it is not cleaned any more

    # -- retention -----------------------------------------------------------------------------

    def roll_if_due(self, now_ms: int) -> bool:
        """Close the last segment if it is older than `segment.ms`, for retention to see it."""
        self._require_online()
        last = self._segments[-1] if self._segments else None
        if last is None or not last.is_due(-1, now_ms, self.config.segment_ms):
            return False
        self._roll(now_ms)
        return True

    def retention(self, now_ms: int, high_watermark: int) -> list[str]:
        """Let go of segments that are too old or too many, or deleted; the names of those.

        To be called whatever `cleanup.policy` says: producers expire, too. No segments go while
        the log is cleaned. The log start moves at once; `begin_checkpoint` makes that durable, then
        removes the files when `file.delete.delay.ms` has passed, so that readers who were told of
        them find them.
        """
        self._require_online()
        self._files.release_indexes()
        self.producers.expire(now_ms, self.config.producer_expiration_ms)
        try:
            count = expired_count(
                self._segments,
                self.config,
                now_ms=now_ms,
                high_watermark=high_watermark,
                log_start_offset=self._start,
                largest_timestamp=self._files.largest_timestamp,
            )
        except OSError as failure:
            self._refuse("retention", failure)
        if count == 0 or self._cleaning is not None:
            return []
        if count == len(self._segments):
            self._keep_snapshot()
        gone, self._segments = self._segments[:count], self._segments[count:]
        self._reader.forget()
        first = self._segments[0].base_offset if self._segments else self._end
        self._move_start(max(self._start, first))
        self._doom_segments(gone, now_ms)
        self._doom_snapshots(now_ms)
        return [segment.name for segment in gone]

    def _doom_segments(self, gone: list[Segment], now_ms: int) -> None:
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in gone:
            self._close_descriptor(segment)
            self._files.release_index(segment)
            self._doomed += [(due_ms, segment.name), (due_ms, index_name(segment.name))]
        self._retired = [each for each in self._retired if each not in gone]

    def _doom_snapshots(self, now_ms: int) -> None:
        """Snapshots serve where a scan may begin: at segments, and at the end of the log."""
        useful = {segment.base_offset for segment in self._segments} | set(self._snapshots[-1:])
        self._doomed += [
            (now_ms, producers_name(each)) for each in self._snapshots if each not in useful
        ]
        self._snapshots = [each for each in self._snapshots if each in useful]

    def delete_records_to(self, offset: int) -> None:
        """Move the log start up to `offset`; the next checkpoint makes that durable.

        The caller keeps `offset` at or below the high watermark, and answers after the checkpoint.
        OFFSET_OUT_OF_RANGE beyond the log end. Files go with the next retention.
        """
        self._require_online()
        if offset > self._end:
            raise OffsetOutOfRange(f"{offset} is beyond the log end {self._end}")
        if offset > self._start:
            self._move_start(offset)

    def _move_start(self, offset: int) -> None:
        self._start = offset
        self.epochs.truncate_from_start(offset)
        self.producers.forget_below(offset)

    def _keep_snapshot(self) -> None:
        """Have the producers as of the log end saved by the next checkpoint."""
        pending = {snapshot.offset for snapshot in self._pending_snapshots}
        if self._end not in pending and self._end not in self._snapshots:
            self._pending_snapshots.append(Snapshot(self._end, self.producers.snapshot()))

    # -- cleaning ------------------------------------------------------------------------------

    @property
    def first_dirty_offset(self) -> int:
        """Records before it were compacted with each other."""
        return min(max(self._cleaner.first_dirty_offset, self._start), self._end)

    def cleanable(self, now_ms: int, high_watermark: int) -> Cleanable | None:
        """What a cleaning would take now; None while there can be none.

        What is not durable, not replicated or not decided is not touched. Not where
        `cleanup.policy` does not say compact.
        """
        if self.offline or self._cleaning is not None or self.uncleanable is not None:
            return None
        try:
            return cleanable(
                self._segments,
                self.config,
                first_dirty_offset=self.first_dirty_offset,
                limit=min(self.last_stable_offset(high_watermark), self._saved.recovery_point),
                now_ms=now_ms,
                largest_timestamp=self._files.largest_timestamp,
            )
        except OSError as failure:
            self._refuse("cleaning", failure)

    def begin_clean(
        self, now_ms: int, high_watermark: int, *, memory_bytes: int, pause: Pause, token: str
    ) -> CleanJob | None:
        """A job that compacts the log (`cleanup.policy`); None if that is not due.

        `CleanJob` says how it is run. `memory_bytes` bound what it knows of keys, `pause` is called
        where the work is done between small pieces of it, `token` is unlike that of any cleaning
        of a process that may be lost. Takes a moment only.
        """
        found = self.cleanable(now_ms, high_watermark)
        if found is None or not found.is_due:
            return None
        segments = found.segments
        self._generation += 1
        names = {segment.name for segment in self._segments}
        swaps = tuple([swap for swap in self._cleaner.swaps if swap.segment in names])
        work = Cleaning(
            self._disk,
            self.directory,
            self.config,
            [Source(each.name, each.base_offset, each.next_offset, each.size) for each in segments],
            self.first_dirty_offset,
            self._generation,
            self.aborted_transactions(segments[0].base_offset, segments[-1].next_offset),
            self.producers.last_batches(),
            now_ms,
            memory_bytes,
            pause,
            token,
        )
        state = CleanerState(self.first_dirty_offset, swaps)
        self._cleaning = CleanJob(work, self._cleaner_file, state, segments)
        return self._cleaning

    def stop_cleaning(self) -> None:
        """Let a cleaning end soon, for the log not to be `busy` with it."""
        if self._cleaning is not None:
            self._cleaning.stop()

    def end_clean(self, job: CleanJob, now_ms: int) -> bool:
        """Take a step of a cleaning back; whether there is another one to run.

        KAFKA_STORAGE_ERROR if the disk refused: the log is as it was. Or if a segment is damaged:
        the log is offline. CORRUPT_MESSAGE or the like if records cannot be understood: the log is
        not cleaned again until it is opened anew.
        """
        assert job is self._cleaning, "a cleaning is one job at a time"
        self._cleaner = job.state
        if job.swapped is not None:
            group, segment = job.swapped
            index = self._segments.index(group[0])
            assert self._segments[index : index + len(group)] == group, "nothing else moves them"
            self._segments[index : index + len(group)] = [segment]
            self._reader.forget()
            self._doom_segments(group, now_ms)
        if job.done or job.failure is not None or job.stopping:
            self._cleaning = None
        match job.failure:
            case OSError() as failure:
                self._refuse("cleaning", failure)
            case KafkaError() as failure:
                self._condemn_damaged(job.damaged, str(failure))
                self.uncleanable = str(failure)
                raise failure
        return self._cleaning is not None

    def _condemn_damaged(self, name: str | None, why: str) -> None:
        for segment in self._segments:
            if segment.name == name:
                self._condemn(segment, why)
