"""The Spark pipeline: flights joined with weather and airlines, delays by carrier and hour.

`delays` has the signature of a declared pipeline's function: it takes a session and views by name
and returns a DataFrame. `raylog pipeline run` can run it, too. Here the session exists already.
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
"""The topics."""
WATERMARK_DAYS = 7
"""A second of the demonstration is about a day of 2013, and partitions drift apart by seconds when
a leader dies."""
CLOSING_MS = (WATERMARK_DAYS + 1) * 86_400_000
"""An event this much later moves the watermark past all earlier windows."""
TRIGGER = "4 seconds"

SCHEMAS = {
    FLIGHTS: "carrier STRING, origin STRING, dep_time INT, dep_delay INT, time_hour STRING, "
    "minute INT",
    WEATHER: "origin STRING, time_hour STRING, visib DOUBLE, wind_speed DOUBLE, precip DOUBLE",
    AIRLINES: "carrier STRING, name STRING",
}


def delays(spark: SparkSession, views: dict[str, DataFrame]) -> DataFrame:
    """Compute delays per carrier and hour.

    `views` has flights with a watermark on `event_time`, and weather and airlines as tables.
    """
    from pyspark.sql import functions as f

    del spark  # part of the signature
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
    """Create the views that `delays` needs: flights as a stream, the other topics as tables."""
    flights = (
        _parsed(_topic(spark.readStream, bootstrap, FLIGHTS), FLIGHTS)
        .withColumn("event_time", departure())
        .withWatermark("event_time", f"{WATERMARK_DAYS} days")
    )
    tables = {name: _table(spark, bootstrap, name) for name in (WEATHER, AIRLINES)}
    return {FLIGHTS: flights, **tables}


def departure() -> Column:
    """Return a column with the scheduled departure of a flight."""
    from pyspark.sql import functions as f

    return f.to_timestamp("time_hour") + f.make_dt_interval(mins=f.col("minute"))


def records(rows: DataFrame) -> DataFrame:
    """Convert rows to records: all columns as a JSON object, with carrier and hour as the key."""
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
    """Return each key's latest value, cached by Spark. Topics of tables do not change here."""
    from pyspark.sql import functions as f

    newest = f.max_by("value", "offset").alias("value")
    found = _topic(spark.read, bootstrap, topic).groupBy("key").agg(newest)
    return _parsed(found, topic).cache()


@dataclass(frozen=True, slots=True)
class Batch:
    """A completed micro-batch."""

    number: int
    end: int
    """Flights read from the topic so far."""
    rows: int
    """Rows read from the source."""
    seconds: float
    watermark_ms: int
    late: int
    """Flights dropped because they came after the watermark."""


class Progress:
    """The progress of a running query."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self.batches: list[Batch] = []

    def fresh(self) -> list[Batch]:
        """Return batches completed since the last call. Raises DemoError if the query failed."""
        failure = self.query.exception()
        if failure is not None:
            raise DemoError(f"the query failed: {failure}")
        known = self.batches[-1].number if self.batches else -1
        # Idle queries report, too.
        reports = (one for one in self.query.recentProgress if "addBatch" in one["durationMs"])
        recent = map(_batch, reports)
        fresh = [batch for batch in recent if batch.number > known]
        self.batches += fresh
        return fresh

    @property
    def read(self) -> int:
        """Records read from the flights' topic."""
        return self.batches[-1].end if self.batches else 0

    @property
    def watermark_ms(self) -> int:
        """The watermark of the last batch."""
        return self.batches[-1].watermark_ms if self.batches else 0

    @property
    def late(self) -> int:
        """Flights that came after the watermark."""
        return sum(batch.late for batch in self.batches)

    @property
    def seconds(self) -> float:
        """The time of all batches."""
        return sum(batch.seconds for batch in self.batches)


def _batch(progress: dict[str, Any]) -> Batch:
    source = progress["sources"][0]
    end = _offsets_sum(source["endOffset"])
    return Batch(
        number=progress["batchId"],
        end=end,
        rows=end - _offsets_sum(source["startOffset"]),
        seconds=progress["durationMs"]["triggerExecution"] / 1000,
        watermark_ms=int(
            datetime.fromisoformat(progress["eventTime"]["watermark"]).timestamp() * 1000
        ),
        late=progress["stateOperators"][0]["numRowsDroppedByWatermark"],
    )


def _offsets_sum(offsets: Any) -> int:
    """Return the number of records below offsets, in a topic without markers that starts at 0."""
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    return sum(sum(partitions.values()) for partitions in (found or {}).values())


@contextmanager
def running(spark: SparkSession, bootstrap: str, checkpoint: Path) -> Iterator[Progress]:
    """Run the query within the context."""
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
