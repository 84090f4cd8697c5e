"""Writes records that do not parse to another topic: key, value and headers unchanged.

Additional headers say what is wrong, as UTF-8 text:

| header | contents |
|---|---|
| `__raylog.errors.reason` | why it does not parse |
| `__raylog.errors.topic`, `.partition`, `.offset` | where the record is |
| `__raylog.errors.timestamp` | its timestamp, in ms since 1970 |
| `__raylog.errors.pipeline` | the pipeline that found it |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions

from raylog.raydp_jobs.pipelines.failures import BadInput
from raylog.raydp_jobs.pipelines.formats import REASON
from raylog.raydp_jobs.pipelines.reading import origin

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PREFIX = "__raylog.errors."
_KEY_SHOWN = 40
_HEADERS = "array<struct<key:string,value:binary>>"


def dead_letters(bad: DataFrame, pipeline: str) -> DataFrame:
    """Convert records that do not parse to the sink's columns."""
    headers = {
        "reason": functions.col(REASON),
        "topic": functions.col("_topic"),
        "partition": functions.col("_partition"),
        "offset": functions.col("_offset"),
        "timestamp": functions.unix_millis("_timestamp"),
        "pipeline": functions.lit(pipeline),
    }
    own = functions.array(*(_header(name, value) for name, value in headers.items()))
    theirs = functions.coalesce("_headers", functions.array().cast(_HEADERS))
    return bad.select(
        functions.col("_key").alias("key"),
        functions.col("_value").alias("value"),
        functions.concat(theirs, own.cast(_HEADERS)).alias("headers"),
        functions.col("_timestamp").alias("timestamp"),
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
        functions.lit(f"{PREFIX}{name}").alias("key"),
        value.cast("string").cast("binary").alias("value"),
    )
