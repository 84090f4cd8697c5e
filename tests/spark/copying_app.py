"""The Spark application under kills: one streaming query in a session on the brokers' cluster.

`python -m tests.spark.copying_app SETTINGS` with `AppSettings` as JSON. It runs until its input
ends; with code 3 if the query fails, to be started again. Says on its error output what the sink
does.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raylog.raydp_jobs.session import SparkSettings, spark_session
from tests.spark.copying_jobs import DELAY_MS, GROUPS, PARTITIONS, STEP_MS, WINDOW_MS
from tests.spark.copying_judge import UNLABELLED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FAILED_EXIT = 3
_LOOK_S = 1
_CONFIGS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.minBatchesToRetain": "1000000",  # the judge wants to know all of them
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "700m",
}


@dataclass(frozen=True, slots=True)
class AppSettings:
    """What the application is told."""

    data: str
    """Folder of the cluster's record; "": the Ray that has a node on this machine."""
    bootstrap: str
    job: str
    """`copy` or `aggregate`."""
    own_sink: bool
    """Raylog's sink; else Spark's own."""
    source: str
    sink: str
    sink_id: str
    query: int
    """Number of its checkpoint."""
    checkpoint: str
    batch_rows: int
    executors: int = 2
    jars: str = ""
    """A folder with the Kafka connector's jars; "": they are looked for."""

    def encode(self) -> str:
        """As an argument."""
        return json.dumps(asdict(self))


def main(settings: AppSettings) -> int:
    """Run the query until the input ends, or it fails."""
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
            while query.isActive and not _input_ended():
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
    """The query, to be started. A new query of ours goes on where the last transaction ended."""
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
    """The numbers of the source."""
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
    """Rows of the sink as `copying_jobs` expects them: id and content. Python computes a part."""
    from pyspark.sql.functions import udf

    square = udf(_square, "long")
    numbers = source.withColumn("square", square("n"))
    if job == "copy":
        return numbers.selectExpr("cast(n as string) id", "cast(square as string) content")
    return _windows(numbers)


def _windows(numbers: DataFrame) -> DataFrame:
    """Counts and sums by window and group."""
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
    """Keys and values."""
    return rows.selectExpr("id as key", f"concat(id, ' ', content, ' {label}') as value")


def _square(n: int) -> int:
    return n * n


def _input_ended() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    logging.getLogger("raylog.raydp_jobs").setLevel(logging.INFO)
    from pyspark.errors import StreamingQueryException

    try:
        code = main(AppSettings(**json.loads(sys.argv[1])))
    except StreamingQueryException as failure:
        logging.getLogger(__name__).error("the query failed: %s", str(failure)[:2_000])
        code = FAILED_EXIT
    sys.exit(code)
