"""The log as it is looked after: retention, deleted records, compaction."""

from collections import deque

from raylog.storage.checkpoint import Claims, CleanerFile, CleanerState, LogState
from raylog.storage.clean_job import CleanJob
from raylog.storage.cleanable import Cleanable, cleanable
from raylog.storage.cleaning import Cleaning
from raylog.storage.config import NEVER, LogConfig
from raylog.storage.correcting import Correction, Suspect
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

    __slots__ = (
        "_cleaner",
        "_cleaner_file",
        "_cleaning",
        "_doomed",
        "_free_to",
        "_locked",
        "_saved",
        "claims",
        "uncleanable",
    )

    def __init__(
        self, directory: str, config: LogConfig, disk: Disk, files: SegmentFiles, found: Recovered
    ) -> None:
        super().__init__(directory, config, disk, files, found)
        self._saved: LogState = found.saved
        self._doomed: list[tuple[int, str]] = []  # (when, name) of files to be removed
        self._cleaner_file = CleanerFile(disk, directory)
        self._cleaner = found.cleaner
        self._cleaning: CleanJob | None = None
        self.claims: Claims | None = found.state.claims
        """Where timestamps are to be corrected yet; None when all is done."""
        self._locked: Segment | None = None  # the last one, while it is corrected
        self._free_to = 0  # segments that end here or before are not those being cleaned
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

        None is too old while its timestamps are claims (`correcting.py`).

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
                largest_timestamp=self._largest_timestamp,
            )
        except OSError as failure:
            self._refuse("retention", failure)
        count = min(count, self._free_count())
        if count == 0:
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

    def _largest_timestamp(self, segment: Segment) -> int:
        """As `largest_timestamp`; what is only claimed is never old."""
        claims = self.claims
        if claims and segment.next_offset > claims.start and segment.base_offset < claims.end:
            return NEVER
        return self._files.largest_timestamp(segment)

    def _free_count(self) -> int:
        """How many of the first segments no work is about."""
        if self._cleaning is None:
            return len(self._segments)
        return len([each for each in self._segments if each.next_offset <= self._free_to])

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

    @property
    def durable_start_offset(self) -> int:
        """The log start that a crash would leave at least: the checkpointed one."""
        return self._saved.log_start_offset

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
        self.claims = self.claims and self.claims.within(offset, self._end)
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
        if self.claims is not None:
            return None  # corrected first: `min.compaction.lag.ms` goes by time
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
        work = Cleaning(
            self._disk,
            self.directory,
            self.config,
            [_source(each) for each in segments],
            self.first_dirty_offset,
            self._generation,
            self.aborted_transactions(segments[0].base_offset, segments[-1].next_offset),
            self.producers.last_batches(),
            now_ms,
            memory_bytes,
            pause,
            token,
        )
        return self._begin(work, segments, free_to=0)

    def _begin(
        self, work: Cleaning | Correction, segments: list[Segment], *, free_to: int
    ) -> CleanJob:
        names = {segment.name for segment in self._segments}
        swaps = tuple([swap for swap in self._cleaner.swaps if swap.segment in names])
        state = CleanerState(self.first_dirty_offset, swaps)
        self._free_to = free_to
        self._cleaning = CleanJob(work, self._cleaner_file, state, segments)
        return self._cleaning

    # -- corrections ---------------------------------------------------------------------------

    def claim(self, start: int, end: int) -> None:
        """Offsets [start, end) were copied from a log in which timestamps are claims."""
        if self.claims is not None:
            start, end = min(start, self.claims.start), max(end, self.claims.end)
        self.claims = Claims(start, end).within(self._start, self._end)

    def close_claimed(self, now_ms: int) -> bool:
        """Close the growing segment if timestamps in it are claims; whether that was so.

        Once it is flushed it can be corrected.
        """
        last = self._segments[-1] if self._segments else None
        if self.offline or self.claims is None or last is None:
            return False
        if last.fd < 0 or last.base_offset >= self.claims.end:
            return False
        self._roll(now_ms)
        return True

    @property
    def correctable(self) -> list[Segment]:
        """Segments with claims that could be looked at now, the oldest first."""
        if self.offline or self._cleaning is not None or self.claims is None:
            return []
        waiting = list(self._retired)
        if self._flushing is not None:
            waiting += self._flushing.retired
        found: list[Segment] = []
        for segment in self._segments:
            if segment.base_offset >= self.claims.end or segment.fd >= 0 or segment in waiting:
                break
            if segment.next_offset > self.claims.start:
                found.append(segment)
        return found

    def begin_correct(self, now_ms: int, *, pause: Pause, token: str) -> CleanJob | None:
        """A job that corrects timestamps that are claims; None if there is nothing to do now.

        It is run as one of `begin_clean` is, and given to `end_clean`. Takes a moment only.
        """
        segments = self.correctable
        if not segments:
            return None
        last = segments[-1]
        if last is self._segments[-1] and not last.sealed:
            last.sealed, self._locked = True, last  # what is appended meanwhile goes elsewhere
        self._generation += 1
        work = Correction(
            self._disk,
            self.directory,
            self.config.index_interval_bytes,
            deque([Suspect(_source(each), list(each.aborted or ())) for each in segments]),
            self._generation,
            now_ms,
            pause,
            token,
        )
        return self._begin(work, segments, free_to=segments[0].base_offset)

    def stop_cleaning(self) -> None:
        """Let a cleaning or a correction end soon, for the log not to be `busy` with it."""
        if self._cleaning is not None:
            self._cleaning.stop()

    def end_clean(self, job: CleanJob, now_ms: int) -> bool:
        """Take a step of a cleaning or correction back; whether there is another one to run.

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
        if isinstance(job.work, Correction):
            self._have_looked(max(self._free_to, job.looked_to))
        if job.done or job.failure is not None or job.stopping:
            self._cleaning = None
            if self._locked is not None:
                self._locked.sealed, self._locked = False, None
        match job.failure:
            case OSError() as failure:
                self._refuse("cleaning", failure)
            case KafkaError() as failure:
                self._condemn_damaged(job.damaged, str(failure))
                self.uncleanable = str(failure)
                raise failure
        return self._cleaning is not None

    def _have_looked(self, offset: int) -> None:
        """All segments that end at `offset` or before are right."""
        self._free_to = offset
        if self.claims is not None:
            start = max(self.claims.start, offset)
            self.claims = self.claims._replace(start=start).within(self._start, self._end)

    def _condemn_damaged(self, name: str | None, why: str) -> None:
        for segment in self._segments:
            if segment.name == name:
                self._condemn(segment, why)


def _source(segment: Segment) -> Source:
    return Source(segment.name, segment.base_offset, segment.next_offset, segment.size)
