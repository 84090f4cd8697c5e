"""Columns of bytes, cut out of larger ones without an object for each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from raylog.client.arrow.varints import Bytes, Flags, Numbers

_INLINE_BYTES_MAX = 12
"""Of what a view holds itself instead of pointing to it."""


def binary_slices(data: Bytes, sizes: Numbers, starts: Numbers, ends: Numbers) -> pa.BinaryArray:
    """Bytes between positions that rise, null where a size is negative; copied once, by Arrow.

    Long ones are views that become an array; else bytes to be kept and bytes between them are one
    array, of which every second is taken.
    """
    count = len(sizes)
    if not count or sizes.max() <= 0:
        return _empty_slices(sizes >= 0)
    if sizes.min() > _INLINE_BYTES_MAX:
        views = np.zeros((count, 4), np.int32)  # length, prefix, number of the buffer, place
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
    """The same with nulls where nothing is there."""
    bits = np.packbits(is_there, bitorder="little")
    _, bounds, content = found.buffers()
    return pa.Array.from_buffers(
        pa.binary(), len(found), [pa.py_buffer(bits), bounds, content], offset=found.offset
    )


def bounds_of(column: pa.BinaryArray) -> NDArray[np.int32]:
    """Where the values of a binary or string column begin in its content, and the last one ends."""
    bounds = column.buffers()[1]
    if bounds is None:  # as a column without rows may have it
        return np.zeros(1, np.int32)
    return np.frombuffer(bounds, np.int32, len(column) + 1, column.offset * 4)


def content_of(column: pa.BinaryArray) -> Bytes:
    """The bytes that `bounds_of` refers to."""
    content = column.buffers()[2]
    return np.frombuffer(b"" if content is None else content, np.uint8)
