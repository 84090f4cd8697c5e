"""Writes records that do not parse to another topic: key, value and headers unchanged.

Additional headers say what is wrong, as UTF-8 text:

| header | contents |
|---|---|
| `__raylog.errors.reason` | why it does not parse |
| `__raylog.errors.topic`, `.partition`, `.offset` | where the record is |
| `__raylog.errors.timestamp` | its timestamp, in ms since 1970 |
| `__raylog.errors.pipeline` | the pipeline that found it |
| `raylog-value-left-out` | bytes of a value that was too large to write with these headers |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions

from raylog.client.parallel.letters import VALUE_LEFT_OUT
from raylog.raydp_jobs.pipelines.failures import BadInput
from raylog.raydp_jobs.pipelines.formats import REASON
from raylog.raydp_jobs.pipelines.reading import origin

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PREFIX = "__raylog.errors."
_KEY_SHOWN = 40
_HEADERS = "array<struct<key:string,value:binary>>"
_BYTES = (
    "coalesce(octet_length(key), 0) + octet_length(value) + aggregate(headers, 40, (sum, it) -> "
    "sum + octet_length(it.key) + coalesce(octet_length(it.value), 0) + 10)"
)
"""Upper bound of a record's size as the sink counts it; null if there is no value."""


def dead_letters(bad: DataFrame, pipeline: str, bytes_max: int) -> DataFrame:
    """Convert records that do not parse to the sink's columns.

    A record of more than `bytes_max` loses its value, as in dead letters of
    `raylog.client.parallel`.
    """
    headers = {
        "reason": functions.col(REASON),
        "topic": functions.col("_topic"),
        "partition": functions.col("_partition"),
        "offset": functions.col("_offset"),
        "timestamp": functions.unix_millis("_timestamp"),
        "pipeline": functions.lit(pipeline),
    }
    own = functions.array(*(_header(f"{PREFIX}{name}", value) for name, value in headers.items()))
    theirs = functions.coalesce("_headers", functions.array().cast(_HEADERS))
    whole = bad.select(
        functions.col("_key").alias("key"),
        functions.col("_value").alias("value"),
        functions.concat(theirs, own.cast(_HEADERS)).alias("headers"),
        functions.col("_timestamp").alias("timestamp"),
    )
    is_too_large = functions.expr(f"{_BYTES} > {bytes_max}")
    note = functions.array(_header(VALUE_LEFT_OUT, functions.octet_length("value")))
    noted = functions.concat("headers", note.cast(_HEADERS))
    return whole.withColumns(
        {
            "value": functions.when(is_too_large, None).otherwise(functions.col("value")),
            "headers": functions.when(is_too_large, noted).otherwise(functions.col("headers")),
        }
    )


def refuse(bad: DataFrame) -> None:
    """Raise BadInput if there is any such record."""
    first = bad.select("_key", REASON, origin().alias("origin")).head()
    if first is None:
        return
    key = "no key" if first["_key"] is None else f"key {bytes(first['_key'])[:_KEY_SHOWN]!r}"
    raise BadInput(f"{first['origin']} ({key}): {first[REASON]}")


def _header(name: str, value: Column) -> Column:
    return functions.struct(
        functions.lit(name).alias("key"),
        value.cast("string").cast("binary").alias("value"),
    )
