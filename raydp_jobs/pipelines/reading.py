"""Reads topics and files as the views of a pipeline.

A topic's view has the columns of its values, then those of the record:

| column | type |
|---|---|
| `event_time` | timestamp, if the source defines it |
| `_key` | binary |
| `_topic`, `_partition`, `_offset`, `_timestamp` | string, int, bigint, timestamp |
| `_headers` | array of struct of key string, value binary |
| `_tombstone` | boolean: whether the record has no value |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from raylog.client.cluster import indexes_by_topic
from raylog.client.offsets import EARLIEST
from raylog.raydp_jobs.pipelines.failures import failing_as
from raylog.raydp_jobs.pipelines.formats import REASON, RECORD, decoded
from raylog.raydp_jobs.pipelines.observed import Observer, Ranges, observed
from raylog.raydp_jobs.pipelines.spec import (
    BadSpec,
    FileTable,
    PipelineSpec,
    TopicSource,
    TopicTable,
)
from raylog.sink.batches import KafkaRange, Offsets, SourceRange
from raylog.sink.state import offsets_by_topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SOURCE = "raylog.source"
"""An option with the source's name; Spark and Kafka ignore it."""
EVENT_TIME = "event_time"
KEY, TOMBSTONE = "_key", "_tombstone"
_FROM_RECORD = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_METADATA = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
_OWN = (*_METADATA, TOMBSTONE)
"""The record's columns, in each view."""


def views(spark: SparkSession, bootstrap: str, spec: PipelineSpec) -> dict[str, DataFrame]:
    """Return all views by name; raise BadSpec."""
    found = {
        name: _source_view(spark, bootstrap, name, source) for name, source in spec.sources.items()
    }
    for name, table in spec.tables.items():
        field = f"tables.{name}"
        if isinstance(table, TopicTable):
            found[name] = _topic_table(spark, bootstrap, table, field)
        else:
            found[name] = _file_table(spark, table, field)
    return found


def ranges_of(
    names: Sequence[str | None], sources: Sequence[SourceRange], spec: PipelineSpec
) -> dict[str, KafkaRange]:
    """Return what a batch has read of each source.

    `names` are those of the query's streams, in the order of `sources`, where a stream that is used
    twice appears twice. If they do not match, topics decide.
    """
    ranges = [source for source in sources if isinstance(source, KafkaRange)]
    if len(names) == len(ranges) and None not in names:
        return {str(name): found for name, found in zip(names, ranges, strict=True)}
    return {
        name: KafkaRange(
            {
                key: at
                for one in ranges
                for key, at in one.starts.items()
                if source.reads(key.topic)
            },
            {key: at for one in ranges for key, at in one.ends.items() if source.reads(key.topic)},
        )
        for name, source in spec.sources.items()
    }


def bad_rows(
    spark: SparkSession,
    bootstrap: str,
    spec: PipelineSpec,
    ranges: Mapping[str, KafkaRange],
    observer: Observer,
) -> DataFrame | None:
    """Return the records of a batch that do not parse, with `_reason`; None if there are none.

    They are read now, and kept on the executors as long as the result is. A partition without a
    start is new and read from its beginning. Raises BatchNotWritten if some that the batch left out
    are missing.
    """
    found: DataFrame | None = None
    for name, source in spec.sources.items():
        if not _may_fail(source) or name not in ranges:
            continue
        field = f"sources.{name}"
        left = _narrowed(ranges[name].starts, ranges[name].ends, observer.bad(field))
        if not left:
            continue
        options = {
            "assign": json.dumps(indexes_by_topic(left)),
            "startingOffsets": _offsets_json({key: start for key, (start, _) in left.items()}),
            "endingOffsets": _offsets_json({key: end for key, (_, end) in left.items()}),
        }
        reader = spark.read.format("kafka").options(**_stream(bootstrap, source), **options)
        rows = parsed(reader.load(), source, field)
        rows = observed(rows, field, _is_bad()).where(_is_bad())
        rows = rows.select("_value", *_METADATA, REASON)
        kept = rows.localCheckpoint()
        observer.check_again(field, rows)
        found = kept if found is None else found.unionAll(kept)
    return found


def _may_fail(source: TopicSource) -> bool:
    """Return whether any record could fail to parse."""
    is_any_value_good = source.format == "binary" and source.tombstones != "refuse"
    return not is_any_value_good or source.event_time is not None


def _is_bad() -> Column:
    return functions.col(REASON).isNotNull()


def _narrowed(starts: Offsets, ends: Offsets, bad: Ranges | None) -> Ranges:
    """Return the parts of a batch to look at; a part may begin at EARLIEST."""
    begins = {key: starts.get(key, EARLIEST) for key in ends}
    whole = {key: (begin, ends[key]) for key, begin in begins.items() if begin != ends[key]}
    if bad is None:
        return whole
    return {
        key: (begin if begin == EARLIEST else max(begin, bad[key][0]), min(end, bad[key][1]))
        for key, (begin, end) in whole.items()
        if key in bad
    }


def _source_view(spark: SparkSession, bootstrap: str, name: str, source: TopicSource) -> DataFrame:
    """Return the rows of a stream that parse."""
    options: dict[str, Any] = {SOURCE: name, "maxOffsetsPerTrigger": source.max_offsets_per_trigger}
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    if isinstance(source.starting, int):
        options["startingTimestamp"] = source.starting
        options["startingOffsetsByTimestampStrategy"] = "latest"
    else:
        options["startingOffsets"] = source.starting
    reader = spark.readStream.format("kafka").options(**_stream(bootstrap, source), **options)
    stream = reader.load()
    field = f"sources.{name}"
    rows = parsed(stream, source, field)
    if _may_fail(source):
        rows = observed(rows, field, _is_bad()).where(~_is_bad())
    rows = rows.drop("_value", REASON)
    if source.watermark is not None:
        rows = rows.withWatermark(EVENT_TIME, source.watermark)
    return rows


def parsed(raw: DataFrame, source: TopicSource | TopicTable, field: str) -> DataFrame:
    """Return the columns of the record, those of its value, and `_reason`; raise BadSpec."""
    named = raw.select(*(functions.col(name).alias(f"_{name}") for name in _FROM_RECORD))
    if isinstance(source, TopicSource) and source.tombstones == "drop":
        named = named.where("_value is not null")
    found = decoded(named.withColumn(TOMBSTONE, functions.isnull("_value")), source, field)
    of_value = found.select(f"{RECORD}.*").columns
    event_time = source.event_time if isinstance(source, TopicSource) else None
    taken = {*_OWN, "_value", REASON}
    if event_time is not None and event_time != EVENT_TIME:
        taken.add(EVENT_TIME)
    twice = taken & {name.lower() for name in of_value}
    if twice:
        raise BadSpec(f"{field}: the column {sorted(twice)[0]} is one of the view's own")
    rows = found.select(f"{RECORD}.*", *_OWN, "_value", REASON)
    if event_time is None:
        return rows
    with failing_as(BadSpec, f"{field}.event_time"):
        timed = rows.withColumn(EVENT_TIME, functions.expr(event_time))
    kind = timed.schema[EVENT_TIME].dataType.simpleString()
    if kind != "timestamp":
        raise BadSpec(f"{field}.event_time: expected a timestamp, {event_time!r} is {kind}")
    no_time = functions.when(functions.col(EVENT_TIME).isNull(), f"{event_time} is null")
    return timed.withColumn(REASON, functions.coalesce(REASON, no_time))


def _topic_table(spark: SparkSession, bootstrap: str, table: TopicTable, field: str) -> DataFrame:
    """Return the newest value of each partition's keys, as after compaction; skip tombstones."""
    options = {"subscribe": table.topic, "startingOffsets": "earliest"}
    reader = spark.read.format("kafka").options(**_common(bootstrap, table), **options)
    rows = reader.load()
    newest = rows.groupBy("partition", "key").agg(
        functions.max_by(functions.struct(*_FROM_RECORD), "offset").alias("newest")
    )
    kept = newest.select("newest.*").where("key is not null and value is not null")
    found = parsed(kept, table, field)
    message = functions.concat(functions.lit("BadRow: "), origin(), functions.lit(": "), REASON)
    checked = functions.when(functions.col(REASON).isNull(), True).otherwise(
        functions.raise_error(message).cast("boolean")
    )
    return observed(found, field, _is_bad()).where(checked).drop("_value", REASON)


def origin() -> Any:
    """Return a column that says where a record is, for messages."""
    return functions.concat_ws(
        "", "_topic", functions.lit("-"), "_partition", functions.lit(" at offset "), "_offset"
    )


def _file_table(spark: SparkSession, table: FileTable, field: str) -> DataFrame:
    """Read files; a row that does not fit the schema fails the pipeline."""
    reader = spark.read.format(table.format)
    if table.ddl is not None:
        with failing_as(BadSpec, f"{field}.schema"):
            reader = reader.schema(table.ddl).option("mode", "FAILFAST")
    if table.format == "csv":
        reader = reader.option("header", "true").option("enforceSchema", "false")
    with failing_as(BadSpec, f"{field}.path"):
        return reader.load(f"file://{table.path.absolute()}")


def _common(bootstrap: str, of: TopicSource | TopicTable) -> dict[str, str]:
    """Return the options of all readers; `bootstrap` is the pipeline's."""
    return {
        **{f"kafka.{name}": value for name, value in of.kafka.items()},
        "kafka.bootstrap.servers": of.bootstrap or bootstrap,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
    }


def _stream(bootstrap: str, source: TopicSource) -> dict[str, str]:
    """Return the options of readers of a stream, also for reading it again."""
    is_strict = "true" if source.fail_on_data_loss else "false"
    return {**_common(bootstrap, source), "failOnDataLoss": is_strict}


def _offsets_json(offsets: Offsets) -> str:
    """Format offsets for the Kafka source."""
    return json.dumps(offsets_by_topic(offsets))
