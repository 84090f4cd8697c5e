"""Record headers as a column of lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from raylog.client.arrow.slices import binary_slices
from raylog.client.arrow.varints import Bytes, Numbers, read_varints
from raylog.wire.errors import DecodeError, InvalidRecord
from raylog.wire.varint import decode_varint

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS_TYPE = pa.list_(HEADER_TYPE)
_ROUNDS_MAX = 32
"""Headers per record that are located together with those of other records."""


def no_headers(count: int) -> pa.ListArray:
    """Return a column of empty lists."""
    bounds = pa.py_buffer(np.zeros(count + 1, np.int32))
    nothing = pa.array([], HEADER_TYPE)
    return pa.Array.from_buffers(HEADERS_TYPE, count, [None, bounds], children=[nothing])


class Headers:
    """The headers of some records: located first, then cut out."""

    def __init__(self, data: Bytes, counts: Numbers, starts: Numbers) -> None:
        """`starts` are the positions after the header counts. Raises InvalidRecord."""
        if len(counts) and (counts.min() < 0 or counts.max() > len(data)):
            raise InvalidRecord(f"{counts.min()} to {counts.max()} headers in a record")
        total = int(counts.sum())
        if total > len(data):
            raise InvalidRecord(f"{total} headers in {len(data)} bytes")
        self.ends = starts.copy()
        """Where each record's headers end."""
        self._data = data
        self._counts = counts
        self._bounds = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=self._bounds[1:])
        self._names = np.empty((total, 3), np.int64)
        """Size, start and end of each header's name."""
        self._values = np.empty((total, 3), np.int64)
        self._find()

    def column(self) -> pa.ListArray:
        """Return all headers. Callers must first check that they end where their records do."""
        names = _text(binary_slices(self._data, *self._names.T))
        values = binary_slices(self._data, *self._values.T)
        pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
        bounds = pa.array(self._bounds.astype(np.int32))
        return pa.ListArray.from_arrays(bounds, pairs)

    def _find(self) -> None:
        """Locate the first header of all records, then the second, and so on."""
        (which,) = self._counts.nonzero()
        at = self.ends[which]
        for n in range(_ROUNDS_MAX):
            if not len(which):
                return
            slots = self._bounds[which] + n
            at = self._find_content(self._names, slots, at)
            at = self._find_content(self._values, slots, at)
            if self._names[slots, 0].min() < 0:
                raise InvalidRecord("record header without a name")
            self.ends[which] = at
            is_longer = self._counts[which] > n + 1
            which, at = which[is_longer], at[is_longer]
        for record in which.tolist():
            self._find_rest(record)

    def _find_content(self, found: Numbers, slots: Numbers, at: Numbers) -> Numbers:
        sizes, starts = read_varints(self._data, at)
        ends = starts + np.maximum(sizes, 0)
        if sizes.max() > len(self._data) or ends.max() > len(self._data):
            raise InvalidRecord("a record header that ends behind its batch")
        found[slots, 0], found[slots, 1], found[slots, 2] = sizes, starts, ends
        return ends

    def _find_rest(self, record: int) -> None:
        """Locate the remaining headers of a record that has many, one by one."""
        view = self._data.data
        position = int(self.ends[record])
        first, end = self._bounds[record : record + 2].tolist()
        try:
            for slot in range(first + _ROUNDS_MAX, end):
                for found in (self._names, self._values):
                    size, start = decode_varint(view, position)
                    position = start + max(size, 0)
                    if position > len(view) or (size < 0 and found is self._names):
                        raise InvalidRecord(f"record header with a length of {size}")
                    found[slot] = size, start, position
        except DecodeError as error:
            raise InvalidRecord(f"record headers: {error}") from error
        self.ends[record] = position


def _text(names: pa.BinaryArray) -> pa.StringArray:
    """Decode names; invalid UTF-8 becomes replacement characters, as in Java."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string()
        )
