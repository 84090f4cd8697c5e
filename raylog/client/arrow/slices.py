"""Cuts columns of bytes out of larger buffers, without an object per value."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from raylog.client.arrow.varints import Bytes, Flags, Numbers

Offset = TypeVar("Offset", np.int32, np.int64)
_INLINE_BYTES_MAX = 12
"""Largest value that an Arrow view stores inline instead of pointing to it."""


def binary_slices(data: Bytes, sizes: Numbers, starts: Numbers, ends: Numbers) -> pa.BinaryArray:
    """Return the bytes between ascending positions, null for negative sizes; Arrow copies once.

    If all values are long, they become views, which are cast to an array. Otherwise the values and
    the gaps between them form one array, of which every second element is taken.
    """
    count = len(sizes)
    if not count or sizes.max() <= 0:
        return _empty_slices(sizes >= 0)
    if sizes.min() > _INLINE_BYTES_MAX:
        views = np.zeros((count, 4), np.int32)  # length, prefix, buffer index, offset
        views[:, 0] = sizes
        views[:, 3] = starts
        return pa.Array.from_buffers(
            pa.binary_view(), count, [None, pa.py_buffer(views), pa.py_buffer(data)]
        ).cast(pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    both = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    taken = both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    if sizes.min() >= 0:
        return taken
    return _with_nulls(taken, sizes >= 0)


def _empty_slices(is_there: Flags) -> pa.BinaryArray:
    if not is_there.any():
        return pa.nulls(len(is_there), pa.binary())
    bounds = np.zeros(len(is_there) + 1, np.int32)
    empty = pa.Array.from_buffers(
        pa.binary(), len(is_there), [None, pa.py_buffer(bounds), pa.py_buffer(b"")]
    )
    return empty if is_there.all() else _with_nulls(empty, is_there)


def _with_nulls(found: pa.BinaryArray, is_there: Flags) -> pa.BinaryArray:
    """Return the column with nulls where no value is present."""
    bits = np.packbits(is_there, bitorder="little")
    _, bounds, content = found.buffers()
    return pa.Array.from_buffers(
        pa.binary(), len(found), [pa.py_buffer(bits), bounds, content], offset=found.offset
    )


def bounds_of(column: pa.BinaryArray) -> NDArray[np.int32]:
    """Return the offsets of a binary or string column in its content, including the last end."""
    return _offsets(column, np.int32)


def large_bounds_of(column: pa.LargeBinaryArray) -> Numbers:
    """Return the same of a column of type large_binary."""
    return _offsets(column, np.int64)


def _offsets(column: pa.Array, kind: type[Offset]) -> NDArray[Offset]:
    bounds = column.buffers()[1]
    if bounds is None:  # possible in a column without rows
        return np.zeros(1, kind)
    size = np.dtype(kind).itemsize
    return np.frombuffer(bounds, kind, len(column) + 1, column.offset * size)


def content_of(column: pa.BinaryArray) -> Bytes:
    """Return the bytes that the offsets of `bounds_of` refer to."""
    content = column.buffers()[2]
    return np.frombuffer(b"" if content is None else content, np.uint8)
