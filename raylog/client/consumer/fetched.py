"""What one fetch brought of one partition: batches, decoded as they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from raylog.client.cluster import TopicPartition
from raylog.wire.records import (
    BATCH_OVERHEAD,
    BatchHeader,
    ControlType,
    Record,
    decode_batch,
    decode_control_key,
    read_header,
)


@dataclass(frozen=True, slots=True)
class ConsumedRecords:
    """Records of one partition, in order. There may be gaps between their offsets."""

    topic: str
    partition: int
    records: list[Record]
    high_watermark: int
    """Exclusive end of what can be read of the partition, when this was fetched."""


class FetchedBatches:
    """Batches of one partition that are not handed out yet.

    A fetch may begin before the position (batches come whole) and end in the middle of a batch,
    which is left for the next fetch.
    """

    def __init__(
        self,
        key: TopicPartition,
        data: memoryview,
        *,
        from_offset: int,
        high_watermark: int,
        aborted: Sequence[tuple[int, int]] | None,
        decompressed_bytes_max: int,
    ) -> None:
        """`aborted`: (producer id, first offset) of transactions; None under read_uncommitted."""
        self.key = key
        self.size = len(data)
        self.high_watermark = high_watermark
        self.end_offset = from_offset
        """Where the next fetch goes on, exclusive end of the whole batches here."""
        self._data = data
        self._from_offset = from_offset
        self._decompressed_bytes_max = decompressed_bytes_max
        self._batches: deque[tuple[int, BatchHeader]] = deque()
        self._read_committed = aborted is not None
        self._aborted = deque(sorted(aborted or (), key=lambda entry: entry[1]))
        self._aborting: set[int] = set()
        self._scan()

    @property
    def is_empty(self) -> bool:
        """Whether all was handed out."""
        return not self._batches

    @property
    def next_offset(self) -> int:
        """Offset behind what was handed out."""
        return self._from_offset

    def take(self) -> list[Record]:
        """Decode the next batch; empty if none of its records is for the application."""
        from_offset = self._from_offset
        taken = self.take_batch()
        if taken is None:
            return []
        header, batch = taken
        records = decode_batch(batch, max_bytes=self._decompressed_bytes_max)
        if header.base_offset < from_offset:
            records = [record for record in records if record.offset >= from_offset]
        return records

    def take_batch(self) -> tuple[BatchHeader, memoryview] | None:
        """The next batch as it is; None if none of its records is for the application.

        The first one may begin before the position.
        """
        position, header = self._batches.popleft()
        self._from_offset = header.next_offset
        if not self._is_wanted(position, header):
            return None
        return header, self._data[position : position + header.size]

    def _scan(self) -> None:
        """Find the whole batches."""
        position = 0
        while len(self._data) - position >= BATCH_OVERHEAD:
            header = read_header(self._data, position)
            if len(self._data) - position < header.size:
                break
            if header.next_offset > self._from_offset:
                self._batches.append((position, header))
                self.end_offset = header.next_offset
            position += header.size

    def _is_wanted(self, position: int, header: BatchHeader) -> bool:
        """Whether a batch is the application's: no control batch, not aborted."""
        while self._aborted and self._aborted[0][1] <= header.last_offset:
            self._aborting.add(self._aborted.popleft()[0])
        if header.is_control:
            if self._read_committed and self._is_abort(position, header):
                self._aborting.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)

    def _is_abort(self, position: int, header: BatchHeader) -> bool:
        """Whether a control batch is the marker that aborts a transaction."""
        batch = self._data[position : position + header.size]
        return any(
            decode_control_key(record.key) is ControlType.ABORT for record in decode_batch(batch)
        )
