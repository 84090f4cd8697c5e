"""Converts rows of the transform to records for the sink."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions

from raylog.raydp_jobs.columns import record_columns
from raylog.raydp_jobs.pipelines import registered
from raylog.raydp_jobs.pipelines.avro import AvroSchema, read_schema, spark_schema
from raylog.raydp_jobs.pipelines.protobuf_rows import spark_columns
from raylog.raydp_jobs.pipelines.reading import KEY, TOMBSTONE
from raylog.raydp_jobs.pipelines.spec import BadSpec, TopicSink
from raylog.sink.rows import COLUMNS, BadColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
_JSON = {"ignoreNullFields": "false", **_TIMES}
_JSON_WITHOUT_NULLS = {"ignoreNullFields": "true", **_TIMES}
"""For JSON Schema, where optional properties are rarely nullable."""


def records(rows: DataFrame, sink: TopicSink) -> DataFrame:
    """Return the sink's columns; raise BadSpec for columns that do not fit the sink.

    If the rows have a column `_tombstone` and the sink has a key, a row where it is true becomes
    its key without a value. Values then contain neither that column nor `_key`, if that is the key.
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
    """Return a column by its exact name, which may contain any character."""
    escaped = name.replace("`", "``")
    return functions.col(f"`{escaped}`")


def _is_tombstone(rows: DataFrame) -> Column | None:
    """Return whether a row is a tombstone; None if the transform does not say."""
    if TOMBSTONE not in rows.columns:
        return None
    kind = rows.schema[TOMBSTONE].dataType.simpleString()
    if kind != "boolean":
        raise BadSpec(f"transform: column {TOMBSTONE}: expected boolean, found {kind}")
    return functions.coalesce(functions.col(TOMBSTONE), functions.lit(False))


def _key_of_tombstone(key: Column, names: list[str]) -> Column:
    """Return the key, but fail the batch if it is null, because that would delete nothing."""
    message = (
        f"BadRow: a tombstone without a key ({', '.join(names)}): take the key from _key, or set "
        'the source\'s tombstones = "drop"'
    )
    is_there = reduce(or_, (functions.col(name).isNotNull() for name in names))
    return functions.when(is_there, key).otherwise(
        functions.raise_error(functions.lit(message)).cast("binary")
    )


def _raw(name: str) -> Column:
    """Return a sink column; cast key and value to bytes, as dead letters have them."""
    column = functions.col(name)
    return column.cast("binary").alias(name) if name in {"key", "value"} else column


def _key(rows: DataFrame, names: list[str]) -> Column:
    """Return the key: one column as bytes or text, several as a JSON object."""
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
    """Encode `every`, a struct of the rows' columns, as a value; null stays null."""
    if sink.registry is not None:
        return _registered(rows, every, sink)
    if sink.schema_file is None:
        return functions.to_json(every, _JSON).cast("binary")
    schema = read_schema(sink.schema_file, "sink.schema_file")
    _check_columns(rows, spark_schema(schema, "sink.schema_file"))
    return functions.udf(schema.encode, "binary")(every)


def _registered(rows: DataFrame, every: Column, sink: TopicSink) -> Column:
    """Encode values in a registry's wire format and register the schema; raise BadSpec."""
    assert sink.registry is not None
    form = cast("registered.Form", sink.value)  # the model refuses other formats
    subject, field = sink.subject or f"{sink.topic}-value", "sink.registry"
    found = registered.schema_in(sink.registry, form, subject, sink.schema_file, field)
    writes = registered.RowsAs(form, sink.registry, sink.topic, found.id, subject, sink.message)
    if form == "json-schema":
        return functions.udf(writes.encode, "binary")(functions.to_json(every, _JSON_WITHOUT_NULLS))
    if form == "avro":
        _check_columns(rows, spark_schema(AvroSchema(found.avro_text(field)), field))
    else:
        message = registered.message_of(found.registry, found.schema, sink.message)
        _check_columns(rows, spark_columns(message, field))
    return functions.udf(writes.encode, "binary")(every)


def _check_columns(rows: DataFrame, expected_columns: StructType) -> None:
    """Raise BadSpec unless the rows have a schema's columns."""
    wanted = {field.name: field.dataType.simpleString() for field in expected_columns}
    found = {field.name: field.dataType.simpleString() for field in rows.schema}
    for name in [*wanted, *found]:
        expected, is_there = wanted.get(name, "no such column"), found.get(name, "none")
        if expected != is_there:
            raise BadSpec(f"sink.value: column {name}: expected {expected}, found {is_there}")
