"""Opens a log: trusts what a clean close left, or scans from the recovery point on.

Only the segments are authoritative. A missing or wrong index, snapshot or state file costs a scan,
never a record; the log start is the only fact not stored in the segments.

A log that ends before what it certainly held was damaged. It is not whole, and must not count until
it holds as much again; until then the segments after the damage are set aside, not removed.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from raylog.storage.checkpoint import (
    ALL_CLAIMS,
    PRODUCERS_KIND,
    CleanEnd,
    CleanerFile,
    HighWatermarkFile,
    LogState,
    Reached,
    StateFile,
    WrittenPoint,
    check_version,
    read_file,
    write_file,
)
from raylog.storage.config import LogConfig
from raylog.storage.disk import Disk, is_passing, remove
from raylog.storage.epochs import NO_EPOCH, LeaderEpochs
from raylog.storage.files import SegmentFiles
from raylog.storage.index import AbortedTransaction, encode_index
from raylog.storage.layout import (
    ASIDE_SUFFIX,
    HOLES_FILE,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    UNFLUSHED_FILE,
    index_name,
    is_set_aside,
    is_unknown_segment,
    parse_producers_name,
    parse_segment_name,
    producers_name,
)
from raylog.storage.producers import BATCHES_KEPT, SNAPSHOT_VERSION, ProducerStates
from raylog.storage.rewriting import note_failed_flush, write_anew
from raylog.storage.scan import Surroundings, checked, scan
from raylog.storage.segment import Segment
from raylog.storage.shared_state import SharedLogState
from raylog.wire.errors import KafkaStorageError
from raylog.wire.records import LENGTH_OVERHEAD, BatchHeader

_CHUNK = 1024 * 1024
_OFFSET_MAX = 2**63 - 1
_ATTRIBUTES = BatchHeader._fields.index("attributes")
_PRODUCER_ID = BatchHeader._fields.index("producer_id")
_TRANSACTION_BITS = 0x30  # transactional, control
_new = tuple.__new__  # half the cost of the generated constructor


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log took; bytes and counts."""

    clean: bool = True
    scanned_bytes: int = 0
    scanned_segments: int = 0
    rejected_bytes: int = 0  # after the data and not zeros, at most one chunk of each segment
    removed_segments: list[str] = field(default_factory=list)  # damaged, after damage, or replaced


class Recovery:
    """Opens a partition's directory once. Blocking; call `run` once."""

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        disk: Disk,
        files: SegmentFiles,
        now_ms: int,
    ) -> None:
        self.report = RecoveryReport()
        """What opening the log took."""
        self._disk = disk
        self._files = files
        self._shared = SharedLogState(directory, config, disk, files)
        self._shared.cleaner = CleanerFile(disk, directory).read()
        self._now_ms = now_ms
        self._producers_offset = -1  # offset that the producer states are for; -1: none yet
        self._scan_began_blind = False  # producers unknown at start: a later snapshot knows more
        self._recent: dict[int, deque[tuple[int, ...]]] = {}  # headers still to be recorded
        self._epoch_before = NO_EPOCH  # of the last batch scanned
        self._overlaps = False  # the segment repeats the next one, as after a cut-off cleaning

    def run(
        self, state_file: StateFile, *, clean: bool, flush_failed: bool = False
    ) -> SharedLogState:
        """Find the log. With `clean` false, nothing above the recovery point is trusted.

        Nor is it with `flush_failed` or after a note of that; that part is then rewritten
        (`rewriting.py`). Raises NewerVersion before anything is changed.
        """
        shared = self._shared
        found = state_file.read()
        reached = HighWatermarkFile(self._disk, shared.directory).read()
        self._check_names()
        if flush_failed or UNFLUSHED_FILE in self._disk.listdir(shared.directory):
            found = self._written_anew(found, reached)
        self._list_files()
        first = shared.segments[0].base_offset if shared.segments else 0
        unknown = LogState(log_start_offset=first, claims=ALL_CLAIMS)
        state = unknown if found is None else found
        shared.held = self._held_before(state, reached)
        shared.generation = max(shared.generation, state.generation)
        shared.epochs = LeaderEpochs(state.epochs)
        self._begin_at(state.log_start_offset)
        point, written = self._believed(state, clean=clean)
        unsafe = self._unsafe_from(state.clean_end if clean else None, point)
        self.report.clean = unsafe == len(shared.segments)
        self._load(unsafe, point if written is not None else -1)
        start, end = self._bounds(state.log_start_offset)
        if shared.held <= end:
            shared.held = 0
            self._forget_set_aside()
        shared.epochs.truncate_from_end(end + 1 if self.report.clean else end)
        self._drop_snapshots(lambda offset: offset > end)
        if self.report.removed_segments:
            self._disk.fsync_dir(shared.directory)  # or removed files could return later
        if self._producers_offset != end or self._scan_began_blind:
            shared.producers = self._producers_at(len(shared.segments), end)
        shared.saved = found or LogState()
        shared.start_offset, shared.end_offset = start, end
        shared.recovery_point = min(state.recovery_point, end)
        shared.claims = None if state.claims is None else state.claims.within(start, end)
        shared.clean_end = state.clean_end if self.report.clean else None
        shared.written = written
        return shared

    def _held_before(self, state: LogState, reached: Reached) -> int:
        """End of what the log must have: all durable data, or all if the machine did not reboot."""
        boot_id = self._disk.boot_id()
        held = max(state.held, state.recovery_point)
        if boot_id and reached.boot_id == boot_id:
            held = max(held, reached.log_end_offset)
        if boot_id and state.written is not None and state.written.boot_id == boot_id:
            held = max(held, state.written.offset)
        return held

    def _written_anew(self, state: LogState | None, reached: Reached) -> LogState | None:
        """Rewrite the unflushed part after a failed flush; return the state to recover from.

        What could no longer be read is zeros from now on, and counts as missing: `held` says so.
        """
        note_failed_flush(self._disk, self._shared.directory)
        point = 0 if state is None else state.recovery_point
        write_anew(self._files, point)
        if state is not None:
            held = self._held_before(state, reached)
            state = replace(state, clean_end=None, written=None, held=held)
            StateFile(self._disk, self._shared.directory).write(state, 1)
        remove(self._disk, self._files.path(UNFLUSHED_FILE))
        return state

    # -- files in the directory ----------------------------------------------------------------

    def _check_names(self) -> None:
        """Refuse a newer build's files: segments, or snapshots, judged by the newest of them."""
        names = self._disk.listdir(self._shared.directory)
        for name in filter(is_unknown_segment, names):
            raise KafkaStorageError(
                f"{self._files.path(name)}: no segment of this build has such a name; "
                "a newer one may have written it"
            )
        snapshots = [offset for name in names if (offset := parse_producers_name(name)) is not None]
        if snapshots:
            path = self._files.path(producers_name(max(snapshots)))
            check_version(self._disk, path, PRODUCERS_KIND, SNAPSHOT_VERSION)

    def _list_files(self) -> None:
        names = self._disk.listdir(self._shared.directory)
        newest: dict[int, str] = {}
        found = [(parsed, name) for name in names if (parsed := parse_segment_name(name))]
        for parsed, name in sorted(found):
            self._shared.generation = max(self._shared.generation, parsed.generation)
            overtaken = newest.get(parsed.base_offset)
            if overtaken is not None:  # a truncation stopped before it removed the old segment
                self._remove_segment(overtaken)
            newest[parsed.base_offset] = name
        self._remove_cleaned(newest)
        self._shared.segments = [Segment(name, self._now_ms) for _, name in sorted(newest.items())]
        kept = {name.removesuffix(LOG_SUFFIX) for name in newest.values()}
        for name in names:
            stray = name.endswith(INDEX_SUFFIX) and name.removesuffix(INDEX_SUFFIX) not in kept
            if stray or name.endswith(TEMPORARY_SUFFIX):
                remove(self._disk, self._files.path(name))
        offsets = map(parse_producers_name, names)
        self._shared.snapshots = sorted(offset for offset in offsets if offset is not None)
        self._shared.set_aside = sorted(filter(is_set_aside, names))
        self._shared.has_holes = HOLES_FILE in names

    def _begin_at(self, log_start_offset: int) -> None:
        """Remove segments before the log start; drop all others if those at the start are missing.

        The log start moves before the files are removed, so some expired records may still exist.
        """
        segments = self._shared.segments
        while len(segments) > 1 and segments[1].base_offset <= log_start_offset:
            self._remove_segment(segments.pop(0).name)
        if segments and segments[0].base_offset > log_start_offset:
            self._shared.held = max(self._shared.held, log_start_offset + 1)
            self._drop_from(0)

    def _forget_set_aside(self) -> None:
        for name in self._shared.set_aside:
            remove(self._disk, self._files.path(name))
        self._shared.set_aside.clear()

    def _remove_cleaned(self, names: dict[int, str]) -> None:
        """Remove the segments that a cleaned segment replaces. `names` is keyed by base offset."""
        for swap in self._shared.cleaner.swaps:
            swapped = parse_segment_name(swap.segment)
            if swapped is None or names.get(swapped.base_offset) != swap.segment:
                continue
            for base_offset in [b for b in names if swapped.base_offset < b < swap.end_offset]:
                self._remove_segment(names.pop(base_offset))

    def _remove_segment(self, name: str) -> None:
        remove(self._disk, self._files.path(name))
        remove(self._disk, self._files.path(index_name(name)))
        self.report.removed_segments.append(name)

    def _file_size(self, segment: Segment) -> int:
        with self._files.reading(segment) as fd:
            return self._disk.size(fd)

    def _believed(self, state: LogState, *, clean: bool) -> tuple[int, WrittenPoint | None]:
        """Offset below which no scan is needed, and the written point if that decided it."""
        written = state.written
        if not clean or written is None or written.boot_id != self._disk.boot_id():
            return state.recovery_point, None
        return max(written.offset, state.recovery_point), written

    def _unsafe_from(self, clean_end: CleanEnd | None, point: int) -> int:
        """Index of the first segment that must be scanned; the number of segments if none must."""
        if not self._shared.segments or self._closed_cleanly(clean_end):
            return len(self._shared.segments)
        bases = [segment.base_offset for segment in self._shared.segments]
        return max(bisect_right(bases, point) - 1, 0)

    def _closed_cleanly(self, end: CleanEnd | None) -> bool:
        last = self._shared.segments[-1]
        if end is None or end.segment != last.name or end.size != self._file_size(last):
            return False
        head = self._files.read_head(last)
        return head is not None and head.summary.next_offset == end.next_offset

    # -- segments ------------------------------------------------------------------------------

    def _load(self, unsafe: int, written_offset: int) -> None:
        index = 0
        while index < len(self._shared.segments):
            self._overlaps = False
            segment = self._shared.segments[index]
            following = self._shared.segments[index + 1 : index + 2]
            limit = following[0].base_offset if following else None
            if index >= unsafe:
                if index > unsafe or not self._resume(segment, written_offset):
                    self._begin_scan(index)
                if index == unsafe:
                    self._shared.epochs.truncate_from_end(segment.next_offset)
                self._scan(segment, limit, epochs=True)
            elif not self._restore(segment, limit):
                self._begin_scan(index)
                self._scan(segment, limit, epochs=False)
            if (
                limit is not None
                and segment.next_offset != limit
                and not (self._overlaps and _is_newer(segment, following[0]))
            ):
                self._drop_from(index + 1)  # records are missing here: later segments are unusable
            if segment.sealed and segment.size == 0 and index == len(self._shared.segments) - 1:
                self._drop_from(index)  # nothing to keep, and its name is used up
            index += 1

    def _restore(self, segment: Segment, limit: int | None) -> bool:
        head = self._files.read_head(segment)
        if head is None or head.summary.base_offset != segment.base_offset:
            return False
        size = self._file_size(segment)
        if head.summary.size > size or limit not in (None, head.summary.next_offset):
            return False  # or it grew after its index was written
        segment.restore(head.summary, head.aborted)
        segment.file_size = size
        segment.sealed = size > segment.size  # what follows the data may not be zeros
        return True

    def _resume(self, segment: Segment, written_offset: int) -> bool:
        """Use a checkpoint's index and producers up to `written_offset`; False if impossible."""
        head = self._files.read_head(segment) if written_offset in self._shared.snapshots else None
        if head is None or head.summary.base_offset != segment.base_offset:
            return False
        if head.summary.next_offset != written_offset:
            return False
        segment.restore(head.summary, head.aborted)
        segment.index = self._files.read_index(segment)
        segment.next_entry_at = segment.size + self._shared.config.index_interval_bytes
        self._shared.producers = self._producers_at(0, written_offset)
        return segment.index is not None and written_offset in self._shared.snapshots

    def _begin_scan(self, index: int) -> None:
        """Forget what is known of a segment; load the producers as of its base offset."""
        segment = self._shared.segments[index]
        segment.clear()
        if (
            self._producers_offset != segment.base_offset
            or segment.base_offset in self._shared.snapshots
        ):
            # Prefer a snapshot to a scan: there may be holes before the log start.
            self._shared.producers = self._producers_at(index, segment.base_offset)
        if segment.base_offset not in self._shared.snapshots:
            if index > 0:
                self._write_snapshot(segment.base_offset)  # the segments before may go
            elif segment.base_offset > 0:
                self._scan_began_blind = True

    def _scan(self, segment: Segment, limit: int | None, *, epochs: bool) -> None:
        """Scan the unknown part of a segment."""
        start = segment.size
        aborted = list(segment.aborted or ())
        with self._files.reading(segment) as fd:
            segment.file_size = self._disk.size(fd)
            self._scan_batches(segment, fd, limit, aborted, epochs=epochs)
            self._judge_tail(segment, fd)
        segment.aborted = aborted or None
        self._producers_offset = segment.next_offset if limit is None else limit
        self.report.scanned_segments += 1
        self.report.scanned_bytes += segment.size - start
        if limit is not None:
            self._write_index(segment, aborted)

    def _write_index(self, segment: Segment, aborted: list[AbortedTransaction]) -> None:
        assert segment.index is not None, "a segment just scanned has its index in memory"
        data = encode_index(segment.summary(), segment.index, aborted)
        try:
            path = self._files.path(index_name(segment.name))
            write_file(self._disk, path, data, durable=False)
            segment.index = None
        except OSError as failure:
            if not is_passing(failure):
                raise
            self._shared.retired.append(segment)

    def _scan_batches(
        self,
        segment: Segment,
        fd: int,
        limit: int | None,
        aborted: list[AbortedTransaction],
        *,
        epochs: bool,
    ) -> None:
        interval = self._shared.config.index_interval_bytes
        last_epoch = NO_EPOCH
        end_offset = _OFFSET_MAX if limit is None else limit
        around = Surroundings(
            segment.next_offset,
            self._epoch_before,
            limit,
            self._first_epoch(limit),
            has_holes=self._shared.has_holes or self._shared.config.compact,
            held=self._shared.held,
        )
        for _, fields, data, at in checked(self._disk, fd, segment.size, segment.file_size, around):
            base_offset, length, epoch, _, _, _, delta, _, timestamp, producer_id, _, _, _ = fields
            next_offset = base_offset + delta + 1
            if next_offset > end_offset:
                self._overlaps = True
                break
            size = LENGTH_OVERHEAD + length
            segment.note_batch(base_offset, next_offset, size, timestamp, interval)
            if epochs and epoch != last_epoch:
                self._shared.epochs.assign(epoch, base_offset)
            last_epoch = epoch
            if producer_id >= 0:
                self._note_producer(fields, data, at, aborted)
        self._epoch_before = max(self._epoch_before, last_epoch)
        for producer_id in list(self._recent):
            self._note_recent(producer_id)

    def _first_epoch(self, base_offset: int | None) -> int | None:
        """Leader epoch of a segment's first batch; None if unknown."""
        for segment in self._shared.segments:
            if segment.base_offset == base_offset:
                with self._files.reading(segment) as fd:
                    for _, header, _ in scan(self._disk, fd, 0, self._disk.size(fd), check=False):
                        return header.partition_leader_epoch
        return None

    def _note_producer(
        self,
        fields: tuple[int, ...],
        data: memoryview,
        at: int,
        aborted: list[AbortedTransaction],
    ) -> None:
        """Record a producer's batch: at once in a transaction, else the last few after the scan."""
        producer_id = fields[_PRODUCER_ID]
        if not fields[_ATTRIBUTES] & _TRANSACTION_BITS:
            recent = self._recent.get(producer_id)
            if recent is None:
                recent = self._recent[producer_id] = deque(maxlen=BATCHES_KEPT)
            recent.append(fields)
            return
        self._note_recent(producer_id)
        header = _new(BatchHeader, fields)
        batch = data[at : at + header.size]
        ended = self._shared.producers.apply(header, header.base_offset, batch, self._now_ms)
        if ended is not None:
            aborted.append(ended)

    def _note_recent(self, producer_id: int) -> None:
        for fields in self._recent.pop(producer_id, ()):
            header = _new(BatchHeader, fields)
            self._shared.producers.update(header, header.base_offset, self._now_ms)

    def _judge_tail(self, segment: Segment, fd: int) -> None:
        """Seal the segment if its data is followed by anything but zeros: it stays untouched."""
        position = segment.size
        while position < segment.file_size:
            chunk = self._disk.pread(fd, min(_CHUNK, segment.file_size - position), position)
            if not chunk:
                return
            if chunk.count(0) != len(chunk):
                segment.sealed = True
                self.report.rejected_bytes += len(chunk.rstrip(b"\0"))
                self._shared.generation += 1
                return
            position += len(chunk)

    def _drop_from(self, index: int) -> None:
        for segment in reversed(self._shared.segments[index:]):
            if segment.base_offset < self._shared.held:
                self._put_aside(segment.name)
            else:
                self._remove_segment(segment.name)
        del self._shared.segments[index:]
        self._shared.generation += 1  # offsets will be reused, but names must not

    def _put_aside(self, name: str) -> None:
        self._disk.rename(self._files.path(name), self._files.path(name + ASIDE_SUFFIX))
        remove(self._disk, self._files.path(index_name(name)))
        self.report.removed_segments.append(name)
        self._shared.set_aside.append(name + ASIDE_SUFFIX)

    def _bounds(self, log_start_offset: int) -> tuple[int, int]:
        """Log start and end. Drop all segments if they end before the start."""
        if self._shared.segments and self._shared.segments[-1].next_offset < log_start_offset:
            self._drop_from(0)  # records up to the start were lost, and the producers with them
            self._drop_snapshots(lambda offset: offset != log_start_offset)
        if not self._shared.segments:
            return log_start_offset, log_start_offset
        return log_start_offset, self._shared.segments[-1].next_offset

    def _drop_snapshots(self, stale: Callable[[int], bool]) -> None:
        for offset in filter(stale, self._shared.snapshots):
            remove(self._disk, self._files.path(producers_name(offset)))
        self._shared.snapshots = [offset for offset in self._shared.snapshots if not stale(offset)]

    def _write_snapshot(self, offset: int) -> None:
        path = self._files.path(producers_name(offset))
        try:
            write_file(self._disk, path, self._shared.producers.snapshot().encode(), durable=True)
        except OSError as failure:
            if not is_passing(failure):
                raise
        else:
            self._shared.snapshots = sorted([*self._shared.snapshots, offset])

    # -- producers -----------------------------------------------------------------------------

    def _producers_at(self, count: int, offset: int) -> ProducerStates:
        """Producer states as of `offset`, replayed from the first `count` segments if needed."""
        return producers_at(
            self._files,
            self._shared.segments[:count],
            self._shared.snapshots,
            offset,
            self._now_ms,
        )


def _is_newer(segment: Segment, other: Segment) -> bool:
    one, another = parse_segment_name(segment.name), parse_segment_name(other.name)
    return one is not None and another is not None and one.generation > another.generation


def producers_at(
    files: SegmentFiles,
    segments: list[Segment],
    snapshots: list[int],
    offset: int,
    now_ms: int,
) -> ProducerStates:
    """Producer states as of `offset`: the newest usable snapshot below it, and the batches since.

    No segment contains anything at or after `offset`. Unusable snapshots are removed, also from
    `snapshots`. Blocking.
    """
    producers = ProducerStates()
    start = 0
    for candidate in reversed([each for each in snapshots if each <= offset]):
        path = files.path(producers_name(candidate))
        data = read_file(files.disk, path)
        restored = None if data is None else ProducerStates.restore(data, path)
        if restored is not None:
            producers, start = restored, candidate
            break
        remove(files.disk, path)
        snapshots.remove(candidate)
    for segment in segments:
        if segment.next_offset <= start:
            continue
        position = files.position_of(segment, start)
        for _, header, batch in files.batches(segment, position, check=False):
            if header.producer_id >= 0:
                producers.apply(header, header.base_offset, batch, now_ms)
    return producers
