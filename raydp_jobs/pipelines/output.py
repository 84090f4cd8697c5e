"""Rows of the transform as records for the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions

from raylog.raydp_jobs.pipelines.avro import read_schema, spark_schema
from raylog.raydp_jobs.pipelines.spec import BadSpec, TopicSink
from raylog.raydp_jobs.rows import COLUMNS, BadColumns, record_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
_JSON = {"ignoreNullFields": "false", **_TIMES}


def records(rows: DataFrame, sink: TopicSink) -> DataFrame:
    """The sink's columns; raises BadSpec for columns that are not as the sink needs them."""
    if sink.value == "raw":
        try:
            record_columns(rows)
        except BadColumns as failure:
            raise BadSpec(f"sink.value: {failure}") from failure
        return rows.select(*(_raw(name) for name in rows.columns if name in COLUMNS))
    columns = [_value(rows, sink).alias("value")]
    if sink.key:
        columns.append(_key(rows, sink.key).alias("key"))
    return rows.select(*columns)


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


def _value(rows: DataFrame, sink: TopicSink) -> Column:
    every = functions.struct("*")
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
