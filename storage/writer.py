"""The growing end of a log: appends, and the segments that they open and fill."""

from typing import NamedTuple, NoReturn

from raylog.storage.disk import Writable
from raylog.storage.layout import HOLES_FILE, segment_name
from raylog.storage.producers import marker_in
from raylog.storage.segment import Segment
from raylog.storage.shared_state import SharedLogState, Snapshot
from raylog.wire.errors import KafkaError, KafkaStorageError, OffsetOutOfRange
from raylog.wire.records import (
    LENGTH_OVERHEAD,
    BatchHeader,
    assign,
    check_crc,
    iter_batches,
)

_new = tuple.__new__  # half the cost of the generated constructor


class AppendInfo(NamedTuple):
    """Where a batch was appended; its offsets are [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    segment_id: str
    position: int
    length: int


class LogWriter:
    """Appends to the last segment of a log, and opens a new one when that is full."""

    __slots__ = ("_shared",)

    def __init__(self, shared: SharedLogState) -> None:
        self._shared = shared

    def append(
        self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """Write one checked batch at the end as leader; its offset and epoch are patched in.

        `header` is the batch's header as produced. Producer states and leader epochs are updated
        too. Raises KAFKA_STORAGE_ERROR if the disk refuses the write; the log is then unchanged.
        """
        length = len(batch)
        assert length == LENGTH_OVERHEAD + header.batch_length, "one whole batch, and its header"
        if header.is_control:
            marker_in(batch)  # raises before anything is written: a stored marker must parse
        shared = self._shared
        base_offset = shared.end_offset
        assign(batch, base_offset, leader_epoch)
        segment = self._room_for(header, base_offset + header.last_offset_delta + 1, now_ms)
        position = segment.size
        self._write(segment, batch, length)
        if leader_epoch != shared.epochs.latest:
            shared.epochs.assign(leader_epoch, base_offset)
        self._appended(segment, header, base_offset, batch, now_ms)
        return _new(AppendInfo, (base_offset, shared.end_offset, segment.name, position, length))

    def append_verbatim(self, batches: memoryview | bytearray | bytes, now_ms: int) -> int:
        """Write the leader's batches unchanged, as its follower; return the log end offset.

        An empty log accepts a first batch that begins before its end, because the leader's log may
        start inside a batch. Raises CORRUPT_MESSAGE or OFFSET_OUT_OF_RANGE at a batch that is
        damaged or goes back; the batches before it are kept. KAFKA_STORAGE_ERROR as for `append`.
        """
        whole, refusal = self._checked(batches)
        size = sum([len(batch) for _, batch in whole])
        if len(whole) > 1 and self._has_room_for(whole, size, now_ms):
            segment = self._shared.segments[-1]
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
        return self._shared.end_offset

    def _checked(
        self, batches: memoryview | bytearray | bytes
    ) -> tuple[list[tuple[BatchHeader, memoryview]], KafkaError | None]:
        """The batches that may be written, up to the first that may not, and that one's error."""
        shared = self._shared
        whole: list[tuple[BatchHeader, memoryview]] = []
        end = shared.end_offset
        try:
            for header, batch in iter_batches(batches):
                check_crc(batch, header)
                if header.is_control:
                    marker_in(batch)
                begins_within = not whole and not shared.segments and end < header.next_offset
                if header.base_offset < end and not begins_within:
                    raise OffsetOutOfRange(
                        f"batch at {header.base_offset} from the leader, the log ends at {end}"
                    )
                if header.base_offset > end and not shared.has_holes:
                    self._note_holes()
                whole.append((header, batch))
                end = header.next_offset
        except KafkaError as refusal:
            return whole, refusal
        return whole, None

    def _note_holes(self) -> None:
        """Record on disk that offsets are missing; otherwise a gap at the log end means damage."""
        try:
            self._shared.disk.close(
                self._shared.disk.open(self._shared.files.path(HOLES_FILE), create=True)
            )
        except OSError as failure:
            self._shared.refuse("open", failure)
        self._shared.has_holes = True

    def _has_room_for(
        self, whole: list[tuple[BatchHeader, memoryview]], size: int, now_ms: int
    ) -> bool:
        """Whether all batches certainly fit into the growing segment: one write is enough."""
        shared = self._shared
        if shared.offline is not None or not shared.segments:
            return False
        segment, config = shared.segments[-1], shared.config
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
        """Like `_room_for`, but an empty log begins where `header` does if that is earlier."""
        end = self._shared.end_offset
        self._shared.end_offset = min(end, header.base_offset) if not self._shared.segments else end
        try:
            return self._room_for(header, header.next_offset, now_ms)
        finally:
            self._shared.end_offset = end

    def _followed(
        self, segment: Segment, header: BatchHeader, batch: memoryview, now_ms: int
    ) -> None:
        self._shared.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._appended(segment, header, header.base_offset, batch, now_ms)

    def _room_for(self, header: BatchHeader, next_offset: int, now_ms: int) -> Segment:
        shared = self._shared
        if shared.offline is not None:
            raise KafkaStorageError(shared.offline)
        config = shared.config
        if shared.segments:
            segment = shared.segments[-1]
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
        return self.roll(now_ms)

    def _write(self, segment: Segment, batch: Writable, length: int) -> None:
        shared = self._shared
        position = segment.size
        try:
            if position + length > segment.file_size:
                segment.extend(shared.disk, position + length, shared.config.segment_bytes)
            written = shared.disk.pwritev(segment.fd, (batch,), position)
        except OSError as failure:
            shared.refuse("write", failure)
        if written != length:
            self._cut_back(segment, written, length)
        shared.refused = None

    def _cut_back(self, segment: Segment, written: int, length: int) -> NoReturn:
        """Remove a partly written batch, so that none of it is ever found after a later one.

        The cut is at the end of the data, beyond which readers never look, mapped or not.
        """
        try:
            self._shared.disk.ftruncate(segment.fd, segment.size)
        except OSError as failure:
            self._shared.go_offline("cutting back a short write", failure)
        segment.file_size = segment.size
        self._shared.refused = (
            f"{self._shared.files.path(segment.name)}: {written} of {length} bytes written: "
            "disk full"
        )
        raise KafkaStorageError(self._shared.refused)

    def _appended(
        self,
        segment: Segment,
        header: BatchHeader,
        base_offset: int,
        batch: Writable,
        now_ms: int,
    ) -> None:
        shared = self._shared
        segment.note(header, base_offset, shared.config.index_interval_bytes)
        if header.producer_id >= 0:
            aborted = shared.producers.apply(header, base_offset, batch, now_ms)
            if aborted is not None:
                if segment.aborted is None:
                    segment.aborted = []
                segment.aborted.append(aborted)
        shared.end_offset = segment.next_offset

    def _activate(self, segment: Segment) -> None:
        """Prepare the last segment for appends, after opening or truncation."""
        shared = self._shared
        shared.clean_end = None
        try:
            shared.files.keep_index(segment)
            segment.fd = shared.disk.open(shared.files.path(segment.name))
            segment.file_size = shared.disk.size(segment.fd)
        except OSError as failure:
            shared.refuse("open", failure)
        segment.next_entry_at = segment.size + shared.config.index_interval_bytes
        segment.next_checkpoint_at = segment.size + shared.config.index_checkpoint_bytes

    def roll(self, now_ms: int) -> Segment:
        """Begin a segment at the log end; the next flush closes the last one."""
        shared = self._shared
        segment = Segment(segment_name(shared.end_offset, shared.generation), now_ms)
        try:
            segment.fd = shared.disk.open(shared.files.path(segment.name), create=True)
            segment.file_size = shared.disk.size(segment.fd)
        except OSError as failure:
            shared.refuse("open", failure)
        segment.next_checkpoint_at = shared.config.index_checkpoint_bytes
        if shared.segments:
            for waiting in shared.retired:  # no flush has run yet: two open descriptors are enough
                shared.close_descriptor(waiting)
            shared.retired.append(shared.segments[-1])
            shared.pending_snapshots.append(
                Snapshot(shared.end_offset, shared.producers.snapshot())
            )
        shared.segments.append(segment)
        shared.clean_end = None
        return segment
