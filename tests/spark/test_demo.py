"""The demonstration's transform says what pandas says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from raylog.demo import figures, job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEN, ELEVEN = "2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"
FLIGHTS: list[tuple[Any, ...]] = [
    ("UA", "EWR", 517, 15, TEN, 0),
    ("UA", "EWR", 455, -2, TEN, 59),
    ("UA", "JFK", None, None, TEN, 30),
    ("UA", "EWR", None, None, ELEVEN, 0),
    ("AA", "LGA", 514, 14, TEN, 1),
    ("ZZ", "LGA", 500, 1, ELEVEN, 1),
]
WEATHER = [
    ("EWR", TEN, 2.5, 3.0, 0.0),
    ("JFK", TEN, 3.0, 25.0, None),
    ("EWR", ELEVEN, None, 24.0, 0.01),
]
AIRLINES = [("UA", "United"), ("AA", "American")]


def test_delays_are_those_of_pandas(spark: SparkSession) -> None:
    pd = pytest.importorskip("pandas")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    flights = spark.createDataFrame(FLIGHTS, job.SCHEMAS[job.FLIGHTS])
    views = {
        job.FLIGHTS: flights.withColumn("event_time", job.departure()),
        job.WEATHER: spark.createDataFrame(WEATHER, job.SCHEMAS[job.WEATHER]),
        job.AIRLINES: spark.createDataFrame(AIRLINES, job.SCHEMAS[job.AIRLINES]),
    }
    rows = job.records(job.delays(spark, views)).collect()
    wanted = figures.delays(
        pd.DataFrame(FLIGHTS, columns=_names(job.FLIGHTS)).assign(flight=1),
        pd.DataFrame(WEATHER, columns=_names(job.WEATHER)),
        pd.DataFrame(AIRLINES, columns=_names(job.AIRLINES)),
    )
    found = figures.compare([row["value"].encode() for row in rows], wanted)
    assert found.differences == []
    assert found.equal == len(rows) == 4
    assert {row["key"] for row in rows} >= {f'{{"carrier":"AA","hour":"{TEN}"}}'}


def _names(topic: str) -> list[str]:
    return [column.split()[0] for column in job.SCHEMAS[topic].split(", ")]
