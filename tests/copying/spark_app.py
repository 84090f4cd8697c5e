"""The Spark application under kills: one streaming query in a session on the brokers' cluster.

`python -m tests.copying.spark_app SETTINGS` with `AppSettings` as JSON. It runs until its input
ends. If the query fails, it ends with code 3, to be restarted. It logs to stderr what the sink
does.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raylog.raydp_jobs.session import SparkSettings, spark_session
from tests.copying.judge import UNLABELLED
from tests.copying.spark_jobs import DELAY_MS, GROUPS, PARTITIONS, STEP_MS, WINDOW_MS
from tests.support.working import input_ended

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FAILED_EXIT = 3
_LOOK_S = 1
_CONFIGS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.minBatchesToRetain": "1000000",  # the judge needs all of them
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "700m",
}


@dataclass(frozen=True, slots=True)
class AppSettings:
    """The application's settings."""

    data: str
    """The folder of the cluster's record; "" uses the Ray with a node on this machine."""
    bootstrap: str
    job: str
    """`copy` or `aggregate`."""
    own_sink: bool
    """True for Raylog's sink, False for Spark's own."""
    source: str
    sink: str
    sink_id: str
    query: int
    """The number of the query's checkpoint."""
    checkpoint: str
    batch_rows: int
    executors: int = 2
    jars: str = ""
    """A folder with the Kafka connector's jars; "" searches for them."""

    def encode(self) -> str:
        """Return the settings as a command-line argument."""
        return json.dumps(asdict(self))


def main(settings: AppSettings) -> int:
    """Run the query until the input ends or the query fails."""
    spark_settings = SparkSettings(
        executors=settings.executors,
        executor_memory="600m",
        jars=Path(settings.jars) if settings.jars else None,
        configs=_CONFIGS,
    )
    with (
        _session(settings.data, spark_settings) as spark,
        _writing(settings, spark) as writer,
    ):
        spark.sparkContext.setLogLevel("ERROR")
        query = writer.option("checkpointLocation", settings.checkpoint).start()
        try:
            while query.isActive and not input_ended():
                query.awaitTermination(_LOOK_S)
        finally:
            query.stop()
    return 0


def _session(data: str, settings: SparkSettings) -> AbstractContextManager[SparkSession]:
    if data:
        return spark_session(Path(data), settings)
    return spark_session(settings=settings, address="auto")


@contextmanager
def _writing(settings: AppSettings, spark: SparkSession) -> Iterator[DataStreamWriter]:
    """Yield the query's writer. Without a checkpoint our sink starts after its last transaction."""
    from raylog.raydp_jobs.sink import raylog_sink

    if not settings.own_sink:
        rows = _rows(_source(settings, spark, "earliest"), settings.job)
        stream = _labelled(rows, UNLABELLED).writeStream.format("kafka")
        stream = stream.option("kafka.bootstrap.servers", settings.bootstrap)
        yield stream.option("topic", settings.sink).outputMode("append")
        return
    with raylog_sink(
        settings.bootstrap, settings.sink, settings.sink_id, settings.checkpoint
    ) as sink:

        def write(df: DataFrame, batch_id: int) -> None:
            sink(_labelled(df, f"{settings.query}.{batch_id}"), batch_id)

        is_new = not (Path(settings.checkpoint) / "offsets").exists()
        start = sink.starting_offsets() if is_new else "earliest"
        rows = _rows(_source(settings, spark, start), settings.job)
        yield rows.writeStream.foreachBatch(write)


def _source(settings: AppSettings, spark: SparkSession, start: str) -> DataFrame:
    """Return the numbers of the source."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap)
        .option("subscribe", settings.source)
        .option("startingOffsets", start)
        .option("maxOffsetsPerTrigger", settings.batch_rows)
        .load()
        .selectExpr("cast(cast(value as string) as long) n")
    )


def _rows(source: DataFrame, job: str) -> DataFrame:
    """Return the sink's rows as `spark_jobs` expects them: id and content, in part from Python."""
    from pyspark.sql.functions import udf

    square = udf(_square, "long")
    numbers = source.withColumn("square", square("n"))
    if job == "copy":
        return numbers.selectExpr("cast(n as string) id", "cast(square as string) content")
    return _windows(numbers)


def _windows(numbers: DataFrame) -> DataFrame:
    """Return counts and sums by window and group."""
    from pyspark.sql.functions import count, sum, window

    timed = numbers.selectExpr(
        "n", f"square % {GROUPS} as grp", f"timestamp_millis(n * {STEP_MS}) as at"
    )
    counted = (
        timed.withWatermark("at", f"{DELAY_MS} milliseconds")
        .groupBy(window("at", f"{WINDOW_MS} milliseconds"), "grp")
        .agg(count("n").alias("rows"), sum("n").alias("total"))
    )
    return counted.selectExpr(
        "concat(unix_millis(window.start), '.', grp) id", "concat(rows, '.', total) content"
    )


def _labelled(rows: DataFrame, label: str) -> DataFrame:
    """Return keys and values."""
    return rows.selectExpr("id as key", f"concat(id, ' ', content, ' {label}') as value")


def _square(n: int) -> int:
    return n * n


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    for name in ("raylog.sink", "raylog.raydp_jobs"):
        logging.getLogger(name).setLevel(logging.INFO)
    from pyspark.errors import StreamingQueryException

    try:
        code = main(AppSettings(**json.loads(sys.argv[1])))
    except StreamingQueryException as failure:
        logging.getLogger(__name__).error("the query failed: %s", str(failure)[:2_000])
        code = FAILED_EXIT
    sys.exit(code)
