"""Decodes values of records to columns, or to a reason why that fails.

Each format adds two columns: `_record`, a struct of the schema, and `_reason`, null unless the
value does not fit the schema.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_string,
)

from raylog.raydp_jobs.pipelines import registered
from raylog.raydp_jobs.pipelines.avro import AvroSchema, read_schema, spark_schema
from raylog.raydp_jobs.pipelines.failures import first_line
from raylog.raydp_jobs.pipelines.protobuf_rows import spark_columns
from raylog.raydp_jobs.pipelines.spec import BadSpec, TopicSource, TopicTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECORD, REASON = "_record", "_reason"
_CORRUPT = "_corrupt"
_FOUND_CHARS_MAX = 60
_STRICT = (
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.int96RebaseModeInWrite",
)
"""Settings that by default fail a whole batch for one date that does not exist or is very old."""
_NO_VALUE = "there is no value"


def decoded(raw: DataFrame, source: TopicSource | TopicTable, field: str) -> DataFrame:
    """Add the two columns to `raw`; raise BadSpec naming fields below `field`.

    A tombstone has no `_record`; whether it gets a reason depends on the source.
    """
    settings = raw.sparkSession.conf
    for name in _STRICT:
        if settings.get(name) == "EXCEPTION":
            settings.set(name, "CORRECTED")
    found = _decoded(raw, source, field)
    is_refused = isinstance(source, TopicSource) and source.tombstones == "refuse"
    no_value = functions.lit(_NO_VALUE if is_refused else None).cast("string")
    is_tombstone = functions.col("_value").isNull()
    return found.withColumn(
        REASON, functions.when(is_tombstone, no_value).otherwise(functions.col(REASON))
    )


def _decoded(raw: DataFrame, source: TopicSource | TopicTable, field: str) -> DataFrame:
    """Add the two columns for values other than tombstones."""
    value = functions.col("_value")
    match source.format:
        case "json":
            return _from_json(raw, json_schema(source.ddl or "", f"{field}.schema"), value)
        case "avro" if source.registry is None:
            assert source.schema_file is not None, "the model asks for it"
            schema = read_schema(source.schema_file, f"{field}.schema_file")
            columns = spark_schema(schema, f"{field}.schema_file")
            return _decoding(raw, schema.decode, columns, "_value")
        case "json-schema":
            return _from_registered_json(raw, source, field)
        case "avro" | "protobuf":
            values, columns = _registered(source, field)
            return _decoding(raw, values.decode, columns, "_value", "_topic")
        case "text":
            text = functions.struct(value.cast("string").alias("value"))
            reason = functions.when(~_is_text(value), "not UTF-8")
            return raw.withColumns({RECORD: text, REASON: reason})
        case "binary":
            record = functions.struct(value.alias("value"))
            return raw.withColumns({RECORD: record, REASON: functions.lit(None).cast("string")})


def json_schema(ddl: str, field: str) -> StructType:
    """Parse columns from Spark's DDL; raise BadSpec."""
    try:
        schema = _parse_datatype_string(ddl)
    except PySparkException as failure:
        raise BadSpec(f"{field}: {first_line(failure)}") from failure
    if not isinstance(schema, StructType) or not schema.fields:
        raise BadSpec(f"{field}: expected columns as in 'id BIGINT NOT NULL', found {ddl!r}")
    _refuse_not_null_inside(schema, field)
    return schema


def _refuse_not_null_inside(schema: StructType, field: str) -> None:
    """Refuse NOT NULL columns in arrays and maps: a reason could not name the missing one."""
    for one in schema.fields:
        inner = one.dataType
        while isinstance(inner, ArrayType | MapType):
            inner = inner.elementType if isinstance(inner, ArrayType) else inner.valueType
            if isinstance(inner, StructType) and not all(of.nullable for of in inner.fields):
                raise BadSpec(f"{field}: column {one.name}: NOT NULL in an array or map")
        if isinstance(inner, StructType):
            _refuse_not_null_inside(inner, field)


def _from_json(raw: DataFrame, schema: StructType, value: Column) -> DataFrame:
    """Parse JSON objects. Each is in an array, before a mark that no value knows.

    If the mark is not second, there is text after the object, which Spark would ignore.
    """
    text, mark = value.cast("string"), f"_{secrets.token_hex(8)}"
    before, after = functions.lit(f'{{"{mark}":['), functions.lit(f',{{"{mark}":true}}]}}')
    marked = StructType([*schema.fields, StructField(mark, BooleanType())])
    outer = StructType([StructField(mark, ArrayType(marked)), StructField(_CORRUPT, StringType())])
    options = {"columnNameOfCorruptRecord": _CORRUPT}
    wrapped = functions.concat(before, text, after)
    parsed = raw.withColumn("_parsed", functions.from_json(wrapped, outer, options))
    array, corrupt = (functions.col(f"_parsed.{name}") for name in (mark, _CORRUPT))
    record = functions.get(array, 0).dropFields(mark)
    is_whole = corrupt.isNull() & functions.get(array, 1)[mark].isNotNull()
    missing = [
        functions.when(is_missing, f"{path} is missing, expected {kind}")
        for path, kind, is_missing in _required(schema, record, "")
    ]
    reason = (
        functions.when(~_is_text(value), "not UTF-8")
        .when(~is_whole, _why_not(schema, record, text))
        .when(record.isNull(), "expected a JSON object, found null")
        .otherwise(functions.coalesce(*missing, functions.lit(None).cast("string")))
    )
    return parsed.withColumns({RECORD: record, REASON: reason}).drop("_parsed")


def _required(schema: StructType, at: Column, path: str) -> Iterator[tuple[str, str, Column]]:
    """Yield each required column: its path, its type, and whether it is missing in its parent."""
    for field in schema.fields:
        column, name = at[field.name], f"{path}{field.name}"
        if not field.nullable:
            yield name, field.dataType.simpleString(), at.isNotNull() & column.isNull()
        if isinstance(field.dataType, StructType):
            yield from _required(field.dataType, column, f"{name}.")


def _why_not(schema: StructType, record: Column, text: Column) -> Column:
    """Describe why a value does not fit the schema."""
    wrong = []
    for field in schema.fields:
        found = functions.get_json_object(text, f"$['{field.name}']")
        kind = field.dataType.simpleString()
        message = functions.concat(
            functions.lit(f"{field.name}: expected {kind}, found "),
            functions.substring(found, 1, _FOUND_CHARS_MAX),
        )
        wrong.append(functions.when(record[field.name].isNull() & found.isNotNull(), message))
    is_json = functions.get_json_object(text, "$").isNotNull()
    several = functions.concat_ws("; ", *wrong)
    return (
        functions.when(~is_json, "malformed JSON")
        .when(record.isNull() | (several == ""), "not one JSON object of the schema")
        .otherwise(several)
    )


def _decoding(
    raw: DataFrame, decode: Callable[..., tuple[Any, str | None]], kind: DataType, *columns: str
) -> DataFrame:
    """Decode values in Python; nondeterministic, so that Spark decodes none of them twice."""
    result = StructType([StructField("record", kind), StructField("reason", StringType())])
    found = raw.withColumn("_decoded", functions.udf(decode, result).asNondeterministic()(*columns))
    return found.withColumns(
        {RECORD: functions.col("_decoded.record"), REASON: functions.col("_decoded.reason")}
    ).drop("_decoded")


def _registered(
    source: TopicSource | TopicTable, field: str
) -> tuple[registered.ValuesOf, StructType]:
    """Return the decoder of a registry's values, and their columns; raise BadSpec."""
    assert source.registry is not None, "the model asks for it"
    if source.format == "protobuf":
        found = registered.schema_in(
            source.registry, "protobuf", _subject(source), None, f"{field}.registry"
        )
        message = registered.message_of(found.registry, found.schema, source.message)
        columns = spark_columns(message, f"{field}.registry")
        name = message.full_name
        return registered.ValuesOf("protobuf", source.registry, name, found.id), columns
    if source.schema_file is not None:
        schema = read_schema(source.schema_file, f"{field}.schema_file")
    else:
        found = registered.schema_in(
            source.registry, "avro", _subject(source), None, f"{field}.registry"
        )
        schema = AvroSchema(found.avro_text(f"{field}.registry"))
    columns = spark_schema(schema, f"{field}.registry")
    return registered.ValuesOf("avro", source.registry, schema.text), columns


def _subject(source: TopicSource | TopicTable) -> str:
    """Return the subject with the schema of a source's columns."""
    topic = source.topics[0] if isinstance(source, TopicSource) else source.topic
    return source.subject or f"{topic}-value"


def _from_registered_json(
    raw: DataFrame, source: TopicSource | TopicTable, field: str
) -> DataFrame:
    """Parse JSON in a registry's wire format: first its own schema, then the columns."""
    assert source.registry is not None, "the model asks for it"
    schema = json_schema(source.ddl or "", f"{field}.schema")
    values = registered.ValuesOf("json-schema", source.registry)
    text = _decoding(raw, values.decode, BinaryType(), "_value", "_topic")
    named = text.withColumnsRenamed({RECORD: "_text", REASON: "_unread"})
    found = _from_json(named, schema, functions.col("_text"))
    reason = functions.coalesce("_unread", REASON)
    return found.withColumn(REASON, reason).drop("_text", "_unread")


def _is_text(value: Column) -> Column:
    """Return whether bytes are UTF-8; Spark itself would replace invalid bytes."""
    again = functions.encode(functions.decode(value, "UTF-8"), "UTF-8")
    return value.isNull() | (again == value)
