"""Converts blocks of a dataset to records for partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types

from raylog.client.arrow.headers import HEADERS_TYPE
from raylog.sink.driver import SinkSettings
from raylog.sink.rows import BadColumns, Block, Splitter, Topics

_WANTED = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS_TYPE,
}
_HEADER_FIELDS = {"key", "value"}


def record_columns(table: pa.Table) -> pa.Table:
    """Return the columns of `raylog.sink.rows.COLUMNS`, null if missing. Raises BadColumns."""
    if "value" not in table.column_names:
        raise BadColumns(
            f"expected a column 'value', found {', '.join(table.column_names) or 'none'}"
        )
    columns = {name: _column(table, name, wanted) for name, wanted in _WANTED.items()}
    return pa.table({**columns, "timestamp": _milliseconds(table)})


def _column(table: pa.Table, name: str, wanted: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Return a column in its record type. Raises BadColumns for types that need a conversion."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, wanted)
    found = table.column(name)
    if not pa.types.is_null(found.type) and not _fits(found.type, wanted):
        expected = "string or binary" if name in ("key", "value") else str(wanted)
        raise BadColumns(f"column {name!r}: expected {expected}, found {found.type}")
    return found.cast(wanted)


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    is_text = bool(types.is_string(found) or types.is_large_string(found))
    if types.is_string(wanted):
        return is_text
    if types.is_binary(wanted):
        is_bytes = types.is_binary(found) or types.is_large_binary(found)
        return bool(is_text or is_bytes or types.is_fixed_size_binary(found))
    if types.is_integer(wanted):
        return bool(types.is_integer(found))
    is_list = types.is_list(found) and types.is_struct(found.value_type)
    return is_list and {field.name for field in found.value_type} == _HEADER_FIELDS


def _milliseconds(table: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Return the timestamps in ms since 1970."""
    if "timestamp" not in table.column_names:
        return pa.nulls(table.num_rows, pa.int64())
    found = table.column("timestamp")
    if pa.types.is_null(found.type):
        return found.cast(pa.int64())
    if not pa.types.is_timestamp(found.type):
        raise BadColumns(f"column 'timestamp': expected a timestamp, found {found.type}")
    return (
        pc.floor_temporal(found, unit="millisecond")
        .cast(pa.timestamp("ms", found.type.tz))
        .cast(pa.int64())
    )


def split_block(
    table: pa.Table, topics: Topics, number: int, now_ms: int, settings: SinkSettings
) -> Iterator[Block]:
    """Divide the rows of block `number` by output partition.

    Equal rows always get the same partitions. Raises BadColumns and BadRow.
    """
    splitter = Splitter(topics, settings.row_bytes_max, number, now_ms, settings.writer)
    if not table.num_rows:
        return iter(())  # Ray's operators leave such a block without columns
    batches = record_columns(table).combine_chunks().to_batches(settings.rows_per_block)
    return splitter.split(batches)
