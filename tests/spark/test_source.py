"""Spark's own Kafka source on Raylog, unchanged, option by option."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException

from raylog.client import BlockingClient, NewTopic, TopicPartition
from tests.spark.reading import read_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

ROWS = 40
START_MS = (int(time.time()) - 3_600) * 1_000
"""Of row 0; row n is n seconds later. Rows of long ago would soon be deleted."""


@pytest.fixture
def filled(raylog: str, name: str) -> str:
    """A topic of two partitions; row n in partition n % 2, with a header."""
    with BlockingClient(raylog) as client:
        client.create_topics([NewTopic(name, 2)])
        with client.producer() as producer:
            for n in range(ROWS):
                producer.send(
                    name,
                    b"%d" % n,
                    key=b"k",
                    headers=[("n", b"%d" % n)],
                    timestamp_ms=START_MS + 1_000 * n,
                    partition=n % 2,
                )
    return name


@pytest.fixture
def reader(spark: SparkSession, raylog: str) -> DataFrameReader:
    return spark.read.format("kafka").option("kafka.bootstrap.servers", raylog)


def numbers(df: DataFrame) -> list[int]:
    """The values, sorted."""
    return sorted(int(row.value) for row in df.selectExpr("cast(value as string) value").collect())


def test_subscribe_with_headers(reader: DataFrameReader, filled: str) -> None:
    df = reader.option("subscribe", filled).option("includeHeaders", "true").load()
    rows = df.orderBy("timestamp").collect()
    assert [bytes(row.value) for row in rows] == [b"%d" % n for n in range(ROWS)]
    found = rows[3]
    assert (found.topic, found.partition, found.offset, bytes(found.key)) == (filled, 1, 1, b"k")
    assert [(header.key, bytes(header.value)) for header in found.headers] == [("n", b"3")]
    assert found.timestamp.timestamp() == START_MS / 1_000 + 3


def test_subscribe_pattern(reader: DataFrameReader, raylog: str, filled: str) -> None:
    """A topic that matches as well, and one that does not. Spark looks for the pattern anywhere."""
    other = filled.upper()
    with BlockingClient(raylog) as client:
        client.create_topics([NewTopic(f"{filled}-too", 1), NewTopic(other, 1)])
        with client.producer() as producer:
            producer.send(f"{filled}-too", b"100")
            producer.send(other, b"200")
    df = reader.option("subscribePattern", f"{filled}.*").load()
    assert numbers(df) == [*range(ROWS), 100]


def test_assign_with_offsets(reader: DataFrameReader, filled: str) -> None:
    df = (
        reader.option("assign", json.dumps({filled: [1]}))
        .option("startingOffsets", json.dumps({filled: {"1": 5}}))
        .option("endingOffsets", json.dumps({filled: {"1": 8}}))
        .load()
    )
    assert numbers(df) == [11, 13, 15]


def test_offsets_by_timestamp(reader: DataFrameReader, filled: str) -> None:
    def at(second: int) -> str:
        stamp = START_MS + 1_000 * second
        return json.dumps({filled: {"0": stamp, "1": stamp}})

    df = (
        reader.option("subscribe", filled)
        .option("startingOffsetsByTimestamp", at(10))
        .option("endingOffsetsByTimestamp", at(15))
        .load()
    )
    assert numbers(df) == list(range(10, 15))


def test_min_partitions(reader: DataFrameReader, filled: str) -> None:
    """More tasks than partitions: ranges of one partition, read beside each other."""
    df = reader.option("subscribe", filled).option("minPartitions", 6).load()
    assert df.rdd.getNumPartitions() == 6
    assert numbers(df) == list(range(ROWS))


class Streamed:
    """A stream that runs until it has read all there is, and how many rows each batch had."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path) -> None:
        self._spark, self._bootstrap, self._checkpoint = spark, bootstrap, checkpoint
        self.batches: list[list[int]] = []

    def run(self, options: Mapping[str, str]) -> list[list[int]]:
        """The batches of this run."""
        self.batches = []
        query = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
            .writeStream.foreachBatch(lambda df, _: self.batches.append(numbers(df)))
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return self.batches


@pytest.fixture
def streamed(spark: SparkSession, raylog: str, tmp_path: Path) -> Streamed:
    return Streamed(spark, raylog, tmp_path / "checkpoint")


def test_max_offsets_per_trigger(streamed: Streamed, filled: str) -> None:
    batches = streamed.run({"subscribe": filled, "maxOffsetsPerTrigger": "15"})
    assert all(len(batch) <= 15 for batch in batches)
    assert sorted(n for batch in batches for n in batch) == list(range(ROWS))
    assert len(batches) >= 3


@pytest.fixture
def transactional(raylog: str, name: str) -> str:
    """A topic of one partition with markers: five rows committed, five aborted, and so on."""
    with BlockingClient(raylog) as client:
        client.create_topics([NewTopic(name, 1)])
    producer = Producer({"bootstrap.servers": raylog, "transactional.id": name})
    producer.init_transactions(30)
    for first in range(0, ROWS, 5):
        producer.begin_transaction()
        for n in range(first, first + 5):
            producer.produce(name, b"%d" % n)
        producer.flush(30)
        if first % 10:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    return name


COMMITTED = [n for n in range(ROWS) if not n % 10 >= 5]


def test_read_committed(reader: DataFrameReader, transactional: str) -> None:
    df = reader.option("subscribe", transactional)
    assert numbers(df.load()) == list(range(ROWS))
    assert numbers(df.option("kafka.isolation.level", "read_committed").load()) == COMMITTED


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_markers_are_no_data_loss(
    streamed: Streamed, raylog: str, transactional: str, isolation: str
) -> None:
    """Offsets of markers and of aborted rows are gaps; the log ends in one, batches too."""
    options = {
        "subscribe": transactional,
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": "6",
        "kafka.isolation.level": isolation,
    }
    batches = streamed.run(options)
    expected = COMMITTED if isolation == "read_committed" else list(range(ROWS))
    assert [n for batch in batches for n in batch] == expected
    assert len(read_all(raylog, transactional, read_committed=False)[0]) == ROWS
    assert streamed.run(options) == []


def test_data_loss_fails_the_stream_or_is_passed_over(
    streamed: Streamed, raylog: str, filled: str
) -> None:
    """Rows that were deleted between two runs."""
    streamed.run({"subscribe": filled})
    with BlockingClient(raylog) as client, client.producer() as producer:
        for n in range(ROWS, ROWS + 20):
            producer.send(filled, b"%d" % n, partition=0)
        producer.flush()
        client.delete_records({TopicPartition(filled, 0): ROWS // 2 + 10})
    with pytest.raises(StreamingQueryException, match=r"data loss|data may have been lost"):
        streamed.run({"subscribe": filled, "failOnDataLoss": "true"})
    batches = streamed.run({"subscribe": filled, "failOnDataLoss": "false"})
    assert [n for batch in batches for n in batch] == list(range(ROWS + 10, ROWS + 20))
