"""What compaction keeps of a batch (KIP-354, KIP-534): Apache Kafka's rules, without any I/O.

| record | kept |
|---|---|
| beyond the keys that were read | always |
| with a later record of the same key | never |
| without a key | never |
| tombstone | for `delete.retention.ms` after it was first cleaned |
| of an aborted transaction | never |

A batch keeps its offsets, sequences and producer, with gaps where records were removed. An empty
batch is removed, unless it is its producer's last one, which is kept without records to preserve
the sequence. The first cleaning of a tombstone, or of a marker with nothing left to mark, writes
into the batch when it may be removed: attribute bit 6 is set, and the base timestamp is that time.
"""

from collections.abc import Iterator
from typing import NamedTuple

from raylog.storage.cleaned_transactions import CleanedTransactions
from raylog.storage.latest import LatestOffsets
from raylog.storage.producers import LastOfProducers
from raylog.wire.bulk import bulk_records
from raylog.wire.compression import compress
from raylog.wire.record import Record, decode_records
from raylog.wire.records import (
    DECOMPRESSED_BYTES_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    assemble,
    body_of,
    encode_like,
)

_HORIZON_BIT = 0x40
_CODEC_BITS = 0x07
_LATEST_MS = 2**63 - 1


class _Kept(NamedTuple):
    """Records of a batch to keep: their bytes, their number, whether any is a tombstone."""

    body: bytes
    records: int
    has_tombstone: bool


def key_records(
    header: BatchHeader, batch: memoryview, transactions: CleanedTransactions
) -> Iterator[tuple[int, bytes | None, bytes | None, int]]:
    """Records of a batch that count as the latest of their keys; none if it is discarded."""
    discarded = transactions.is_discarded(header, batch)
    if discarded or header.is_control or header.record_count == 0:
        return iter(())
    body = body_of(batch, header, DECOMPRESSED_BYTES_MAX)
    return bulk_records(body, header.record_count, header.base_offset)


def placeholder(header: BatchHeader) -> bytes:
    """An empty batch with the offsets of `header`, so that a segment ends where it did."""
    plain = header._replace(
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        attributes=0,
    )
    return _emptied(plain)


def _emptied(header: BatchHeader) -> bytes:
    """The batch without records and without a timestamp, so that no lookup by time finds it."""
    return assemble(
        header._replace(
            attributes=header.attributes & ~(_HORIZON_BIT | _CODEC_BITS),
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


class Compaction:
    """Decides for one cleaning of a log. Batches must come in order."""

    def __init__(
        self,
        latest: LatestOffsets,
        transactions: CleanedTransactions,
        producers: LastOfProducers,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._latest = latest
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, _LATEST_MS)

    def left_of(self, header: BatchHeader, batch: memoryview) -> memoryview | bytes | None:
        """What remains of a batch: the same batch, another one with the same offsets, or None.

        Raises INVALID_RECORD or another KafkaError if its records are malformed.
        """
        discarded = self._transactions.is_discarded(header, batch)
        if header.is_control and header.record_count:
            return self._left_of_marker(header, batch, discarded=discarded)
        if discarded or header.record_count == 0:
            return self._empty(header)
        body = body_of(batch, header, DECOMPRESSED_BYTES_MAX)
        kept = self._kept(header, body)
        if kept.records == 0:
            return self._empty(header)
        if kept.has_tombstone and not header.attributes & _HORIZON_BIT:
            return self._with_horizon(header, kept.body, kept.records)
        if kept.records == header.record_count:
            return batch
        return _with_body(header, kept.body, kept.records)

    def _left_of_marker(
        self, header: BatchHeader, batch: memoryview, *, discarded: bool
    ) -> memoryview | bytes | None:
        if not discarded:
            return batch
        if not header.attributes & _HORIZON_BIT:
            body = body_of(batch, header, DECOMPRESSED_BYTES_MAX)
            return self._with_horizon(header, body, header.record_count)
        return self._empty(header) if header.base_timestamp <= self._now_ms else batch

    def _empty(self, header: BatchHeader) -> bytes | None:
        offsets, epochs = self._producers
        if header.is_control:
            is_last = header.producer_epoch == epochs.get(header.producer_id)
        else:
            is_last = header.last_offset == offsets.get(header.producer_id)
        return _emptied(header) if is_last else None

    def _kept(self, header: BatchHeader, body: bytes) -> _Kept:
        keeps_tombstones = (
            not header.attributes & _HORIZON_BIT or self._now_ms < header.base_timestamp
        )
        is_overtaken = self._latest.is_overtaken
        end_offset = self._latest.end_offset
        parts = []
        start = count = tombstones = 0
        for offset, key, value, end in bulk_records(body, header.record_count, header.base_offset):
            if offset >= end_offset:
                stays = True
            elif key is None or is_overtaken(offset, key):
                stays = False
            elif value is None:
                stays = keeps_tombstones
                tombstones += stays
            else:
                stays = True
            if stays:
                parts.append(body[start:end])
                count += 1
            start = end
        return _Kept(b"".join(parts), count, tombstones > 0)

    def _with_horizon(self, header: BatchHeader, body: bytes, count: int) -> bytes:
        """The batch with these records, marked with the time when its tombstones may be removed.

        That is earlier if a record's difference to this time would take more than 64 bits.
        """
        records = _records(header, body, count)
        latest_ms = min([record.timestamp for record in records]) + 2**63
        marked = header._replace(
            attributes=header.attributes | _HORIZON_BIT,
            base_timestamp=min(self._horizon_ms, latest_ms),
        )
        return encode_like(marked, records)


def _with_body(header: BatchHeader, body: bytes, count: int) -> bytes:
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = max([record.timestamp for record in _records(header, body, count)])
    header = header._replace(max_timestamp=max_timestamp, record_count=count)
    return assemble(header, compress(header.codec, body))


def _records(header: BatchHeader, body: bytes, count: int) -> list[Record]:
    return list(decode_records(body, count, header.base_offset, header.base_timestamp))
