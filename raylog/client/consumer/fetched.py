"""What one fetch brought of one partition: batches, decoded as they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from raylog.client.cluster import TopicPartition
from raylog.wire.control import ControlType, decode_control_key
from raylog.wire.errors import CorruptMessage, KafkaError, error_of
from raylog.wire.records import (
    BATCH_OVERHEAD,
    BatchHeader,
    Record,
    check_crc,
    read_header,
    records_of,
)

_ANSWER_PARTS = 4
"""An answer may take so many times the bytes of a partition's records that are kept with it."""


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
        checks_crcs: bool = True,
    ) -> None:
        """`aborted`: (producer id, first offset) of transactions; None under read_uncommitted."""
        self.key = key
        self.size = len(data)
        self.high_watermark = high_watermark
        self.leader_epoch = -1
        """Of the last batch that was handed out (KIP-320)."""
        self.last_leader_epoch = -1
        """Of the last batch here."""
        self.end_offset = from_offset
        """Where the next fetch goes on, exclusive end of the whole batches here."""
        self._data = _own(data)
        self._from_offset = from_offset
        self._decompressed_bytes_max = decompressed_bytes_max
        self._checks_crcs = checks_crcs
        self._batches: deque[tuple[int, BatchHeader]] = deque()
        self._read_committed = aborted is not None
        self._aborted = deque(sorted(aborted or (), key=lambda entry: entry[1]))
        self._aborting: set[int] = set()
        self._rest: list[Record] = []
        """Decoded records of the batch taken last that are not handed out, the next one last."""
        self._taken: tuple[BatchHeader, memoryview] | None = None
        self._scan()

    @property
    def is_empty(self) -> bool:
        """Whether all was handed out."""
        return not self._batches and not self._rest

    @property
    def next_offset(self) -> int:
        """Offset behind what was handed out."""
        return self._from_offset

    def take(self) -> list[Record]:
        """Decode the next batch; empty if none of its records is for the application.

        Where it raises KafkaError, the batch stays the next one.
        """
        if self._rest:
            return self._take_rest(len(self._rest))
        from_offset = self._from_offset
        try:
            found = self.peek_batch()
            if found is None:
                self.pass_batch()
                return []
            header, batch = found
            records = self._decode(header, batch)
        except KafkaError as error:
            raise self.named(error) from error
        self.pass_batch()
        self._taken = found
        if header.base_offset < from_offset:
            records = [record for record in records if record.offset >= from_offset]
        return records

    def take_at_most(self, count: int) -> list[Record]:
        """As `take`, but no more than that many records: the others come with the next call."""
        if not self._rest:
            records = self.take()
            if len(records) <= count:
                return records
            records.reverse()
            self._rest = records
        return self._take_rest(count)

    def _take_rest(self, count: int) -> list[Record]:
        """Hand out decoded records."""
        assert self._taken is not None, "there are decoded records of a batch"
        if count >= len(self._rest):
            records, self._rest = self._rest, []
            self._from_offset = self._taken[0].next_offset
        else:
            records = self._rest[len(self._rest) - count :]
            del self._rest[len(self._rest) - count :]
            self._from_offset = self._rest[-1].offset
        records.reverse()
        return records

    def take_batch(self) -> tuple[BatchHeader, memoryview] | None:
        """The next batch as it is; None if none of its records is for the application.

        The first one may begin before the position: `next_offset` before the call.
        """
        found = self.peek_batch()
        self.pass_batch()
        return found

    def peek_batch(self) -> tuple[BatchHeader, memoryview] | None:
        """As `take_batch`, but the batch stays the next one until `pass_batch`."""
        if self._rest:  # `take_at_most` has handed out a part of it
            return self._taken
        position, header = self._batches[0]
        if not self._is_wanted(position, header):
            return None
        return header, self._data[position : position + header.size]

    def pass_batch(self) -> None:
        """Go on behind the next batch."""
        if self._rest:
            assert self._taken is not None, "there are decoded records of a batch"
            self._rest = []
            self._from_offset = self._taken[0].next_offset
            return
        _, header = self._batches.popleft()
        self._from_offset = header.next_offset
        self.leader_epoch = header.partition_leader_epoch

    def named(self, error: KafkaError) -> KafkaError:
        """The same error, with the place where the application may seek past it."""
        return error_of(error.code, f"{self.key} at offset {self._from_offset}: {error}")

    def _scan(self) -> None:
        """Find the whole batches up to one that is none.

        Raises KafkaError if there is no batch to go on behind: brokers send the batch at an offset
        whole, whatever its size (KIP-74). What is left out is checked like all that is handed out:
        a batch may only seem to end before the position.
        """
        position = 0
        while len(self._data) - position >= BATCH_OVERHEAD:
            try:
                header = read_header(self._data, position)
                if len(self._data) - position < header.size:
                    break
                if header.next_offset <= self.end_offset and self._checks_crcs:
                    check_crc(self._data, header, position)
            except KafkaError as error:
                if self._batches:
                    break  # the next fetch begins there
                raise self.named(error) from error
            if header.next_offset > self.end_offset:
                self._batches.append((position, header))
                self.end_offset = header.next_offset
                self.last_leader_epoch = header.partition_leader_epoch
            position += header.size
        if not self._batches:
            raise self.named(
                CorruptMessage(
                    f"expected a whole batch that ends behind this, found {len(self._data)} bytes"
                )
            )

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
            decode_control_key(record.key) is ControlType.ABORT
            for record in self._decode(header, batch)
        )

    def _decode(self, header: BatchHeader, batch: memoryview) -> list[Record]:
        if self._checks_crcs:
            check_crc(batch, header)
        return list(records_of(batch, header, self._decompressed_bytes_max))


def _own(records: memoryview) -> memoryview:
    """A copy where records are a small part of an answer, all of which they would hold."""
    if len(records) * _ANSWER_PARTS < memoryview(records.obj).nbytes:
        return memoryview(bytes(records))
    return records
