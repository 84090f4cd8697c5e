"""Encodes columns to the bodies of record batches: the bytes `wire.record.encode_records` writes.

A record consists of leading numbers, the key, the value's length, the value and its headers. The
numbers of all records are written at once; Arrow joins the parts, and each batch's body is a slice
of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types

from raylog.client.arrow.slices import bounds_of, content_of
from raylog.client.arrow.varints import (
    Numbers,
    Zigzags,
    varint_widths,
    write_varints,
    zigzags,
)

_NO_HEADERS = b"\0"


class EncodedBody(NamedTuple):
    """The records of one batch, uncompressed."""

    data: memoryview
    record_count: int
    first_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of records, of equal length."""

    keys: pa.BinaryArray | None
    """None if no record has a key."""
    values: pa.BinaryArray
    timestamps: Numbers
    headers: pa.ListArray | None = None
    """Of type HEADERS_TYPE, without null names; None if no record has headers."""

    def take(self, order: Numbers) -> Rows:
        """Return the rows at these indexes, in this order."""
        places = pa.array(order)
        return Rows(
            None if self.keys is None else self.keys.take(places),
            self.values.take(places),
            self.timestamps[order],
            None if self.headers is None else self.headers.take(places),
        )


def encode_bodies(rows: Rows, starts: Sequence[int]) -> list[EncodedBody]:
    """Return the bodies of batches that start at these row indexes, the first at 0."""
    count = len(rows.values)
    firsts = np.array(starts, np.int64)
    counts = np.diff(firsts, append=count)
    times = rows.timestamps
    first_times = times[firsts]
    max_times = np.maximum.reduceat(times, firsts)
    joined = _joined(
        rows,
        times - np.repeat(first_times, counts),
        np.arange(count, dtype=np.int64) - np.repeat(firsts, counts),
    )
    bounds = bounds_of(joined)[np.append(firsts, count)].tolist()
    data = content_of(joined).data
    return [
        EncodedBody(data[begin:end], record_count, first, last)
        for begin, end, record_count, first, last in zip(
            bounds[:-1],
            bounds[1:],
            counts.tolist(),
            first_times.tolist(),
            max_times.tolist(),
            strict=True,
        )
    ]


def _joined(rows: Rows, time_deltas: Numbers, offset_deltas: Numbers) -> pa.BinaryArray:
    """Return the bytes of each record."""
    value_sizes = _sizes(rows.values)
    sizes = np.maximum(value_sizes, 0) + 1  # plus the attributes
    if rows.keys is None:
        key_sizes: Numbers = np.full(len(sizes), -1)
    else:
        key_sizes = _sizes(rows.keys)
        sizes += np.maximum(key_sizes, 0)
    head = [_Field.of(time_deltas), _Field.of(offset_deltas), _Field.of(key_sizes)]
    value_head = _Field.of(value_sizes)
    tails = None if rows.headers is None else _headers(rows.headers)
    sizes += 1 if tails is None else np.diff(bounds_of(tails))
    for each in (*head, value_head):
        sizes += each.widths
    head = [_Field.of(sizes), _ATTRIBUTES, *head]
    parts: list[pa.BinaryArray] = []
    if rows.keys is None:
        parts.append(_written([*head, value_head]))
    else:
        parts += (_written(head), rows.keys, _written([value_head]))
    parts += (rows.values, pa.scalar(_NO_HEADERS, pa.binary()) if tails is None else tails)
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")


class _Field(NamedTuple):
    """A number field of all records; None: zero in each."""

    numbers: Zigzags | None
    widths: Numbers | int

    @classmethod
    def of(cls, numbers: Numbers) -> _Field:
        """Encode numbers as zigzag varints."""
        zigzag = zigzags(numbers)
        return cls(zigzag, varint_widths(zigzag))


_ATTRIBUTES = _Field(None, 1)
"""Always zero: the format defines no record attributes."""


def _sizes(column: pa.BinaryArray) -> Numbers:
    """Return the lengths of values, -1 for null."""
    sizes = np.diff(bounds_of(column)).astype(np.int64)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return sizes


def _written(fields: Sequence[_Field]) -> pa.BinaryArray:
    """Write the fields of each record next to each other."""
    total = np.asarray(sum(each.widths for each in fields))
    bounds = np.zeros(len(total) + 1, np.int64)
    np.cumsum(total, out=bounds[1:])
    out = np.zeros(int(bounds[-1]), np.uint8)
    at = bounds[:-1]
    for numbers, widths in fields:
        if numbers is not None:
            write_varints(out, at, numbers)
        at = at + widths
    return pa.Array.from_buffers(
        pa.binary(),
        len(total),
        [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(out)],
    )


def _headers(column: pa.ListArray) -> pa.BinaryArray:
    """Return the last part of each record: the number of headers, and the headers."""
    if column.null_count:
        column = column.fill_null([])
    bounds = column.offsets.to_numpy().astype(np.int64)
    pairs = column.values.slice(bounds[0], bounds[-1] - bounds[0])  # the column may be a slice
    bounds -= bounds[0]
    names = pairs.field("key").cast(pa.binary())
    values = pairs.field("value")
    each = pc.binary_join_element_wise(
        _written([_Field.of(_sizes(names))]),
        names,
        _written([_Field.of(_sizes(values))]),
        values,
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    counts = np.diff(bounds)
    together = pa.Array.from_buffers(
        pa.binary(),
        len(column),
        [None, pa.py_buffer(bounds_of(each)[bounds]), each.buffers()[2]],
    )
    return pc.binary_join_element_wise(_written([_Field.of(counts)]), together, b"")
