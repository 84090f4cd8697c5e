"""Record batches of format v2 (KIP-98), as they travel and as they lie on disk.

A batch is a header of 61 bytes and its records, compressed as one frame or plain:

    0 base offset 8        12 leader epoch 4   23 last offset delta 4   43 producer id 8
    8 batch length 4       16 magic 1          27 base timestamp 8      51 producer epoch 2
                           17 crc 4            35 max timestamp 8       53 base sequence 4
                           21 attributes 2                              57 record count 4

`batch length` counts from offset 12. The CRC-32C covers everything from the attributes on, so
base offset and leader epoch are patched without touching it. Attributes: bits 0-2 codec,
3 timestamp type (1 = log append time), 4 transactional, 5 control, 6 delete horizon (KIP-534).
Timestamps are milliseconds since the epoch.

The broker checks a produced batch by its header and CRC (`check_produced`), then its records
(`validate_records`), and stores it as it is, but for the largest timestamp if that is wrong.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from raylog.wire.buffers import Buffer
from raylog.wire.compression import Codec, compress, decompress
from raylog.wire.errors import (
    CorruptMessage,
    DecodeError,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
    error_text,
)
from raylog.wire.record import RECORD_BYTES_MIN, decode_records, encode_records
from raylog.wire.record import Record as Record

if TYPE_CHECKING:
    from raylog.wire.walk import Patience

BATCH_OVERHEAD = 61
"""The size of a batch without its records."""

LENGTH_OVERHEAD = 12
"""The bytes that `batch_length` does not count."""

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""The default limit of a batch's decompressed size."""

BASE_OFFSET_MAX = 2**63 - 1 - 2**31
"""The largest base offset of a batch. Its records' offsets then fit into 64 bits."""

NO_TIMESTAMP = -1
TIMESTAMP_MAX = 2**63 - 1
ANY_TIME = 2**65
"""Larger than any sum of a base timestamp and a difference to it."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

MAGIC = 2
_HEADER = struct.Struct(">qiibIhiqqqhii")
unpack_header = _HEADER.unpack_from
"""The fields of a `BatchHeader` at a position, as a bare unchecked tuple for hot loops."""

_OFFSET = struct.Struct(">q")
_EPOCH_AT = 12
_EPOCH = struct.Struct(">i")
_CRC_AT = 17
_CRC = struct.Struct(">I")
_ATTRIBUTES_AT = 21
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP_AT = 35
_TIMESTAMP = struct.Struct(">q")
_START = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")  # covered by the CRC

_CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
"""A bit of a batch's attributes. BatchHeader has properties; this is for hot loops."""
_CODECS = tuple(Codec)
_REFUSED_NAMED = 1_000
_REFUSED_SHOWN = 3  # in the error message of the whole batch, as in Apache Kafka


class TimestampType(IntEnum):
    """The clock of a batch's timestamps (topic config `message.timestamp.type`)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header of a batch. Its sizes and counts are unverified until the batch was checked."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> Codec:
        """The codec. Raises UNSUPPORTED_COMPRESSION_TYPE for an unknown number."""
        number = self.attributes & _CODEC_BITS
        if number >= len(_CODECS):
            raise UnsupportedCompressionType(f"compression type {number} is unknown")
        return _CODECS[number]

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction, or a marker that ends one."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether brokers wrote it. Applications never get it."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def timestamp_type(self) -> TimestampType:
        """The clock of the timestamps. With LOG_APPEND_TIME all records have `max_timestamp`."""
        if self.attributes & LOG_APPEND_TIME_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    def with_codec(self, codec: Codec) -> "BatchHeader":
        """A copy with another codec in its attributes."""
        return self._replace(attributes=self.attributes & ~_CODEC_BITS | codec)

    @property
    def size(self) -> int:
        """The size of the whole batch."""
        return LENGTH_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch, the exclusive end."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record. Sequences wrap to 0 after 2^31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def _crc_of(data: Buffer, start: int = 0) -> int:
    """CRC-32C at 20 GB/s: too short to release the GIL, which may take 5 ms to come back."""
    from crc32c import crc32c  # a slow import, so only its users pay for it

    return crc32c(data, start, gil_release_mode=0)


# ---- one batch by its header -------------------------------------------------------------------


def read_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at `position`. CRC and end of the batch are not checked.

    Raises DecodeError if fewer than 61 bytes remain, UNSUPPORTED_FOR_MESSAGE_FORMAT for formats
    before v2, CORRUPT_MESSAGE for impossible values.
    """
    if len(buf) - position < BATCH_OVERHEAD:
        raise DecodeError(f"batch header is cut: {len(buf) - position} of {BATCH_OVERHEAD} bytes")
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buf, position))
    if header.magic in (0, 1):
        raise UnsupportedForMessageFormat(f"message format v{header.magic}, expected v2")
    if header.magic != MAGIC:
        raise CorruptMessage(f"magic {header.magic}, expected {MAGIC}")
    if header.batch_length < BATCH_OVERHEAD - LENGTH_OVERHEAD:
        raise CorruptMessage(f"batch length {header.batch_length} is shorter than its header")
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptMessage(
            f"{header.record_count} records, last offset delta {header.last_offset_delta}"
        )
    if not 0 <= header.base_offset <= BASE_OFFSET_MAX:
        raise CorruptMessage(
            f"expected a base offset from 0 to 2**63 - 2**31 - 1, found {header.base_offset}"
        )
    return header


def check_crc(buf: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Raise CORRUPT_MESSAGE unless the batch is complete and its CRC-32C matches the header."""
    end = position + header.size
    if end > len(buf):
        raise CorruptMessage(f"batch of {header.size} bytes, {len(buf) - position} present")
    found = _crc_of(memoryview(buf)[position + _ATTRIBUTES_AT : end])
    if found != header.crc:
        raise CorruptMessage(f"batch CRC {header.crc:#010x}, computed {found:#010x}")


def iter_batches(buf: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Header and bytes of each batch. CRCs are not checked.

    Ends before an incomplete batch, since brokers cut a fetch response at its size limit.
    """
    view = memoryview(buf)
    position = 0
    while len(view) - position >= BATCH_OVERHEAD:
        header = read_header(view, position)
        end = position + header.size
        if end > len(view):
            return
        yield header, view[position:end]
        position = end


def assign(buf: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Patch the leader's base offset and epoch into a batch. The CRC does not cover them."""
    _OFFSET.pack_into(buf, 0, base_offset)
    _EPOCH.pack_into(buf, _EPOCH_AT, leader_epoch)


def set_log_append_time(buf: bytearray | memoryview, timestamp_ms: int) -> None:
    """Set the timestamp of every record of the single batch in `buf`."""
    (attributes,) = _ATTRIBUTES.unpack_from(buf, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(buf, _ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
    set_max_timestamp(buf, timestamp_ms)


def set_max_timestamp(buf: bytearray | memoryview, timestamp_ms: int) -> None:
    """Patch the largest timestamp, and the CRC, of the single batch in `buf`."""
    _TIMESTAMP.pack_into(buf, _MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(buf, _CRC_AT, _crc_of(memoryview(buf)[_ATTRIBUTES_AT:]))


# -- what a client may write ---------------------------------------------------------------------


def check_produced(buf: Buffer) -> BatchHeader:
    """Check the single batch that a client produced to a partition, but not its records.

    Errors are Apache Kafka's: INVALID_RECORD, CORRUPT_MESSAGE, INVALID_TIMESTAMP,
    INVALID_PRODUCER_EPOCH. So is their order: framing, base offset, CRC, then what the CRC covers.
    Size and time limits belong to the topic and are not checked here.
    """
    header = _produced_header(buf)
    if header.base_offset != 0:
        raise InvalidRecord(f"base offset {header.base_offset}, expected 0")
    found = _crc_of(memoryview(buf)[_ATTRIBUTES_AT:])
    if found != header.crc:
        raise CorruptMessage(f"batch CRC {header.crc:#010x}, computed {found:#010x}")
    _check_count(header)
    _check_attributes(header.attributes)
    _check_producer(header)
    return header


def _produced_header(buf: Buffer) -> BatchHeader:
    """Read the header of a buffer that holds exactly one batch of format v2."""
    if len(buf) < BATCH_OVERHEAD:
        raise InvalidRecord(f"no record batch in {len(buf)} bytes")
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buf))
    surplus = len(buf) - header.batch_length - LENGTH_OVERHEAD
    if surplus == 0 and header.magic == MAGIC:
        return header
    if header.magic in (0, 1):
        raise InvalidRecord(f"message format v{header.magic}, expected v2")
    if header.magic != MAGIC:
        raise CorruptMessage(f"magic {header.magic}, expected {MAGIC}")
    if header.batch_length < BATCH_OVERHEAD - LENGTH_OVERHEAD:
        raise CorruptMessage(f"batch length {header.batch_length} is shorter than its header")
    if surplus < 0:
        raise InvalidRecord(f"record batch of {header.size} bytes is cut at {len(buf)}")
    raise InvalidRecord(f"expected exactly one record batch, {surplus} bytes follow it")


def _check_count(header: BatchHeader) -> None:
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{count} records, last offset delta {header.last_offset_delta}")
    plain_bytes = header.batch_length - (BATCH_OVERHEAD - LENGTH_OVERHEAD)
    if count * RECORD_BYTES_MIN > plain_bytes and not header.attributes & _CODEC_BITS:
        raise InvalidRecord(f"{count} records do not fit in {plain_bytes} bytes")


def _check_attributes(attributes: int) -> None:
    if attributes & ~(TRANSACTIONAL_BIT | _CODEC_BITS):
        if attributes & CONTROL_BIT:
            raise InvalidRecord("clients are not allowed to write control records")
        if attributes & LOG_APPEND_TIME_BIT:
            raise InvalidTimestamp("a producer must not set the type LogAppendTime")
        raise InvalidRecord(f"attributes {attributes:#06x} have unknown bits")
    if attributes & _CODEC_BITS >= len(_CODECS):
        raise UnsupportedCompressionType(f"compression type {attributes & _CODEC_BITS}")


def _check_producer(header: BatchHeader) -> None:
    """Check the producer fields. Without a producer id some clients send zeros for the others."""
    if header.producer_id == NO_PRODUCER_ID:
        if header.is_transactional:
            raise InvalidRecord("a transactional batch has no producer id")
        return
    if header.producer_id < 0 or header.base_sequence < 0:
        raise InvalidRecord(
            f"sequence {header.base_sequence} with producer id {header.producer_id}"
        )
    if header.producer_epoch < 0:
        raise InvalidProducerEpoch(
            f"epoch {header.producer_epoch} with producer id {header.producer_id}"
        )


class Validated(NamedTuple):
    """The result of walking the records of a produced batch."""

    body: bytes
    """The decompressed records."""
    max_timestamp: int
    """The true largest timestamp, which clients may get wrong; -1 if no record has a timestamp."""


def validate_records(
    buf: Buffer,
    header: BatchHeader,
    *,
    needs_keys: bool = False,
    earliest_ms: int = -ANY_TIME,
    latest_ms: int = ANY_TIME,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    patience: "Patience | None" = None,
) -> Validated | None:
    """Walk the records of a batch that passed `check_produced`, as Apache Kafka does.

    Raises INVALID_RECORD for what `walk` refuses and for a body that does not decompress,
    MESSAGE_TOO_LARGE beyond `max_bytes` decompressed, and the errors of `refuse_records`. Returns
    None if `walk` exceeds `patience`, or if the rest is too little to name the refused records.
    """
    try:
        body = body_of(memoryview(buf), header, max_bytes)
    except CorruptMessage as garbage:
        raise InvalidRecord(str(garbage)) from garbage
    count, base = header.record_count, header.base_timestamp
    from raylog.wire.walk import walk  # only brokers walk

    walked = walk(body, count, patience=patience)
    if walked is None:
        return None
    earliest, latest = base + walked.earliest, base + walked.latest
    if earliest < earliest_ms or latest > latest_ms or (needs_keys and walked.has_null_key):
        if patience is not None:
            patience.left -= count
            if patience.left < 0:
                return None
        records = (  # records with timestamps beyond 64 bits are named and refused, too
            Record(offset, base + delta, key, value, headers)
            for offset, delta, key, value, headers in decode_records(
                body, count, header.base_offset, 0
            )
        )
        refuse_records(
            records,
            needs_keys=needs_keys,
            earliest_ms=earliest_ms,
            latest_ms=latest_ms,
        )
    return Validated(body, max(latest, NO_TIMESTAMP))


def refuse_records(
    records: Iterable[tuple[int, int, bytes | None, bytes | None, object]],
    *,
    needs_keys: bool,
    earliest_ms: int,
    latest_ms: int,
) -> None:
    """Raise for a batch with records that a topic does not accept.

    Raises INVALID_RECORD for null keys if the topic is compacted (`needs_keys`), INVALID_TIMESTAMP
    for timestamps outside of [`earliest_ms`, `latest_ms`]. With both it is the latter, as in Apache
    Kafka. `record_errors` of the error names refused records (KIP-467), as many as a usual batch
    has.
    """
    refused: list[tuple[int, str]] = []
    kind: type[KafkaError] = InvalidRecord
    for offset, timestamp, key, _, _ in records:
        if key is None and needs_keys:
            why = "a compacted topic does not accept a record without a key"
        elif not earliest_ms <= timestamp <= latest_ms and timestamp != NO_TIMESTAMP:
            kind = InvalidTimestamp
            why = f"{timestamp} is outside [{earliest_ms}, {latest_ms}]"
        else:
            continue
        if len(refused) < _REFUSED_NAMED:
            refused.append((offset, why))
    if refused:
        raise refusal_of(kind, refused)


def refusal_of(kind: type[KafkaError], refused: Sequence[tuple[int, str]]) -> KafkaError:
    """The error of a batch with refused records, each by its position and a text."""
    shown = "; ".join(f"record {position}: {why}" for position, why in refused[:_REFUSED_SHOWN])
    more = len(refused) - _REFUSED_SHOWN
    failure = kind(f"{shown}; and {more} more" if more > 0 else shown)
    failure.record_errors = tuple((position, error_text(why)) for position, why in refused)
    return failure


# -- reading records -----------------------------------------------------------------------------


def decode_batch(
    buf: Buffer, position: int = 0, *, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Decode the records of the batch at `position`, including control records. Checks the CRC.

    Raises CORRUPT_MESSAGE or INVALID_RECORD if it is malformed, MESSAGE_TOO_LARGE beyond
    `max_bytes` decompressed, DecodeError if not even a header is there.
    """
    return list(iter_records(buf, position, max_bytes=max_bytes))


def iter_records(
    buf: Buffer, position: int = 0, *, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Like `decode_batch`, one record at a time: tiny records take many times their size."""
    header = read_header(buf, position)
    check_crc(buf, header, position)
    return records_of(memoryview(buf)[position : position + header.size], header, max_bytes)


def records_of(batch: memoryview, header: BatchHeader, max_bytes: int) -> Iterator[Record]:
    """Like `iter_records`, for a whole batch with a header that was read.

    Does not check the CRC.
    """
    body = body_of(batch, header, max_bytes)
    count, base_offset = header.record_count, header.base_offset
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        records = decode_records(body, count, base_offset, 0)  # producers' timestamps do not count
        appended = header.max_timestamp
        return (
            Record(offset, appended, key, value, headers)
            for offset, _, key, value, headers in records
        )
    return decode_records(body, count, base_offset, header.base_timestamp)


def body_of(batch: memoryview, header: BatchHeader, max_bytes: int) -> bytes:
    """Decompress the records. Raises MESSAGE_TOO_LARGE beyond `max_bytes`."""
    return decompress(header.codec, batch[BATCH_OVERHEAD : header.size], max_bytes)


# -- writing records -----------------------------------------------------------------------------


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Encode a batch of at least one record, with offsets from `base_offset`."""
    assert records, "a batch has at least one record"
    attributes = (
        codec
        | timestamp_type * LOG_APPEND_TIME_BIT
        | is_transactional * TRANSACTIONAL_BIT
        | is_control * CONTROL_BIT
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=records[0].timestamp,
        max_timestamp=max([record.timestamp for record in records]),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    body = encode_records(records, range(len(records)), header.base_timestamp)
    return assemble(header, compress(codec, body, level) if codec else body)


def encode_like(header: BatchHeader, records: Sequence[Record], level: int | None = None) -> bytes:
    """Encode the batch of `header` with other, perhaps fewer records, which keep their offsets.

    Offset range, sequences, producer and attributes stay, so that readers see gaps as after
    compaction, and duplicates are still detected. `records` may be empty. An empty batch is never
    compressed, as in Apache Kafka, because librdkafka aborts on an empty compressed one.
    """
    if not records:
        header = header.with_codec(Codec.NONE)
    max_timestamp = header.max_timestamp
    if records and header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max([record.timestamp for record in records])
    deltas = [record.offset - header.base_offset for record in records]
    body = encode_records(records, deltas, header.base_timestamp)
    header = header._replace(max_timestamp=max_timestamp, record_count=len(records))
    return assemble(header, compress(header.codec, body, level))


def compressed(header: BatchHeader, body: bytes, codec: Codec, level: int | None = None) -> bytes:
    """The batch of `header` with its records `body`, compressed by another codec."""
    return assemble(header.with_codec(codec), compress(codec, body, level))


def assemble(header: BatchHeader, payload: Buffer) -> bytes:
    """The batch of `header` and its compressed records, with correct length and CRC."""
    return b"".join((encode_header(header, payload), payload))


def encode_header(header: BatchHeader, payload: Buffer) -> bytes:
    """Encode `header` with the length and CRC of its payload."""
    batch_length = BATCH_OVERHEAD - LENGTH_OVERHEAD + len(payload)
    try:
        covered = _COVERED.pack(*header[5:])
        crc = _crc_of(payload, _crc_of(covered))
        start = _START.pack(*header[:1], batch_length, *header[2:4], crc)
    except struct.error as error:
        raise InvalidRecord(f"batch header: {error}") from error
    return start + covered


def with_producer(
    batch: Buffer, producer_id: int, producer_epoch: int, base_sequence: int
) -> bytes:
    """A copy of a batch with another producer and a new CRC."""
    header = read_header(batch)._replace(
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
    )
    return assemble(header, bytes(memoryview(batch)[BATCH_OVERHEAD:]))
