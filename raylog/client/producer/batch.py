"""A batch: records of one partition that travel together, from the first of them to their end."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

from raylog.client.cluster import TopicPartition
from raylog.client.interceptors import RecordMetadata
from raylog.wire.buffers import Buffer
from raylog.wire.compression import Codec, compress
from raylog.wire.record import encode_records
from raylog.wire.records import (
    BATCH_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    decode_batch,
    encode_header,
)

RECORD_OVERHEAD = 20
"""Upper estimate of a record's own lengths, attributes and deltas."""
RECORD_OBJECTS_BYTES = 208
"""What a waiting record takes in memory beside its bytes: a tuple, a time, two bytes objects, what
the allocator rounds up. Measured with keys."""
HEADER_OVERHEAD = 6
SEQUENCE_MASK = 0x7FFFFFFF

Headers = Sequence[tuple[str, bytes | None]]
PlainRecord = tuple[int, int, bytes | None, bytes | None, Headers]
"""The fields of a `Record`, of which only the offset means nothing yet. A plain tuple without
headers is left alone by Python's garbage collector, an object of a class derived from it is not."""
_timestamp_of = operator.itemgetter(1)
Listener = Callable[[RecordMetadata, Exception | None], object]
"""Told of one record's end; the offset is -1 if it failed, or if nobody knows it."""
RowsListener = Callable[[int, "Delivery"], object]
"""Told of the end of rows that were sent in one batch: which one is the first, and the delivery."""
Heard = tuple[RowsListener, int]
"""Who is told of the ends of rows, and which row the first of them is."""


class ProducerIdentity(NamedTuple):
    """What sequence numbers count for."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Delivery(NamedTuple):
    """The end of one batch."""

    topic: str
    partition: int
    base_offset: int
    """Offset of the first record; -1 if unknown (acks=0, a repeat of old) or failed."""
    record_count: int
    failure: Exception | None = None


class Body(NamedTuple):
    """Records that are encoded already: their offsets count from 0, their times from the first."""

    data: Buffer
    """Not compressed."""
    record_count: int
    first_timestamp_ms: int
    max_timestamp_ms: int


class Batch:
    """Records of one partition that travel together: as objects, or as a `body`."""

    __slots__ = (
        *("key", "created_ms", "records", "size", "sequence", "identity", "attempts", "body"),
        *("listeners", "stretches", "drained_ms", "ordinal", "may_be_written", "is_of_unknown"),
        *("_header", "_payload", "_encoded", "_encoded_objects"),
    )

    def __init__(
        self,
        key: TopicPartition,
        created_ms: float,
        records: list[PlainRecord] | None = None,
        *,
        size: int = BATCH_OVERHEAD,
        identity: ProducerIdentity = NO_IDENTITY,
        body: Body | None = None,
    ) -> None:
        self.key = key
        self.created_ms = created_ms
        self.records = records or []
        """Empty once the batch is encoded."""
        self.size = size
        """Bytes, estimated from above and without compression."""
        self.sequence = NO_SEQUENCE
        self.identity = identity
        self.attempts = 0
        self.body = body
        self.listeners: list[tuple[int, int, Listener]] | None = None
        """(position in the batch, timestamp, whom to tell of that record's end)."""
        self.stretches: list[tuple[int, int, int, RowsListener]] | None = None
        """(position in the batch, number of rows, which row is the first, whom to tell)."""
        self.drained_ms = 0.0
        """When it was sent first."""
        self.ordinal = 0
        """Which of its partition's batches it was when it was sent last."""
        self.may_be_written = False
        """Whether an attempt under the sequence that it has ended without a clear refusal."""
        self.is_of_unknown = False
        """Whether it is a part of such a batch: brokers would not recognize it as a repeat."""
        self._header: BatchHeader | None = None
        """Once it is encoded."""
        self._payload: Buffer = b""
        """Its records, compressed."""
        self._encoded: list[Buffer] = []
        """Header and payload as they were sent last."""
        self._encoded_objects = 0

    @property
    def record_count(self) -> int:
        """How many records it holds."""
        if self._header is not None:
            return self._header.record_count
        return len(self.records) if self.body is None else self.body.record_count

    def due_ms(self, timeout_ms: float, tried_ms: float) -> float:
        """When it is given up: `timeout_ms` after its first record.

        If it was older than that when it was tried first, because nobody had looked: so long after
        that.
        """
        due_ms = self.created_ms + timeout_ms
        return due_ms if due_ms > tried_ms else tried_ms + timeout_ms

    @property
    def encoded_bytes(self) -> int:
        """Its size as it was sent; 0 before."""
        return sum(map(len, self._encoded))

    @property
    def held_bytes(self) -> int:
        """What it counts for in the producer's memory, until its end."""
        return self.size + RECORD_OBJECTS_BYTES * (self._encoded_objects or len(self.records))

    def listen(self, listener: Listener) -> None:
        """Have a listener told of the end of the newest record."""
        if self.listeners is None:
            self.listeners = []
        self.listeners.append((len(self.records) - 1, self.records[-1][1], listener))

    def listen_to_rows(self, count: int, first_row: int, listener: RowsListener) -> None:
        """Have a listener told of the end of the newest records."""
        if self.stretches is None:
            self.stretches = []
        self.stretches.append((len(self.records) - count, count, first_row, listener))

    def encode(self, codec: Codec, level: int | None, *, is_transactional: bool) -> list[Buffer]:
        """The batch's bytes in pieces; a repeat sends the very same. Its records are let go."""
        header = self._header
        if header is None:
            header = self._encode_payload(codec, level, is_transactional=is_transactional)
        elif (header.producer_id, header.producer_epoch, header.base_sequence) == self._named:
            return self._encoded
        producer_id, producer_epoch, base_sequence = self._named
        self._header = header._replace(
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
        )
        self._encoded = [encode_header(self._header, self._payload), self._payload]
        return self._encoded

    @property
    def _named(self) -> tuple[int, int, int]:
        """What tells it from other batches: producer id, epoch and first sequence number."""
        return (*self.identity, self.sequence)

    def _encode_payload(
        self, codec: Codec, level: int | None, *, is_transactional: bool
    ) -> BatchHeader:
        """Turn the records into the payload; returns their header, not named yet."""
        body = self.body
        if body is None:
            first_ms = self.records[0][1]
            data = encode_records(self.records, range(len(self.records)), first_ms)
            body = Body(data, len(self.records), first_ms, max(map(_timestamp_of, self.records)))
        self._encoded_objects = len(self.records)
        self._payload = compress(codec, body.data, level) if codec else body.data
        self.records, self.body = [], None
        return BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=codec | is_transactional * TRANSACTIONAL_BIT,
            last_offset_delta=body.record_count - 1,
            base_timestamp=body.first_timestamp_ms,
            max_timestamp=body.max_timestamp_ms,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=body.record_count,
        )

    def split(self) -> tuple[Batch, Batch]:
        """Two batches of half the records each; sequences and listeners go with the records."""
        assert self._encoded, "only what was sent can be too large"
        sent = b"".join(self._encoded)
        records: list[PlainRecord] = list(decode_batch(sent, max_bytes=self.size))
        middle = len(records) // 2
        return self._part(records, 0, middle), self._part(records, middle, len(records))

    def _part(self, records: list[PlainRecord], start: int, end: int) -> Batch:
        part = Batch(self.key, self.created_ms, records[start:end], identity=self.identity)
        part.size += sum(map(record_size, part.records))
        part.may_be_written = part.is_of_unknown = self.may_be_written
        if self.sequence != NO_SEQUENCE:
            part.sequence = (self.sequence + start) & SEQUENCE_MASK
        if self.listeners is not None:
            part.listeners = [
                (position - start, timestamp, listener)
                for position, timestamp, listener in self.listeners
                if start <= position < end
            ]
        if self.stretches is not None:
            part.stretches = [
                (
                    max(position, start) - start,
                    min(position + count, end) - max(position, start),
                    first_row + max(start - position, 0),
                    listener,
                )
                for position, count, first_row, listener in self.stretches
                if position < end and start < position + count
            ]
        return part


def record_size(record: PlainRecord) -> int:
    """Upper estimate of a record's bytes."""
    _, _, key, value, headers = record
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    return size + headers_size(headers) if headers else size


def headers_size(headers: Headers) -> int:
    """Upper estimate of headers' bytes in a record."""
    return sum(len(name.encode()) + len(value or b"") + HEADER_OVERHEAD for name, value in headers)
