"""Record batches as columns, without an object for each record.

The lengths at the head of records are followed one by one; all other numbers of many batches are
then decoded together. Only headers are read record by record.

| column | type | |
|---|---|---|
| `topic` | string | |
| `partition` | int32 | |
| `offset` | int64 | rises within a partition; there may be gaps |
| `timestamp` | timestamp[ms, UTC] | null: the record has none |
| `timestamp_type` | int8 | 0 the producer's time (CreateTime), 1 the broker's (LogAppendTime) |
| `key`, `value` | binary | may be null |
| `headers` | list of struct of `key` string, `value` binary | null: the record has none |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from raylog.wire.errors import DecodeError, InvalidRecord
from raylog.wire.record import decode_headers
from raylog.wire.records import (
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    body_of,
    check_crc,
)
from raylog.wire.varint import read_long

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from raylog.client.cluster import TopicPartition

    Numbers = NDArray[np.int64]

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestamp_type", pa.int8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
    ]
)
_VARINT_SHIFT_MAX = 63


@dataclass(slots=True)
class BatchGroup:
    """Batches of one partition that are decoded together."""

    key: TopicPartition
    bytes_max: int
    """Of one batch, decompressed."""
    size: int = 0
    """Bytes, decompressed."""
    _headers: list[BatchHeader] = field(default_factory=list)
    _bodies: list[bytes] = field(default_factory=list)

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Take a batch; raises as `wire.records.decode_batch` if its CRC or codec is wrong."""
        check_crc(batch, header)
        if header.record_count:  # else the cleaner has left it empty
            body = body_of(batch, header, self.bytes_max)
            self._headers.append(header)
            self._bodies.append(body)
            self.size += len(body)

    def columns(self) -> pa.RecordBatch:
        """All records, of `SCHEMA`; raises InvalidRecord."""
        try:
            return self._decoded()
        except (IndexError, DecodeError) as error:
            raise InvalidRecord(f"{self.key}: fewer records than batches say: {error}") from error

    def _decoded(self) -> pa.RecordBatch:
        body = b"".join(self._bodies)
        data = np.frombuffer(body, np.uint8)
        starts, ends = self._frames(body)
        timestamps, at = _varints(data, starts + 1)  # behind the attributes
        offsets, at = _varints(data, at)
        key_sizes, key_starts = _varints(data, at)
        key_ends = key_starts + np.maximum(key_sizes, 0)
        value_sizes, value_starts = _varints(data, key_ends)
        value_ends = value_starts + np.maximum(value_sizes, 0)
        header_counts, behind = _varints(data, value_ends)
        headers = _headers(body, value_ends, header_counts, behind)
        if not np.array_equal(behind, ends):
            raise InvalidRecord(f"{self.key}: fields end elsewhere than their records' lengths say")
        offsets += self._repeated("base_offset")
        kinds, times = self._times(timestamps)
        count = len(starts)
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(self.key.topic, count),
                pa.repeat(pa.scalar(self.key.partition, pa.int32()), count),
                pa.array(offsets),
                times,
                kinds,
                pa.array(_slices(body, key_sizes, key_starts, key_ends), pa.binary()),
                pa.array(_slices(body, value_sizes, value_starts, value_ends), pa.binary()),
                headers,
            ],
            schema=SCHEMA,
        )

    def _frames(self, body: bytes) -> tuple[Numbers, Numbers]:
        """Where each record begins, behind its length, and ends."""
        starts: list[int] = []
        ends: list[int] = []
        position = 0
        end = 0
        for header, part in zip(self._headers, self._bodies, strict=True):
            end += len(part)
            position = _follow(body, position, header.record_count, starts, ends)
            if position != end:
                raise InvalidRecord(
                    f"{self.key}: {header.record_count} records from offset {header.base_offset} "
                    f"end {position - end:+} bytes from where their batch does"
                )
        return np.array(starts, np.int64), np.array(ends, np.int64)

    def _times(self, deltas: Numbers) -> tuple[pa.Array, pa.Array]:
        """Types of timestamps, and timestamps."""
        kinds = self._repeated("timestamp_type")
        is_appended = kinds == TimestampType.LOG_APPEND_TIME
        times = np.where(
            is_appended, self._repeated("max_timestamp"), deltas + self._repeated("base_timestamp")
        )
        found = pa.array(times, pa.int64(), mask=times == NO_TIMESTAMP)
        return pa.array(kinds.astype(np.int8)), found.cast(SCHEMA.field("timestamp").type)

    def _repeated(self, name: str) -> Numbers:
        """A field of the batches' headers, once for each record."""
        values = np.array([getattr(header, name) for header in self._headers], np.int64)
        return np.repeat(values, [header.record_count for header in self._headers])


def _follow(body: bytes, position: int, count: int, starts: list[int], ends: list[int]) -> int:
    """Note where records begin, behind their lengths, and end; returns where the last one does."""
    for _ in range(count):
        z_size = body[position]
        position += 1
        if z_size > 127:
            if (high := body[position]) < 128:  # two bytes: the usual case
                z_size += (high << 7) - 128
                position += 1
            else:
                z_size, position = read_long(body, position, z_size)
        starts.append(position)
        position += z_size >> 1
        ends.append(position)
    return position


def _headers(body: bytes, value_ends: Numbers, counts: Numbers, behind: Numbers) -> pa.Array:
    """The records' headers; sets where they end in `behind`."""
    (having,) = counts.nonzero()
    if not len(having):
        return pa.nulls(len(counts), HEADERS_TYPE)
    listed: list[list[dict[str, Any]] | None] = [None] * len(counts)
    for n in having.tolist():
        found: list[tuple[str, bytes | None]] = []
        position = int(value_ends[n])
        behind[n] = decode_headers(body, position + 1, body[position], found)
        listed[n] = [{"key": name, "value": value} for name, value in found]
    return pa.array(listed, HEADERS_TYPE)


def _varints(data: NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Numbers]:
    """The zigzag varints at positions, and the positions behind them."""
    byte = data[at].astype(np.uint64)
    value = byte & np.uint64(0x7F)
    at = at + 1
    more = byte > 0x7F
    shift = 7
    while more.any():
        if shift > _VARINT_SHIFT_MAX:
            raise InvalidRecord("a number of more than 10 bytes")
        byte = np.where(more, data[np.where(more, at, 0)], 0).astype(np.uint64)
        value |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        at = at + more
        more = byte > 0x7F
        shift += 7
    magnitude, sign = (value >> np.uint64(1)).view(np.int64), (value & np.uint64(1)).view(np.int64)
    return magnitude ^ -sign, at


def _slices(body: bytes, sizes: Numbers, starts: Numbers, ends: Numbers) -> list[Any]:
    """Bytes between positions; None where the size is negative."""
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    if (sizes >= 0).all():
        return [body[start:end] for start, end in pairs]
    return [
        None if is_null else body[start:end]
        for is_null, (start, end) in zip((sizes < 0).tolist(), pairs, strict=True)
    ]
