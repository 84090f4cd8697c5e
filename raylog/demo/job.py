"""The Spark pipeline: flights joined with weather and airlines, delays per carrier and hour.

`delays` has the form of a declared pipeline's function: a session and views by name come in, a
DataFrame goes out. `raylog pipeline run` can run it, too; here the session is at hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raylog.demo.figures import LATE_MIN, LOW_VISIBILITY_MILES, STRONG_WIND_MPH
from raylog.demo.screen import DemoError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FLIGHTS, WEATHER, AIRLINES, DELAYS = "flights", "weather", "airlines", "delays"
"""Topics."""
WATERMARK_DAYS = 7
"""A second of the demonstration is about a day of 2013; partitions drift apart for seconds when a
leader dies."""
CLOSING_MS = (WATERMARK_DAYS + 1) * 86_400_000
"""An event so much later takes the watermark past all windows before it."""
TRIGGER = "4 seconds"

SCHEMAS = {
    FLIGHTS: "carrier STRING, origin STRING, dep_time INT, dep_delay INT, time_hour STRING, "
    "minute INT",
    WEATHER: "origin STRING, time_hour STRING, visib DOUBLE, wind_speed DOUBLE, precip DOUBLE",
    AIRLINES: "carrier STRING, name STRING",
}


def delays(spark: SparkSession, views: dict[str, DataFrame]) -> DataFrame:
    """Delays per carrier and hour.

    `views`: flights with a watermark on `event_time`; weather and airlines as tables.
    """
    from pyspark.sql import functions as f

    del spark  # part of the form
    rough = (
        (f.col("visib") < LOW_VISIBILITY_MILES)
        | (f.col("wind_speed") >= STRONG_WIND_MPH)
        | (f.col("precip") > 0)
    )
    weather = views[WEATHER].select("origin", "time_hour", "visib", rough.alias("rough"))
    joined = (
        views[FLIGHTS]
        .join(f.broadcast(weather), ["origin", "time_hour"], "left")
        .join(f.broadcast(views[AIRLINES]), "carrier", "left")
    )
    grouped = joined.groupBy(f.window("event_time", "1 hour"), "carrier", "name").agg(
        f.count("*").alias("flights"),
        f.count_if(f.col("dep_time").isNull()).alias("cancelled"),
        f.count_if(f.col("dep_delay") >= LATE_MIN).alias("late"),
        f.sum("dep_delay").alias("delay_sum"),
        f.avg("dep_delay").alias("delay_mean"),
        f.max("dep_delay").alias("delay_max"),
        f.count_if(f.col("rough")).alias("rough_weather"),
        f.min("visib").alias("visibility_min"),
    )
    hour = f.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ssX").alias("hour")
    others = [name for name in grouped.columns if name not in {"window", "carrier", "name"}]
    return grouped.select("carrier", hour, f.col("name").alias("airline"), *others)


def views(spark: SparkSession, bootstrap: str) -> dict[str, DataFrame]:
    """The topics as `delays` wants them: flights as a stream, the others as tables."""
    flights = (
        _parsed(_topic(spark.readStream, bootstrap, FLIGHTS), FLIGHTS)
        .withColumn("event_time", departure())
        .withWatermark("event_time", f"{WATERMARK_DAYS} days")
    )
    tables = {name: _table(spark, bootstrap, name) for name in (WEATHER, AIRLINES)}
    return {FLIGHTS: flights, **tables}


def departure() -> Column:
    """When a flight is due."""
    from pyspark.sql import functions as f

    return f.to_timestamp("time_hour") + f.make_dt_interval(mins=f.col("minute"))


def records(rows: DataFrame) -> DataFrame:
    """Rows as the sink takes them: a JSON object of all columns, carrier and hour as the key."""
    from pyspark.sql import functions as f

    value = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
    return rows.select(f.to_json(f.struct("carrier", "hour")).alias("key"), value.alias("value"))


def _topic(reader: Any, bootstrap: str, topic: str) -> DataFrame:
    found: DataFrame = (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    return found


def _parsed(found: DataFrame, topic: str) -> DataFrame:
    from pyspark.sql import functions as f

    row = f.from_json(f.col("value").cast("string"), SCHEMAS[topic])
    return found.select(row.alias("row")).select("row.*")


def _table(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The newest value of each key, kept by Spark: topics of tables do not change here."""
    from pyspark.sql import functions as f

    newest = f.max_by("value", "offset").alias("value")
    found = _topic(spark.read, bootstrap, topic).groupBy("key").agg(newest)
    return _parsed(found, topic).cache()


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch that is done."""

    number: int
    end: int
    """Flights read from the topic by now."""
    rows: int
    """Of the source."""
    seconds: float
    watermark_ms: int
    late: int
    """Flights that came after the watermark and are not counted."""


class Progress:
    """What a running query tells of itself."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self.batches: list[Batch] = []

    def fresh(self) -> list[Batch]:
        """The batches that are done since the last call; raises DemoError if the query failed."""
        failure = self.query.exception()
        if failure is not None:
            raise DemoError(f"the query failed: {failure}")
        known = self.batches[-1].number if self.batches else -1
        told = (_batch(one) for one in self.query.recentProgress if _is_batch(one))
        fresh = [batch for batch in told if batch.number > known]
        self.batches += fresh
        return fresh

    @property
    def read(self) -> int:
        """Records read from the flights' topic."""
        return self.batches[-1].end if self.batches else 0

    @property
    def watermark_ms(self) -> int:
        """Of the last batch."""
        return self.batches[-1].watermark_ms if self.batches else 0

    @property
    def late(self) -> int:
        """Flights that came after the watermark."""
        return sum(batch.late for batch in self.batches)

    @property
    def seconds(self) -> float:
        """Of all batches."""
        return sum(batch.seconds for batch in self.batches)


def _is_batch(told: dict[str, Any]) -> bool:
    """Whether a report is of a batch; idle queries report, too."""
    return "addBatch" in told["durationMs"]


def _batch(told: dict[str, Any]) -> Batch:
    source = told["sources"][0]
    end = _offsets_sum(source["endOffset"])
    return Batch(
        number=told["batchId"],
        end=end,
        rows=end - _offsets_sum(source["startOffset"]),
        seconds=told["durationMs"]["triggerExecution"] / 1000,
        watermark_ms=int(datetime.fromisoformat(told["eventTime"]["watermark"]).timestamp() * 1000),
        late=told["stateOperators"][0]["numRowsDroppedByWatermark"],
    )


def _offsets_sum(offsets: Any) -> int:
    """Records before offsets of a topic that has no markers and was read from 0."""
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    return sum(sum(partitions.values()) for partitions in (found or {}).values())


@contextmanager
def running(spark: SparkSession, bootstrap: str, checkpoint: Path) -> Iterator[Progress]:
    """The query, from its start to its end."""
    from raylog.raydp_jobs.sink import raylog_sink

    found = views(spark, bootstrap)
    rows = records(delays(spark, found))
    with raylog_sink(bootstrap, DELAYS, "delays", str(checkpoint)) as sink:
        query = (
            rows.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=TRIGGER)
            .start()
        )
        try:
            yield Progress(query)
        finally:
            query.stop()
