"""A batch: records of one partition that are sent, and acknowledged or failed, together."""

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
"""Upper estimate of the bytes of a record's own lengths, attributes and deltas."""
RECORD_OBJECTS_BYTES = 208
"""Memory of a waiting record besides its bytes: a tuple, a time, two bytes objects, and what the
allocator rounds up. Measured with keys."""
HEADER_OVERHEAD = 6
SEQUENCE_MASK = 0x7FFFFFFF

Headers = Sequence[tuple[str, bytes | None]]
PlainRecord = tuple[int, int, bytes | None, bytes | None, Headers]
"""The fields of a `Record`; the offset has no meaning yet. Python's garbage collector does not
track a plain tuple without headers, but it would track an instance of a subclass."""
_timestamp_of = operator.itemgetter(1)
Listener = Callable[[RecordMetadata, Exception | None], object]
"""Called with one record's result; the offset is -1 if the record failed or if it is unknown."""
RowsListener = Callable[[int, "Delivery"], object]
"""Called with the result of rows sent in one batch: index of the first row, and delivery."""
RowsReport = tuple[RowsListener, int]
"""A listener of rows, and the index of the first row."""


class ProducerIdentity(NamedTuple):
    """The producer id and epoch that sequence numbers belong to."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Delivery(NamedTuple):
    """The result of one batch."""

    topic: str
    partition: int
    base_offset: int
    """Offset of the first record; -1 if it is unknown (acks=0, retry of an old batch) or failed."""
    record_count: int
    failure: Exception | None = None


class Body(NamedTuple):
    """Encoded records: offsets count from 0, timestamps are relative to the first record's."""

    data: Buffer
    """The records, uncompressed."""
    record_count: int
    first_timestamp_ms: int
    max_timestamp_ms: int


class Batch:
    """Records of one partition that are sent together: as objects, or encoded as a `body`."""

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
        """Upper estimate of its bytes without compression."""
        self.sequence = NO_SEQUENCE
        self.identity = identity
        self.attempts = 0
        self.body = body
        self.listeners: list[tuple[int, int, Listener]] | None = None
        """(position in the batch, timestamp, listener of that record)."""
        self.stretches: list[tuple[int, int, int, RowsListener]] | None = None
        """(position in the batch, number of rows, index of the first row, listener)."""
        self.drained_ms = 0.0
        """When it was first sent; 0 if it was not."""
        self.ordinal = 0
        """Its number among the partition's sent batches, as of the last time it was sent."""
        self.may_be_written = False
        """Whether an attempt with the current sequence number ended without a clear rejection."""
        self.is_of_unknown = False
        """Whether it is half of such a batch: brokers would not recognize it as a retry."""
        self._header: BatchHeader | None = None
        """The header; None until the batch is encoded."""
        self._payload: Buffer = b""
        """The compressed records."""
        self._encoded: list[Buffer] = []
        """Header and payload as they were last sent."""
        self._encoded_objects = 0

    @property
    def record_count(self) -> int:
        """Number of records."""
        if self._header is not None:
            return self._header.record_count
        return len(self.records) if self.body is None else self.body.record_count

    def due_ms(self, timeout_ms: float, tried_ms: float) -> float:
        """Return when the batch expires: `timeout_ms` after its first record.

        If it was already older at its first attempt (`tried_ms`), because the sender did not run,
        it expires `timeout_ms` after that attempt.
        """
        due_ms = self.created_ms + timeout_ms
        return due_ms if due_ms > tried_ms else tried_ms + timeout_ms

    @property
    def encoded_bytes(self) -> int:
        """Size in bytes as it was last sent; 0 before."""
        return sum(map(len, self._encoded))

    @property
    def held_bytes(self) -> int:
        """Bytes that count towards the producer's buffer until the batch ends."""
        return self.size + RECORD_OBJECTS_BYTES * (self._encoded_objects or len(self.records))

    def listen(self, listener: Listener) -> None:
        """Register a listener for the result of the newest record."""
        if self.listeners is None:
            self.listeners = []
        self.listeners.append((len(self.records) - 1, self.records[-1][1], listener))

    def listen_to_rows(self, count: int, first_row: int, listener: RowsListener) -> None:
        """Register a listener for the result of the newest `count` records."""
        if self.stretches is None:
            self.stretches = []
        self.stretches.append((len(self.records) - count, count, first_row, listener))

    def encode(self, codec: Codec, level: int | None, *, is_transactional: bool) -> list[Buffer]:
        """Return the batch's bytes in pieces, identical in retries, and drop the records."""
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
        """What identifies the batch to brokers: producer id, epoch and first sequence number."""
        return (*self.identity, self.sequence)

    def _encode_payload(
        self, codec: Codec, level: int | None, *, is_transactional: bool
    ) -> BatchHeader:
        """Encode the records as the payload; return a header without producer id and sequence."""
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
        """Return two batches of half the records each, with their sequences and listeners."""
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
    """Return an upper estimate of a record's bytes."""
    _, _, key, value, headers = record
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    return size + headers_size(headers) if headers else size


def headers_size(headers: Headers) -> int:
    """Return an upper estimate of the bytes of headers in a record."""
    return sum(len(name.encode()) + len(value or b"") + HEADER_OVERHEAD for name, value in headers)
