"""Selects the columns of a DataFrame that records are made of (`raylog.sink.rows`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.sink.rows import BadColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_TYPES = {
    "topic": ("string",),
    "partition": ("int", "smallint", "tinyint"),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (_HEADERS_TYPE,),
    "timestamp": ("timestamp",),
}
_CAST = {
    "topic": "string",
    "partition": "int",
    "key": "binary",
    "value": "binary",
    "headers": _HEADERS_TYPE,
}


def record_columns(df: DataFrame) -> DataFrame:
    """Select `COLUMNS`, each with one type, null where missing; raise BadColumns."""
    found = {field.name: field.dataType for field in df.schema.fields}
    if "value" not in found:
        raise BadColumns(f"expected a column 'value', found {', '.join(found) or 'none'}")
    for name, data_type in found.items():
        _check_type(name, data_type)
    columns = [
        f"cast({f'`{name}`' if name in found else 'null'} as {kind}) as `{name}`"
        for name, kind in _CAST.items()
    ]
    time = "unix_millis(`timestamp`)" if "timestamp" in found else "cast(null as bigint)"
    return df.selectExpr(*columns, f"{time} as `timestamp`")


def _check_type(name: str, data_type: DataType) -> None:
    """Refuse types that would need a conversion to bytes; ignore columns with other names."""
    allowed = _TYPES.get(name)
    found = data_type.simpleString()
    if allowed is not None and found not in (*allowed, "void"):
        raise BadColumns(f"column {name!r}: expected {' or '.join(allowed)}, found {found}")
