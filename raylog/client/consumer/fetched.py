"""The batches of one partition that one fetch returned, decoded on demand."""

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
"""Records are copied out of a response more than this many times their size, to free it."""


@dataclass(frozen=True, slots=True)
class ConsumedRecords:
    """Records of one partition, in order. There may be gaps between their offsets."""

    topic: str
    partition: int
    records: list[Record]
    high_watermark: int
    """The exclusive end of readable records when this was fetched."""


class FetchedBatches:
    """Batches of one partition that are not handed out yet.

    A fetch may begin before the position (brokers send whole batches) and end in the middle of a
    batch, which is left for the next fetch.
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
        """The leader epoch of the last batch handed out (KIP-320)."""
        self.last_leader_epoch = -1
        """The leader epoch of the last batch in this block."""
        self.end_offset = from_offset
        """Where the next fetch starts: the exclusive end of the whole batches in this block."""
        self._data = _own(data)
        self._from_offset = from_offset
        self._decompressed_bytes_max = decompressed_bytes_max
        self._checks_crcs = checks_crcs
        self._batches: deque[tuple[int, BatchHeader]] = deque()
        self._read_committed = aborted is not None
        self._aborted = deque(sorted(aborted or (), key=lambda entry: entry[1]))
        self._aborting: set[int] = set()
        self._rest: list[Record] = []
        """Decoded records of the last batch that are not handed out yet, in reverse order."""
        self._taken: tuple[BatchHeader, memoryview] | None = None
        self._scan()

    @property
    def is_empty(self) -> bool:
        """Whether everything was handed out."""
        return not self._batches and not self._rest

    @property
    def next_offset(self) -> int:
        """The offset after what was handed out."""
        return self._from_offset

    def take(self) -> list[Record]:
        """Decode the next batch; return nothing if none of its records are for the application.

        If this raises KafkaError, the batch remains the next one.
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
        """Like `take`, but return at most `count` records and keep the rest for the next call."""
        if not self._rest:
            records = self.take()
            if len(records) <= count:
                return records
            records.reverse()
            self._rest = records
        return self._take_rest(count)

    def _take_rest(self, count: int) -> list[Record]:
        """Return records that are decoded already."""
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
        """Return the next batch undecoded; None if none of its records are for the application.

        The first batch may begin before the position, which is `next_offset` before the call.
        """
        found = self.peek_batch()
        self.pass_batch()
        return found

    def peek_batch(self) -> tuple[BatchHeader, memoryview] | None:
        """Like `take_batch`, but the batch stays the next one until `pass_batch`."""
        if self._rest:  # `take_at_most` has handed out part of it
            return self._taken
        position, header = self._batches[0]
        if not self._is_wanted(position, header):
            return None
        return header, self._data[position : position + header.size]

    def pass_batch(self) -> None:
        """Skip the next batch."""
        if self._rest:
            assert self._taken is not None, "there are decoded records of a batch"
            self._rest = []
            self._from_offset = self._taken[0].next_offset
            return
        _, header = self._batches.popleft()
        self._from_offset = header.next_offset
        self.leader_epoch = header.partition_leader_epoch

    def named(self, error: KafkaError) -> KafkaError:
        """Return the error with its partition and offset, so that a caller can seek past it."""
        return error_of(error.code, f"{self.key} at offset {self._from_offset}: {error}")

    def _scan(self) -> None:
        """Find the whole batches, up to the first damaged one.

        Raises KafkaError if there is no batch beyond the position: brokers send the batch at an
        offset whole, whatever its size (KIP-74). The checksums of skipped batches are checked too,
        because a damaged batch may only seem to end before the position.
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
        """Return whether a batch is for the application: not a control batch, not aborted."""
        while self._aborted and self._aborted[0][1] <= header.last_offset:
            self._aborting.add(self._aborted.popleft()[0])
        if header.is_control:
            if self._read_committed and self._is_abort(position, header):
                self._aborting.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)

    def _is_abort(self, position: int, header: BatchHeader) -> bool:
        """Return whether a control batch is the marker that aborts a transaction."""
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
    """Copy the records if they are a small part of a response that they would keep in memory."""
    if len(records) * _ANSWER_PARTS < memoryview(records.obj).nbytes:
        return memoryview(bytes(records))
    return records
