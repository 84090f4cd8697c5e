"""JSON as views have it: what is one object of the columns, and what is not."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from raylog.raydp_jobs.pipelines.reading import parsed
from raylog.raydp_jobs.pipelines.spec import TopicSource
from tests.spark.test_pipelines import Bench, bench, headers_of, own_broker, three  # noqa: F401  # fixtures
from tests.spark.test_tombstones import RECORD

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

WHOLE = ['{"a":1}', ' {"a":1} \n', '{"a":1,"x":NaN}', "{'a':1}", '{"a":1,"x":[{},null]}']
NOT_WHOLE = [
    '{"a":1}}',
    '{"a":1}} garbage {',
    '{"a":1}}\n{"v":{"a":2}',
    '{"a":1} {"a":2}',
    '{"a":1},"x":5',
    '{"a":1},"v":{"a":2}',
    '{"a":1},{"a":2}',
    '{"a":1},{}]}',
    '{"a":1},{}],"v":[{"a":2}',
    '{"a":1},null],"v":[{"a":2}',
    '{"a":1}]',
    '{"a":1}],"v":[{"a":2}',
    '{"a":1},',
    '[{"a":1}]',
    '],"v":[{"a":1}',
    "]}",
    "5",
]


def read(spark: SparkSession, columns: str, *values: str, **fields: str) -> list[Row]:
    found = {"topics": ["t"], "format": "json", "schema": columns, **fields}
    source = TopicSource.model_validate(found)
    at = datetime(2026, 1, 1)  # noqa: DTZ001  # Spark takes the session's zone
    rows = [(b"k", value.encode(), "t", 0, n, at, None) for n, value in enumerate(values)]
    return parsed(spark.createDataFrame(rows, RECORD), source, "sources.rows").collect()


@pytest.mark.parametrize("ansi", ["false", "true"])
def test_text_after_the_object_is_refused(spark: SparkSession, ansi: str) -> None:
    """Spark itself ignores what follows a complete value."""
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    found = read(spark, "a INT, b INT", *WHOLE, *NOT_WHOLE)
    spark.conf.unset("spark.sql.ansi.enabled")
    reasons = dict(zip([*WHOLE, *NOT_WHOLE], (row["_reason"] for row in found), strict=True))
    refused = "not one JSON object of the schema"
    malformed = dict.fromkeys(['],"v":[{"a":1}', "]}"], "malformed JSON")
    assert reasons == dict.fromkeys(WHOLE) | dict.fromkeys(NOT_WHOLE, refused) | malformed
    assert [(row["a"], row["b"]) for row in found[: len(WHOLE)]] == [(1, None)] * len(WHOLE)
    assert [name for name in found[0].asDict() if name[0] != "_"] == ["a", "b"]


def test_a_date_that_does_not_exist_is_a_reason(spark: SparkSession) -> None:
    """By default Spark fails the whole batch, so that nobody misses what Spark 2 accepted."""
    spark.conf.unset("spark.sql.legacy.timeParserPolicy")
    bad_date, bad_time = '{"d":"2026-02-30"}', '{"t":"2026-02-30 10:00:00"}'
    found = read(spark, "d DATE, t TIMESTAMP", bad_date, bad_time, '{"d":"2026-02-28"}')
    assert [row["_reason"] for row in found] == [
        "d: expected date, found 2026-02-30",
        "t: expected timestamp, found 2026-02-30 10:00:00",
        None,
    ]
    spark.conf.unset("spark.sql.legacy.timeParserPolicy")
    event_time = "to_timestamp(t, 'yyyy-MM-dd')"
    (row,) = read(spark, "t STRING", '{"t":"2026-02-30"}', event_time=event_time)
    assert row["_reason"] == f"{event_time} is null"


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS"])
def test_a_bad_date_is_a_dead_letter_and_an_old_one_lands(
    bench: Bench,  # noqa: F811  # a fixture
    three: str,  # noqa: F811  # a fixture
    kind: str,
) -> None:
    """On any session, with Spark's defaults."""
    for name in ("timeParserPolicy", "datetimeRebaseModeInWrite", "int96RebaseModeInWrite"):
        place = "legacy" if name == "timeParserPolicy" else "parquet"
        bench.spark.conf.unset(f"spark.sql.{place}.{name}")
    bench.spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    folder = bench.folder / "landed"
    source = {"schema": "n INT, t TIMESTAMP"}
    bench.feed(f"{three}-in", {"n": 1, "t": "0001-01-01T00:00:00Z"}, {"t": "2026-02-30 10:00:00"})
    bench.run(bench.spec(three, source=source, sink={"path": folder}))
    bench.spark.conf.unset("spark.sql.parquet.outputTimestampType")
    rows = bench.spark.read.parquet(str(folder)).selectExpr("n", "cast(t as bigint) t").collect()
    assert [tuple(row) for row in rows] == [(1, -62_135_596_800)]
    (letter,) = bench.records(f"{three}-bad")
    reason = "t: expected timestamp, found 2026-02-30 10:00:00"
    assert headers_of(letter)["__raylog.errors.reason"] == reason
