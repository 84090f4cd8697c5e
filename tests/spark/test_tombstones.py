"""Records without a value: what views make of them, and what a sink makes of their rows."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from raylog.raydp_jobs.pipelines.output import records
from raylog.raydp_jobs.pipelines.reading import parsed
from raylog.raydp_jobs.pipelines.spec import BadSpec, TopicSink, TopicSource
from tests.spark.test_pipelines import Bench, bench, own_broker, three  # noqa: F401  # fixtures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

RECORD = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
AVRO = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "int"}]}


@pytest.fixture
def avro_file(tmp_path: Path) -> Path:
    path = tmp_path / "row.avsc"
    path.write_text(json.dumps(AVRO))
    return path


def source(form: str, avro_file: Path, **fields: Any) -> TopicSource:
    found: dict[str, Any] = {"topics": ["t"], "format": form, **fields}
    if form == "json":
        found["schema"] = "n INT NOT NULL"
    elif form == "avro":
        found["schema_file"] = avro_file
    return TopicSource.model_validate(found)


def a_tombstone(spark: SparkSession) -> DataFrame:
    at = datetime(2026, 1, 1)  # noqa: DTZ001  # Spark takes the session's zone
    return spark.createDataFrame([(b"k", None, "t", 0, 7, at, None)], RECORD)


def read(spark: SparkSession, source: TopicSource) -> list[Row]:
    return parsed(a_tombstone(spark), source, "sources.rows").collect()


@pytest.mark.parametrize("form", ["json", "avro", "text", "binary"])
def test_a_tombstone_is_a_row_of_nulls_with_its_key(
    spark: SparkSession, avro_file: Path, form: str
) -> None:
    """Columns that are NOT NULL included."""
    (row,) = read(spark, source(form, avro_file))
    found = row.asDict()
    value = found["n"] if form in {"json", "avro"} else found["value"]
    assert (found["_reason"], value, found["_key"]) == (None, None, b"k")
    assert (found["_tombstone"], found["_offset"]) == (True, 7)


@pytest.mark.parametrize("form", ["json", "avro", "text", "binary"])
def test_a_tombstone_may_be_one_that_does_not_parse_or_no_row(
    spark: SparkSession, avro_file: Path, form: str
) -> None:
    (row,) = read(spark, source(form, avro_file, tombstones="refuse"))
    assert row["_reason"] == "there is no value"
    assert read(spark, source(form, avro_file, tombstones="drop")) == []


def test_a_tombstone_without_a_time_does_not_parse(spark: SparkSession, avro_file: Path) -> None:
    """Its time is not its record's unless the source says so: that would move the watermark."""
    of_value = source("json", avro_file, event_time="timestamp_seconds(n)")
    assert read(spark, of_value)[0]["_reason"] == "timestamp_seconds(n) is null"
    of_both = source("json", avro_file, event_time="coalesce(timestamp_seconds(n), _timestamp)")
    assert read(spark, of_both)[0]["_reason"] is None


@pytest.mark.parametrize("value", ["json", "avro"])
def test_tombstone_row_is_written_with_its_key(
    spark: SparkSession, avro_file: Path, value: str
) -> None:
    schema_file = avro_file if value == "avro" else None
    of_sink = {"topic": "out", "key": ["_key"], "value": value, "schema_file": schema_file}
    sink = TopicSink.model_validate(of_sink)
    tombstone = "select binary('k') _key, cast(null as int) n, true _tombstone"
    rows = spark.sql(f"{tombstone} union all select binary('k'), 5, false")
    gone, there = records(rows, sink).collect()
    assert gone.asDict() == {"value": None, "key": b"k"}
    assert there.asDict() == {"value": b'{"n":5}' if value == "json" else b"\x0a", "key": b"k"}


def test_other_rows_are_written_without_the_column(spark: SparkSession, avro_file: Path) -> None:
    rows = spark.sql("select cast(5 as int) n, false _tombstone")
    (as_json,) = records(rows, TopicSink(topic="out", key=["n"])).collect()
    assert as_json.asDict() == {"value": b'{"n":5}', "key": b"5"}
    (keyless,) = records(rows.selectExpr("n", "true _tombstone"), TopicSink(topic="out")).collect()
    assert keyless.asDict() == {"value": b'{"n":5}'}
    sink = TopicSink(topic="out", key=["n"], value="avro", schema_file=avro_file)
    (as_avro,) = records(rows, sink).collect()
    assert as_avro["value"] == b"\x0a"


def test_a_tombstone_without_a_key_fails_its_batch(spark: SparkSession) -> None:
    rows = spark.sql("select cast(null as int) n, cast(null as int) m, true _tombstone")
    with pytest.raises(Exception, match=r"BadRow: a tombstone without a key \(n, m\): take the"):
        records(rows, TopicSink(topic="out", key=["n", "m"])).collect()


def test_the_column_must_be_a_boolean(spark: SparkSession) -> None:
    rows = spark.sql("select 1 n, 'yes' _tombstone")
    with pytest.raises(BadSpec, match="column _tombstone: expected boolean, found string"):
        records(rows, TopicSink(topic="out", key=["n"]))


def test_tombstones_pass_a_pipeline_with_their_keys(
    bench: Bench,  # noqa: F811  # a fixture
    three: str,  # noqa: F811  # a fixture
) -> None:
    """As a change data capture leaves them behind a deletion."""
    bench.feed(f"{three}-in", {"n": 1}, key=b"a")
    bench.feed_record(f"{three}-in", None, key=b"a")
    spec = bench.spec(
        three,
        transform={"sql": "SELECT _key, _tombstone, n FROM rows"},
        sink={"topic": f"{three}-out", "key": ["_key"], "compression": "zstd"},
    )
    bench.run(spec)
    found = bench.records(f"{three}-out")
    assert [one.key for one in found] == [b"a", b"a"]
    first, second = (one.value for one in found)
    assert json.loads(first or b"")["n"] == 1
    assert second is None
    assert bench.records(f"{three}-bad") == []
