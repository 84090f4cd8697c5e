"""Encodes record batches from Arrow columns, whole columns at a time.

A record is five pieces in a row: its lengths and deltas, the key, the length of the value, the
value, the headers. Numbers are encoded as varints for all rows at once. Arrow joins the pieces row
by row; its buffer then holds the records of all batches, one after another.

The output equals that of `wire.records.encode_batch` for `Record`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from raylog.wire.compression import Codec, compress
from raylog.wire.record import encode_headers
from raylog.wire.records import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble,
)

Numbers = NDArray[np.int64]
_NO_HEADERS = b"\0"
_ATTRIBUTES_BYTES = 1
_VARINT_BYTES_MAX = 10
_STARTS = 1 << (7 * np.arange(1, _VARINT_BYTES_MAX, dtype=np.uint64))
"""The smallest numbers that need two bytes, three bytes, and so on."""


class Columns(NamedTuple):
    """The columns of records; `headers` is already encoded."""

    timestamps: Numbers
    """In ms."""
    keys: pa.LargeBinaryArray
    values: pa.LargeBinaryArray
    headers: pa.LargeBinaryArray | None
    """None: no row has headers."""

    def sizes(self) -> Numbers:
        """Return the bytes of each row's key, value and headers."""
        sizes = np.maximum(_lengths(self.keys), 0) + np.maximum(_lengths(self.values), 0)
        sizes += len(_NO_HEADERS) if self.headers is None else _lengths(self.headers)
        return sizes

    def take(self, rows: Numbers) -> Columns:
        """Return these rows, in this order."""
        return Columns(
            self.timestamps[rows],
            self.keys.take(pa.array(rows)),
            self.values.take(pa.array(rows)),
            None if self.headers is None else self.headers.take(pa.array(rows)),
        )


class _Varints(NamedTuple):
    """Numbers as varints: a row of bytes each, of which the first `sizes` are used."""

    groups: NDArray[np.uint8]
    sizes: Numbers


def encoded_headers(column: pa.Array) -> pa.LargeBinaryArray | None:
    """Encode lists of (`key`, `value`) structs as record headers; None if all are empty."""
    if column.null_count == len(column) or not len(column.flatten()):
        return None
    pairs = ([(each["key"], each["value"]) for each in row or ()] for row in column.to_pylist())
    return pa.array([encode_headers(each) for each in pairs], pa.large_binary())


def encode_batches(
    columns: Columns, bounds: Sequence[int], codec: Codec, level: int | None
) -> list[bytes]:
    """Encode the rows between successive `bounds` as transactional batches without a producer."""
    starts = np.asarray(bounds[:-1], np.int64)
    counts = np.diff(bounds)
    base_times = columns.timestamps[starts]
    bodies, offsets = _bodies(
        columns,
        columns.timestamps - np.repeat(base_times, counts),
        np.arange(len(columns.timestamps)) - np.repeat(starts, counts),
    )
    max_times = np.maximum.reduceat(columns.timestamps, starts)
    encoded = []
    for i, start in enumerate(bounds[:-1]):
        body = bytes(bodies[offsets[start] : offsets[bounds[i + 1]]])
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=codec | TRANSACTIONAL_BIT,
            last_offset_delta=int(counts[i]) - 1,
            base_timestamp=int(base_times[i]),
            max_timestamp=int(max_times[i]),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=int(counts[i]),
        )
        encoded.append(assemble(header, compress(codec, body, level) if codec else body))
    return encoded


def _bodies(columns: Columns, times: Numbers, deltas: Numbers) -> tuple[memoryview, Numbers]:
    """Return all records, concatenated, and the offset of each; the last number is the end."""
    key_sizes, value_sizes = _lengths(columns.keys), _lengths(columns.values)
    numbers = [_varints(each) for each in (times, deltas, key_sizes)]
    value_length = _varints(value_sizes)
    contents = (
        _ATTRIBUTES_BYTES + sum(each.sizes for each in (*numbers, value_length)) + columns.sizes()
    )
    attributes = _Varints(np.zeros((len(times), _ATTRIBUTES_BYTES), np.uint8), np.ones_like(times))
    heads = _pieces(_varints(contents), attributes, *numbers)
    joined = pc.binary_join_element_wise(
        heads,
        columns.keys,
        _pieces(value_length),
        columns.values,
        pa.scalar(_NO_HEADERS, pa.large_binary()) if columns.headers is None else columns.headers,
        pa.scalar(b"", pa.large_binary()),
        null_handling="replace",
        null_replacement=b"",
    )
    _, offsets, data = joined.buffers()
    return memoryview(data), np.frombuffer(offsets, np.int64)[: len(times) + 1]


def _varints(numbers: Numbers) -> _Varints:
    """Encode numbers as zigzag varints: seven bits per byte, the lowest first."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    sizes = 1 + np.searchsorted(_STARTS, zigzag, side="right")
    width = int(sizes.max())
    shifts = 7 * np.arange(width, dtype=np.uint64)
    groups = ((zigzag[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    groups |= (np.arange(width) < (sizes - 1)[:, None]).astype(np.uint8) << 7
    return _Varints(groups, sizes)


def _pieces(*numbers: _Varints) -> pa.LargeBinaryArray:
    """Concatenate the varints of each row."""
    groups = np.hstack([each.groups for each in numbers])
    counts = np.hstack([np.arange(each.groups.shape[1]) < each.sizes[:, None] for each in numbers])
    offsets = np.zeros(len(groups) + 1, np.int64)
    np.cumsum(counts.sum(axis=1), out=offsets[1:])
    buffers: list[Any] = [None, pa.py_buffer(offsets), pa.py_buffer(groups[counts])]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(groups), buffers)


def _lengths(column: pa.LargeBinaryArray) -> Numbers:
    """Return the length of each value, -1 for null, as in a record."""
    found: Numbers = pc.binary_length(column).fill_null(-1).to_numpy()
    return found
