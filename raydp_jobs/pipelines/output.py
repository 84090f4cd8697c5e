"""Rows of the transform as records for the sink."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions

from raylog.raydp_jobs.pipelines.avro import read_schema, spark_schema
from raylog.raydp_jobs.pipelines.reading import KEY, TOMBSTONE
from raylog.raydp_jobs.pipelines.spec import BadSpec, TopicSink
from raylog.raydp_jobs.rows import COLUMNS, BadColumns, record_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
_JSON = {"ignoreNullFields": "false", **_TIMES}


def records(rows: DataFrame, sink: TopicSink) -> DataFrame:
    """The sink's columns; raises BadSpec for columns that are not as the sink needs them.

    With a column `_tombstone` and a key, a row where it is true becomes its key without a value.
    Neither that column nor `_key`, if it is the key, are then part of any value.
    """
    if sink.value == "raw":
        try:
            record_columns(rows)
        except BadColumns as failure:
            raise BadSpec(f"sink.value: {failure}") from failure
        return rows.select(*(_raw(name) for name in rows.columns if name in COLUMNS))
    is_tombstone = _is_tombstone(rows)
    others = rows.drop(TOMBSTONE)
    if is_tombstone is not None and KEY in sink.key:
        others = others.drop(KEY)
    of_value = ["*"] if is_tombstone is None else list(map(_column, others.columns))
    every = functions.struct(of_value)
    if not sink.key:
        return rows.select(_value(others, every, sink).alias("value"))
    key = _key(rows, sink.key)
    if is_tombstone is not None:
        every = functions.when(~is_tombstone, every)
        key = functions.when(is_tombstone, _key_of_tombstone(key, sink.key)).otherwise(key)
    return rows.select(_value(others, every, sink).alias("value"), key.alias("key"))


def _column(name: str) -> Column:
    """A column by its name, whatever is in it."""
    escaped = name.replace("`", "``")
    return functions.col(f"`{escaped}`")


def _is_tombstone(rows: DataFrame) -> Column | None:
    """Whether a row stands for a record without a value; None: the transform does not tell."""
    if TOMBSTONE not in rows.columns:
        return None
    kind = rows.schema[TOMBSTONE].dataType.simpleString()
    if kind != "boolean":
        raise BadSpec(f"transform: column {TOMBSTONE}: expected boolean, found {kind}")
    return functions.coalesce(functions.col(TOMBSTONE), functions.lit(False))


def _key_of_tombstone(key: Column, names: list[str]) -> Column:
    """The same key; null fails the batch, since nothing would be deleted by it."""
    told = (
        f"BadRow: a tombstone without a key ({', '.join(names)}): take the key from _key, or set "
        'the source\'s tombstones = "drop"'
    )
    is_there = reduce(or_, (functions.col(name).isNotNull() for name in names))
    return functions.when(is_there, key).otherwise(
        functions.raise_error(functions.lit(told)).cast("binary")
    )


def _raw(name: str) -> Column:
    """A column of the sink's; text as bytes, as dead letters have it."""
    column = functions.col(name)
    return column.cast("binary").alias(name) if name in {"key", "value"} else column


def _key(rows: DataFrame, names: list[str]) -> Column:
    """One column as it is or as text, several as a JSON object."""
    for name in names:
        if name not in rows.columns:
            raise BadSpec(
                f"sink.key: expected columns of the transform ({', '.join(rows.columns)}), "
                f"found {name!r}"
            )
    if len(names) > 1:
        return functions.to_json(functions.struct(*names), _JSON).cast("binary")
    kind = rows.schema[names[0]].dataType.simpleString()
    key = functions.col(names[0])
    if kind in {"binary", "string"}:
        return key.cast("binary")
    if kind.partition("<")[0] in {"struct", "array", "map"}:
        return functions.to_json(key, _JSON).cast("binary")
    return key.cast("string").cast("binary")


def _value(rows: DataFrame, every: Column, sink: TopicSink) -> Column:
    """`every`, a struct of the rows' columns, as a value; null if it is null."""
    if sink.schema_file is None:
        return functions.to_json(every, _JSON).cast("binary")
    schema = read_schema(sink.schema_file, "sink.schema_file")
    wanted = {
        field.name: field.dataType.simpleString()
        for field in spark_schema(schema, "sink.schema_file")
    }
    found = {field.name: field.dataType.simpleString() for field in rows.schema}
    for name in [*wanted, *found]:
        expected, is_there = wanted.get(name, "no such column"), found.get(name, "none")
        if expected != is_there:
            raise BadSpec(f"sink.value: column {name}: expected {expected}, found {is_there}")
    return functions.udf(schema.encode, "binary")(every)
