"""Compaction and correction of one log: what may be cleaned, and how results are put in place."""

from collections import deque

from raylog.storage.checkpoint import Claims, CleanerFile, CleanerState
from raylog.storage.clean_job import CleanJob
from raylog.storage.cleanable import Cleanable, cleanable
from raylog.storage.cleaning import Cleaning
from raylog.storage.correcting import Correction, Suspect
from raylog.storage.durability import Flushes
from raylog.storage.reader import LogReader
from raylog.storage.segment import Segment
from raylog.storage.segment_work import Pause, Source
from raylog.storage.shared_state import SharedLogState
from raylog.storage.writer import LogWriter
from raylog.wire.errors import KafkaError


class LogCleaner:
    """Runs the cleanings and corrections of one log, one at a time."""

    __slots__ = (
        "_file",
        "_flushes",
        "_free_to",
        "_locked",
        "_reader",
        "_shared",
        "_writer",
        "job",
        "uncleanable",
    )

    def __init__(
        self, shared: SharedLogState, writer: LogWriter, flushes: Flushes, reader: LogReader
    ) -> None:
        self._shared = shared
        self._writer = writer
        self._flushes = flushes
        self._reader = reader
        self._file = CleanerFile(shared.disk, shared.directory)
        self.job: CleanJob | None = None
        """The job under way."""
        self._locked: Segment | None = None  # the last segment, while it is corrected
        self._free_to = 0  # segments that end at or before this offset are not being cleaned
        self.uncleanable: str | None = None
        """Why the log is no longer cleaned; None if it is."""

    @property
    def first_dirty_offset(self) -> int:
        """Records below it have been compacted with each other."""
        return min(
            max(self._shared.cleaner.first_dirty_offset, self._shared.start_offset),
            self._shared.end_offset,
        )

    def free_count(self) -> int:
        """Number of segments at the start of the log that are in no job."""
        segments = self._shared.segments
        if self.job is None:
            return len(segments)
        return len([each for each in segments if each.next_offset <= self._free_to])

    def end_at(self, offset: int) -> None:
        """Mark all from `offset` on as not cleaned: the log was truncated there. Blocking."""
        if self._shared.cleaner.first_dirty_offset > offset:
            self._shared.cleaner = CleanerState(offset, self._shared.cleaner.swaps)
            self._file.write(self._shared.cleaner)

    # -- compaction ----------------------------------------------------------------------------

    def cleanable(self, now_ms: int, high_watermark: int) -> Cleanable | None:
        """What a cleaning would process now; None if none is possible.

        Only what is durable, replicated and decided qualifies. The caller checks that
        `cleanup.policy` includes compact.
        """
        if self._shared.offline is not None or self.job is not None or self.uncleanable is not None:
            return None
        if self._shared.claims is not None:
            return None  # corrected first: `min.compaction.lag.ms` depends on timestamps
        stable = self._reader.last_stable_offset(high_watermark)
        try:
            return cleanable(
                self._shared.segments,
                self._shared.config,
                first_dirty_offset=self.first_dirty_offset,
                limit=min(stable, self._shared.saved.recovery_point),
                now_ms=now_ms,
                largest_timestamp=self._shared.files.largest_timestamp,
            )
        except OSError as failure:
            self._shared.refuse("cleaning", failure)

    def begin_clean(
        self, now_ms: int, high_watermark: int, *, memory_bytes: int, pause: Pause, token: str
    ) -> CleanJob | None:
        """Begin a compaction of the log (`cleanup.policy`); None if it is not due.

        `CleanJob` describes how to run the job. `memory_bytes` bounds its map of keys. `pause` is
        called between small pieces of work, in the process that does the work. `token` differs from
        that of every other cleaning, so that the worker of a lost process does no harm. Does not
        block.
        """
        found = self.cleanable(now_ms, high_watermark)
        if found is None or not found.is_due:
            return None
        shared, segments = self._shared, found.segments
        shared.generation += 1
        work = Cleaning(
            shared.disk,
            shared.directory,
            shared.config,
            [_source(each) for each in segments],
            self.first_dirty_offset,
            shared.generation,
            self._reader.aborted_transactions(segments[0].base_offset, segments[-1].next_offset),
            shared.producers.last_batches(),
            now_ms,
            memory_bytes,
            pause,
            token,
        )
        return self._begin(work, segments, free_to=0)

    def _begin(
        self, work: Cleaning | Correction, segments: list[Segment], *, free_to: int
    ) -> CleanJob:
        names = {segment.name for segment in self._shared.segments}
        swaps = tuple([swap for swap in self._shared.cleaner.swaps if swap.segment in names])
        state = CleanerState(self.first_dirty_offset, swaps)
        self._free_to = free_to
        self.job = CleanJob(work, self._file, state, segments)
        return self.job

    # -- corrections ---------------------------------------------------------------------------

    def claim(self, start: int, end: int) -> None:
        """Record that offsets [start, end) were copied from a log whose timestamps are claims."""
        if self._shared.claims is not None:
            start, end = min(start, self._shared.claims.start), max(end, self._shared.claims.end)
        self._shared.claims = Claims(start, end).within(
            self._shared.start_offset, self._shared.end_offset
        )

    def close_claimed(self, now_ms: int) -> bool:
        """Close the growing segment if it contains claimed timestamps; return whether it did.

        Once it has been flushed it can be corrected.
        """
        last = self._shared.segments[-1] if self._shared.segments else None
        if self._shared.offline is not None or self._shared.claims is None or last is None:
            return False
        if last.fd < 0 or last.base_offset >= self._shared.claims.end:
            return False
        self._writer.roll(now_ms)
        return True

    @property
    def correctable(self) -> list[Segment]:
        """Segments with claims that could be checked now, oldest first."""
        if self._shared.offline is not None or self.job is not None or self._shared.claims is None:
            return []
        waiting = list(self._shared.retired)
        if self._flushes.job is not None:
            waiting += self._flushes.job.retired
        found: list[Segment] = []
        for segment in self._shared.segments:
            if (
                segment.base_offset >= self._shared.claims.end
                or segment.fd >= 0
                or segment in waiting
            ):
                break
            if segment.next_offset > self._shared.claims.start:
                found.append(segment)
        return found

    def begin_correct(self, now_ms: int, *, pause: Pause, token: str) -> CleanJob | None:
        """Begin a correction of claimed timestamps; None if there is nothing to do now.

        Run the job like one of `begin_clean`, and give it to `end_clean`. Does not block.
        """
        segments = self.correctable
        if not segments:
            return None
        shared, last = self._shared, segments[-1]
        if last is shared.segments[-1] and not last.sealed:
            last.sealed, self._locked = True, last  # appends meanwhile go to another segment
        shared.generation += 1
        work = Correction(
            shared.disk,
            shared.directory,
            shared.config.index_interval_bytes,
            deque([Suspect(_source(each), list(each.aborted or ())) for each in segments]),
            shared.generation,
            now_ms,
            pause,
            token,
        )
        return self._begin(work, segments, free_to=segments[0].base_offset)

    # -- both ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask the job to end soon."""
        if self.job is not None:
            self.job.stop()

    def end_clean(self, job: CleanJob, now_ms: int) -> bool:
        """Apply a step of a cleaning or correction; return whether there is another one to run.

        Raises KAFKA_STORAGE_ERROR if the disk refused a write (the log is unchanged) or a segment
        is damaged (the log goes offline); CORRUPT_MESSAGE or similar if records cannot be parsed:
        the log is then not cleaned again until it is reopened.
        """
        assert job is self.job, "a cleaning is one job at a time"
        self._shared.cleaner = job.state
        if job.swapped is not None:
            group, segment = job.swapped
            index = self._shared.segments.index(group[0])
            assert self._shared.segments[index : index + len(group)] == group, (
                "nothing else moves them"
            )
            self._shared.segments[index : index + len(group)] = [segment]
            self._reader.forget()
            self._shared.schedule_segment_deletion(group, now_ms)
        if isinstance(job.work, Correction):
            self._have_looked(max(self._free_to, job.looked_to))
        if job.done or job.failure is not None or job.stopping:
            self.job = None
            if self._locked is not None:
                self._locked.sealed, self._locked = False, None
        match job.failure:
            case OSError() as failure:
                self._shared.refuse("cleaning", failure)
            case KafkaError() as failure:
                self._mark_damaged(job.damaged, str(failure))
                self.uncleanable = str(failure)
                raise failure
        return self.job is not None

    def _have_looked(self, offset: int) -> None:
        """Record that all segments that end at or before `offset` are correct."""
        self._free_to = offset
        if self._shared.claims is not None:
            start = max(self._shared.claims.start, offset)
            self._shared.claims = self._shared.claims._replace(start=start).within(
                self._shared.start_offset, self._shared.end_offset
            )

    def _mark_damaged(self, name: str | None, why: str) -> None:
        for segment in self._shared.segments:
            if segment.name == name:
                self._shared.mark_damaged(segment, why)


def _source(segment: Segment) -> Source:
    return Source(segment.name, segment.base_offset, segment.next_offset, segment.size)
