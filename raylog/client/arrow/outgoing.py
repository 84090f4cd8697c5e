"""The columns of a table to be sent, checked and converted to the types of record fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types

from raylog.client.arrow.encoding import Rows
from raylog.client.arrow.headers import HEADERS_TYPE
from raylog.client.arrow.varints import Numbers
from raylog.client.errors import InvalidTable
from raylog.client.producer.batch import HEADER_OVERHEAD, RECORD_OVERHEAD

CHOOSE = -1
"""Partition of a row for which none is given."""
_PARTITION_MAX = 2**31 - 1
_DEFAULT_KEY = "key"
_FEW_ROWS = 4_096
"""Chunks of a table with fewer rows on average are combined into one."""


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The column for each part of a record. None: records do not have this part."""

    value: str = "value"
    key: str | None = None
    """None: the column `key`, if there is one."""
    headers: str | None = None
    timestamp: str | None = None
    """None, or a null in a row: the time of sending."""
    partition: str | int | None = None
    """A number applies to all rows. None, or a null in a row: the producer chooses."""


class Outgoing:
    """A table's records. Raises InvalidTable if a column is missing or has the wrong type."""

    def __init__(self, table: pa.Table | pa.RecordBatch, names: ColumnNames, now_ms: int) -> None:
        given: object = table
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        elif not isinstance(given, pa.Table):
            raise InvalidTable(
                f"expected a pyarrow.Table or RecordBatch, found {type(given).__name__}; "
                "pa.table(...) makes one of a DataFrame or a mapping"
            )
        key = names.key
        if key is None and _DEFAULT_KEY in table.column_names and names.value != _DEFAULT_KEY:
            key = _DEFAULT_KEY
        self.row_count: int = table.num_rows
        columns = {"value": _content(table, names.value)}
        if key is not None:
            columns["key"] = _content(table, key)
        if names.headers is not None:
            columns["headers"] = _headers(table, names.headers)
        self._table = _compact(pa.table(columns))
        self._times = _times(table, names.timestamp, now_ms)
        self.partitions = _partitions(table, names.partition)
        """CHOOSE for rows without one; None if no row has one."""
        self.sizes = _sizes(self._table)
        """Upper estimates of the records' sizes in bytes."""

    def pieces(self, piece_bytes: int) -> Iterator[slice]:
        """Yield slices of rows with about this many bytes, never more than Arrow can join."""
        ends = np.cumsum(self.sizes)
        begin = 0
        while begin < self.row_count:
            before = int(ends[begin - 1]) if begin else 0
            end = int(np.searchsorted(ends, before + piece_bytes, "right"))
            end = max(begin + 1, end)
            yield slice(begin, end)
            begin = end

    def rows(self, piece: slice) -> Rows:
        """Return the rows of a slice."""
        part = self._table.slice(piece.start, piece.stop - piece.start)
        values, keys, headers = (_one_array(part, name) for name in ("value", "key", "headers"))
        times = self._times
        return Rows(
            keys,
            values,
            np.full(part.num_rows, times) if isinstance(times, int) else times[piece],
            headers,
        )


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if table.column_names.count(name) != 1:
        found = ", ".join(table.column_names) or "none"
        raise InvalidTable(f"expected one column {name!r}, found {found}")
    return table.column(name)


def _content(table: pa.Table, name: str) -> pa.ChunkedArray:
    """Return keys or values, cast to a type whose lengths Arrow can compute."""
    found = _column(table, name)
    if pa.types.is_dictionary(found.type):
        found = found.cast(found.type.value_type)
    types = pa.types
    if types.is_null(found.type):
        return found.cast(pa.binary())
    if types.is_binary_view(found.type):
        return found.cast(pa.large_binary())
    if types.is_string_view(found.type):
        return found.cast(pa.large_string())
    is_text = types.is_string(found.type) or types.is_large_string(found.type)
    is_bytes = types.is_binary(found.type) or types.is_large_binary(found.type)
    if types.is_fixed_size_binary(found.type):
        return found.cast(pa.binary())
    if not is_text and not is_bytes:
        raise InvalidTable(
            f"column {name!r}: expected strings or bytes, found {found.type}; cast it, or make "
            "JSON of it first"
        )
    return found


def _headers(table: pa.Table, name: str) -> pa.ChunkedArray:
    found = _column(table, name)
    if found.type.equals(HEADERS_TYPE):
        cast = found
    else:
        try:
            cast = found.cast(HEADERS_TYPE)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidTable(
                f"column {name!r}: expected {HEADERS_TYPE}, found {found.type}: {error}"
            ) from error
    pairs = pc.list_flatten(cast)
    if pairs.null_count or pc.struct_field(pairs, "key").null_count:
        raise InvalidTable(f"column {name!r}: expected headers with names, found one without")
    return cast


def _times(table: pa.Table, name: str | None, now_ms: int) -> Numbers | int:
    """Return times in ms, or a single number if all are the same."""
    if name is None:
        return now_ms
    found = _column(table, name)
    if not pa.types.is_timestamp(found.type) and not pa.types.is_integer(found.type):
        raise InvalidTable(f"column {name!r}: expected timestamps or ms, found {found.type}")
    try:
        if pa.types.is_timestamp(found.type):
            plain = found.cast(pa.int64()).cast(pa.timestamp(found.type.unit))  # no zone needed
            found = pc.floor_temporal(plain, unit="millisecond").cast(pa.timestamp("ms"))
        found = found.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise InvalidTable(
            f"column {name!r}: expected times of 64 bits in ms, found a larger one: {error}"
        ) from error
    times: Numbers = pc.fill_null(found, now_ms).to_numpy()
    if times.min(initial=0) < 0:
        raise InvalidTable(f"column {name!r}: expected times from 1970 on, found {times.min()} ms")
    return times


def _partitions(table: pa.Table, given: str | int | None) -> Numbers | None:
    if given is None:
        return None
    if isinstance(given, int):
        if not 0 <= given <= _PARTITION_MAX:
            raise InvalidTable(f"expected a partition or a column of them, found {given}")
        return np.full(table.num_rows, given, np.int64)
    found = _column(table, given)
    if not pa.types.is_integer(found.type):
        raise InvalidTable(f"column {given!r}: expected integers, found {found.type}")
    for extreme in pc.min_max(found).as_py().values():
        if extreme is not None and not 0 <= extreme <= _PARTITION_MAX:
            raise InvalidTable(f"column {given!r}: expected partitions, found {extreme}")
    partitions: Numbers = pc.fill_null(found.cast(pa.int64()), CHOOSE).to_numpy()
    return partitions


def _compact(table: pa.Table) -> pa.Table:
    chunks = max((column.num_chunks for column in table.columns), default=0)
    if chunks > 1 and table.num_rows < chunks * _FEW_ROWS:
        return table.combine_chunks()
    return table


def _sizes(table: pa.Table) -> Numbers:
    sizes = np.full(table.num_rows, RECORD_OVERHEAD, np.int64)
    for name in ("key", "value"):
        if name in table.column_names:
            sizes += _lengths(table.column(name))
    if "headers" in table.column_names:
        sizes += _header_lengths(table.column("headers"))
    return sizes


def _lengths(column: pa.ChunkedArray) -> Numbers:
    found: Numbers = pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return found


def _header_lengths(column: pa.ChunkedArray) -> Numbers:
    pairs = pc.list_flatten(column)
    ends = np.zeros(len(pairs) + 1, np.int64)
    lengths = _lengths(pc.struct_field(pairs, "key")) + _lengths(pc.struct_field(pairs, "value"))
    np.cumsum(lengths + HEADER_OVERHEAD, out=ends[1:])
    bounds = np.zeros(len(column) + 1, np.int64)
    np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy(), out=bounds[1:])
    return np.diff(ends[bounds])


def _one_array(table: pa.Table, name: str) -> pa.Array | None:
    """Return a column of a slice as one array, with text as bytes."""
    if name not in table.column_names:
        return None
    found = table.column(name)
    if name != "headers":
        found = found.cast(pa.binary())
    return found.chunk(0) if found.num_chunks == 1 else pa.concat_arrays(found.chunks)
