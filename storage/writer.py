"""The growing end of a log: appends, rolling, flushes, and what a failing disk does to them."""

from typing import NamedTuple, NoReturn

from raylog.storage.config import LogConfig
from raylog.storage.disk import Disk, Writable, is_passing
from raylog.storage.files import SegmentFiles
from raylog.storage.jobs import FlushJob, Snapshot
from raylog.storage.layout import HOLES_FILE, segment_name
from raylog.storage.producers import marker_in
from raylog.storage.reader import segment_index
from raylog.storage.recovery import Recovered
from raylog.storage.segment import Segment
from raylog.wire.errors import KafkaError, KafkaStorageError, OffsetOutOfRange
from raylog.wire.records import (
    LENGTH_OVERHEAD,
    BatchHeader,
    assign,
    check_crc,
    iter_batches,
)


class AppendInfo(NamedTuple):
    """Where a batch went; offsets are [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    segment_id: str
    position: int
    length: int


class LogWriter:
    """The part of a log that takes batches in; `ReadableLog` adds reading, `Log` upkeep.

    Invariants: log_start_offset <= log_end_offset; recovery_point <= log_end_offset, and all bytes
    before the recovery point are durable, those before the log start as well. Nothing below
    log_end_offset in a segment's file is ever written over or cut. The last segment alone grows.
    """

    __slots__ = (
        "_clean_end",
        "_condemned",
        "_disk",
        "_end",
        "_files",
        "_flushed_ms",
        "_flushing",
        "_generation",
        "_has_holes",
        "_offline",
        "_pending_snapshots",
        "_refused",
        "_retired",
        "_segments",
        "_snapshots",
        "_start",
        "_written",
        "config",
        "directory",
        "epochs",
        "flush_failed",
        "held",
        "producers",
        "recovery_point",
    )

    def __init__(
        self, directory: str, config: LogConfig, disk: Disk, files: SegmentFiles, found: Recovered
    ) -> None:
        self.directory = directory
        self.config = config
        self.epochs = found.epochs
        self.producers = found.producers
        self.recovery_point = found.state.recovery_point
        self.held = found.state.held
        self._disk = disk
        self._files = files
        self._segments = found.segments
        self._snapshots = found.snapshots
        self._start = found.state.log_start_offset
        self._end = found.log_end_offset
        self._generation = found.state.generation
        self._has_holes = found.has_holes
        self._clean_end = found.state.clean_end  # until the log changes
        self._written = found.state.written
        self._pending_snapshots: list[Snapshot] = []
        self._retired = found.unindexed  # segments that are full, and not closed yet
        self._flushing: FlushJob | None = None
        self._flushed_ms = 0
        self.flush_failed = False
        """Whether what was not flushed is in doubt, and has to be opened so (`Log.open`)."""
        self._offline: str | None = None
        self._refused: str | None = None
        self._condemned: int | None = None  # base offset of a segment that is damaged

    @property
    def log_start_offset(self) -> int:
        """First offset that may be read."""
        return self._start

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record, exclusive end of the log."""
        return self._end

    @property
    def is_whole(self) -> bool:
        """Whether the log has as much as it held for sure before it was damaged, if it ever was."""
        return self._end >= self.held

    @property
    def offline(self) -> bool:
        """Whether the disk failed: every further call raises KAFKA_STORAGE_ERROR."""
        return self._offline is not None

    @property
    def trouble(self) -> str:
        """Why the disk refused the newest write, or the log is offline; empty: it took it."""
        return self._offline or self._refused or ""

    # -- appending -----------------------------------------------------------------------------

    def append(
        self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """Write one checked batch at the end, as its leader: offset and epoch are patched in.

        `header` is the batch's, as produced. Producer states and leader epochs follow by
        themselves. KAFKA_STORAGE_ERROR if the disk refuses; the log is then as it was.
        """
        length = len(batch)
        assert length == LENGTH_OVERHEAD + header.batch_length, "one whole batch, and its header"
        if header.is_control:
            marker_in(batch)  # refused here if at all: what is written must be understood
        base_offset = self._end
        assign(batch, base_offset, leader_epoch)
        segment = self._room_for(header, base_offset + header.last_offset_delta + 1, now_ms)
        position = segment.size
        self._write(segment, batch, length)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self._appended(segment, header, base_offset, batch, now_ms)
        return AppendInfo(base_offset, self._end, segment.name, position, length)

    def append_verbatim(self, batches: memoryview | bytearray | bytes, now_ms: int) -> int:
        """Write batches as the leader has them, as its follower; returns the log end offset.

        An empty log takes a first batch that begins before it: the leader's log may start within
        one. CORRUPT_MESSAGE or OFFSET_OUT_OF_RANGE at a batch that is damaged or goes back;
        batches before it stay. KAFKA_STORAGE_ERROR as for `append`.
        """
        whole, refusal = self._checked(batches)
        size = sum([len(batch) for _, batch in whole])
        if len(whole) > 1 and self._has_room_for(whole, size, now_ms):
            segment = self._segments[-1]
            self._write(segment, memoryview(batches)[:size], size)
            for header, batch in whole:
                self._followed(segment, header, batch, now_ms)
        else:
            for header, batch in whole:
                segment = self._room_for_first(header, now_ms)
                self._write(segment, batch, len(batch))
                self._followed(segment, header, batch, now_ms)
        if refusal is not None:
            raise refusal
        return self._end

    def _checked(
        self, batches: memoryview | bytearray | bytes
    ) -> tuple[list[tuple[BatchHeader, memoryview]], KafkaError | None]:
        """The batches that may be written, up to the first that may not, and why that is so."""
        whole: list[tuple[BatchHeader, memoryview]] = []
        end = self._end
        try:
            for header, batch in iter_batches(batches):
                check_crc(batch, header)
                if header.is_control:
                    marker_in(batch)
                begins_within = not whole and not self._segments and end < header.next_offset
                if header.base_offset < end and not begins_within:
                    raise OffsetOutOfRange(
                        f"batch at {header.base_offset} from the leader, the log ends at {end}"
                    )
                if header.base_offset > end and not self._has_holes:
                    self._note_holes()
                whole.append((header, batch))
                end = header.next_offset
        except KafkaError as refusal:
            return whole, refusal
        return whole, None

    def _note_holes(self) -> None:
        """Leave a note before offsets are missing: else they are a sign of damage, at the end."""
        try:
            self._disk.close(self._disk.open(self._files.path(HOLES_FILE), create=True))
        except OSError as failure:
            self._refuse("open", failure)
        self._has_holes = True

    def _has_room_for(
        self, whole: list[tuple[BatchHeader, memoryview]], size: int, now_ms: int
    ) -> bool:
        """Whether all go to the growing segment, surely: then they are one write."""
        if self._offline is not None or not self._segments:
            return False
        segment, config = self._segments[-1], self.config
        latest = max([header.max_timestamp for header, _ in whole])
        return (
            segment.fd >= 0
            and not segment.sealed
            and segment.has_room_for(
                whole[-1][0].next_offset, size, config.segment_bytes, config.max_index_size_bytes
            )
            and not segment.is_due(latest, now_ms, config.segment_ms)
        )

    def _room_for_first(self, header: BatchHeader, now_ms: int) -> Segment:
        """As `_room_for`; an empty log goes back to where a batch begins that holds its end."""
        end = self._end
        self._end = min(end, header.base_offset) if not self._segments else end
        try:
            return self._room_for(header, header.next_offset, now_ms)
        finally:
            self._end = end

    def _followed(
        self, segment: Segment, header: BatchHeader, batch: memoryview, now_ms: int
    ) -> None:
        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._appended(segment, header, header.base_offset, batch, now_ms)

    def _room_for(self, header: BatchHeader, next_offset: int, now_ms: int) -> Segment:
        if self._offline is not None:
            raise KafkaStorageError(self._offline)
        config = self.config
        if self._segments:
            segment = self._segments[-1]
            if not (
                segment.sealed
                or segment.is_full_for(
                    header, next_offset, config.segment_bytes, config.max_index_size_bytes
                )
                or segment.is_due(header.max_timestamp, now_ms, config.segment_ms)
            ):
                if segment.fd < 0:
                    self._activate(segment)
                return segment
        return self._roll(now_ms)

    def _write(self, segment: Segment, batch: Writable, length: int) -> None:
        position = segment.size
        try:
            if position + length > segment.file_size:
                segment.extend(self._disk, position + length, self.config.segment_bytes)
            written = self._disk.pwritev(segment.fd, (batch,), position)
        except OSError as failure:
            self._refuse("write", failure)
        if written != length:
            self._cut_back(segment, written, length)
        self._refused = None

    def _cut_back(self, segment: Segment, written: int, length: int) -> NoReturn:
        """Take back a part of a batch, so that nothing of it is ever found behind a later one.

        The cut is at the end of the data: readers never look behind it, mapped or not.
        """
        try:
            self._disk.ftruncate(segment.fd, segment.size)
        except OSError as failure:
            self._go_offline("cutting back a short write", failure)
        segment.file_size = segment.size
        self._refused = (
            f"{self._files.path(segment.name)}: {written} of {length} bytes written: disk full"
        )
        raise KafkaStorageError(self._refused)

    def _appended(
        self,
        segment: Segment,
        header: BatchHeader,
        base_offset: int,
        batch: Writable,
        now_ms: int,
    ) -> None:
        segment.note(header, base_offset, self.config.index_interval_bytes)
        if header.producer_id >= 0:
            aborted = self.producers.apply(header, base_offset, batch, now_ms)
            if aborted is not None:
                if segment.aborted is None:
                    segment.aborted = []
                segment.aborted.append(aborted)
        self._end = segment.next_offset

    def _activate(self, segment: Segment) -> None:
        """Make the last segment ready for appends, after opening or truncation."""
        self._clean_end = None
        try:
            self._files.keep_index(segment)
            segment.fd = self._disk.open(self._files.path(segment.name))
            segment.file_size = self._disk.size(segment.fd)
        except OSError as failure:
            self._refuse("open", failure)
        segment.next_entry_at = segment.size + self.config.index_interval_bytes
        segment.next_checkpoint_at = segment.size + self.config.index_checkpoint_bytes

    def _roll(self, now_ms: int) -> Segment:
        """Begin a segment at the log end; the last one is closed by the next flush."""
        segment = Segment(segment_name(self._end, self._generation), now_ms)
        try:
            segment.fd = self._disk.open(self._files.path(segment.name), create=True)
            segment.file_size = self._disk.size(segment.fd)
        except OSError as failure:
            self._refuse("open", failure)
        segment.next_checkpoint_at = self.config.index_checkpoint_bytes
        if self._segments:
            self._retire(self._segments[-1])
        self._segments.append(segment)
        self._clean_end = None
        return segment

    def _retire(self, segment: Segment) -> None:
        """Hand a segment that is full to the next flush, the producers to the next checkpoint."""
        for waiting in self._retired:  # no flush came so far: two descriptors are enough
            self._close_descriptor(waiting)
        self._retired.append(segment)
        self._pending_snapshots.append(Snapshot(self._end, self.producers.snapshot()))

    def _close_descriptor(self, segment: Segment) -> None:
        if segment.fd >= 0:
            self._disk.close(segment.fd)
            segment.fd = -1

    # -- making durable ------------------------------------------------------------------------

    @property
    def flush_due(self) -> bool:
        """Whether `flush.messages` asks for a flush before the last append is acknowledged."""
        return self._end - self.recovery_point >= self.config.flush_messages

    def needs_flush(self, now_ms: int) -> bool:
        """Whether upkeep should flush: segments were closed, or `flush.ms` has passed."""
        if self._flushing is not None or self._offline is not None:
            return False
        unflushed = self.recovery_point < self._end
        return bool(self._retired) or (
            unflushed and now_ms - self._flushed_ms >= self.config.flush_ms
        )

    def begin_flush(self) -> FlushJob:
        """A job that makes all records so far durable, and closes what segments are full.

        The caller runs it in an executor and gives it to `end_flush`, whatever came of it.
        """
        assert self._flushing is None, "one flush at a time"
        self._require_online()
        job = FlushJob(self._disk, self._files, self.directory, self._end)
        last = self._segments[-1] if self._segments else None
        try:
            if last is not None and last.fd >= 0 and self.recovery_point < self._end:
                job.descriptors.append(self._disk.duplicate(last.fd))
        except OSError as failure:
            self._refuse("flush", failure)
        for segment in self._segments[segment_index(self._segments, self.recovery_point) :]:
            if segment.fd < 0 and segment.next_offset > self.recovery_point:
                job.names.append(segment.name)
        job.retired, self._retired = self._retired, []
        for segment in job.retired:
            if segment.fd >= 0:
                job.descriptors.append(segment.fd)
                segment.fd = -1
        self._flushing = job
        return job

    def end_flush(self, job: FlushJob, now_ms: int = 0) -> None:
        """Take a flush that was run back; KAFKA_STORAGE_ERROR if it failed: nothing is repeated."""
        assert job is self._flushing, "a flush ends once, and was begun here"
        self._flushing = None
        self._flushed_ms = now_ms
        if job.failure is not None:
            self.flush_failed = True
            self._go_offline("flush", job.failure)
        self.recovery_point = max(self.recovery_point, job.up_to)
        for segment in job.retired[: job.indexed]:
            self._files.release_index(segment)
        self._retired = job.retired[job.indexed :] + self._retired
        if job.index_failure is not None and not is_passing(job.index_failure):
            self._go_offline("writing an index", job.index_failure)

    # -- failures ------------------------------------------------------------------------------

    def _refuse(self, what: str, failure: OSError) -> NoReturn:
        if is_passing(failure):
            self._refused = f"{self.directory}: {what}: {failure}"
            raise KafkaStorageError(self._refused) from failure
        self._go_offline(what, failure)

    def _go_offline(self, what: str, failure: OSError) -> NoReturn:
        self._offline = f"{self.directory} is offline: {what}: {failure}"
        raise KafkaStorageError(self._offline) from failure

    def _condemn(self, segment: Segment, damage: str) -> NoReturn:
        """A segment that was durable is damaged: closing the log has it scanned when it opens."""
        self._condemned = segment.base_offset
        self._offline = f"{self._files.path(segment.name)} is damaged: {damage}"
        raise KafkaStorageError(self._offline)

    def _require_online(self) -> None:
        if self._offline is not None:
            raise KafkaStorageError(self._offline)
