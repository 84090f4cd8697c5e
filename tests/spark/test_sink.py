"""The exactly-once sink on Spark: batches, streams, and what Spark does when something fails."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from functools import partial, reduce
from pathlib import Path
from shutil import copytree, rmtree
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery

from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.raydp_jobs import sink as sinks
from raylog.raydp_jobs.sink import (
    ExactlyOnceSink,
    SinkSettings,
    raylog_sink,
    write_exactly_once,
)
from raylog.raydp_jobs.tasks import WriteRun
from raylog.sink.commit import BatchFailed, TaskReport, Written
from raylog.sink.rows import BadColumns
from raylog.testing import EmbeddedBroker
from tests.spark.faulty import DyingRun, HangingRun, ShuffleLosingRun
from tests.spark.reading import read_all, values
from tests.support.marks import read_mark
from tests.support.ray_clusters import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 60
ALL = sorted(b"%d" % n for n in range(ROWS))


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Numbers as text, in two input partitions."""
    numbers = spark.range(0, ROWS, 1, 2)
    return numbers.selectExpr("cast(id as string) key", "cast(id as string) value")


def feed(bootstrap: str, topic: str, first: int, end: int) -> None:
    """Write numbers to a source topic."""
    with BlockingClient(bootstrap) as client, client.producer() as producer:
        for n in range(first, end):
            producer.send(topic, b"%d" % n, key=b"%d" % n)


@pytest.fixture
def source(bootstrap: str, name: str) -> str:
    """A source topic of two partitions with numbers in it."""
    topic = f"{name}-in"
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(topic, 2)])
    feed(bootstrap, topic, 0, ROWS)
    return topic


class Copy:
    """A streaming copy of a topic through the sink, run until it has read all there is."""

    def __init__(self, spark: SparkSession, bootstrap: str, source: str, topic: str) -> None:
        self.spark, self.bootstrap, self.source, self.topic = spark, bootstrap, source, topic
        self.source_bootstraps = [bootstrap]
        """Of the clusters that have the source."""

    def run(
        self,
        checkpoint: Path,
        start: str = "earliest",
        until: Callable[[StreamingQuery], object] = StreamingQuery.awaitTermination,
        *,
        other_checkpoint: Path | None = None,
    ) -> None:
        """Batches of 30 rows of each source; the sink is told of another checkpoint by `told`."""
        streams = [
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", self.source)
            .option("startingOffsets", start)
            .option("maxOffsetsPerTrigger", 30)
            .load()
            for bootstrap in self.source_bootstraps
        ]
        stream = reduce(DataFrame.unionAll, streams)
        with raylog_sink(
            self.bootstrap, self.topic, self.topic, str(other_checkpoint or checkpoint)
        ) as sink:
            query = (
                stream.select("key", "value")
                .writeStream.foreachBatch(sink)
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            try:
                until(query)
            finally:
                query.stop()
            assert query.exception() is None


@pytest.fixture
def copy(spark: SparkSession, bootstrap: str, source: str, topic: str) -> Copy:
    return Copy(spark, bootstrap, source, topic)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[Written]:
    """What the tasks of each run reported."""
    seen: list[Written] = []
    write = sinks._write

    def noted(selected: DataFrame, run: WriteRun) -> list[TaskReport]:
        found = write(selected, run)
        seen.append(Written(found))
        return found

    monkeypatch.setattr(sinks, "_write", noted)
    return seen


def test_all_columns_arrive(spark: SparkSession, raylog: str, name: str) -> None:
    """Two topics; partition from the column, from the key, in turn; headers, times, tombstones."""
    first, second = f"{name}-a", f"{name}-b"
    with BlockingClient(raylog) as client:
        client.create_topics([NewTopic(first, 2), NewTopic(second, 1)])
    df = spark.sql(
        f"""select * from values
        ('{first}', 1, 'k', binary('v'), array(named_struct('key', 'h', 'value', binary('x'))),
         timestamp_millis(1500)),
        ('{second}', null, null, null, null, timestamp_millis(2500))
        as rows(topic, partition, key, value, headers, timestamp)"""
    )
    assert write_exactly_once(df, raylog, [first, second], name, "job")
    ((partition, (record,)),) = read_all(raylog, first).items()
    assert (partition, record.timestamp, record.key, record.value) == (1, 1500, b"k", b"v")
    assert record.headers == [("h", b"x")]
    ((partition, (record,)),) = read_all(raylog, second).items()
    assert (partition, record.timestamp, record.key, record.value) == (0, 2500, None, None)


def test_a_job_writes_once(rows: DataFrame, bootstrap: str, topic: str) -> None:
    assert write_exactly_once(rows, bootstrap, topic, topic, "job")
    assert not write_exactly_once(rows, bootstrap, topic, topic, "job")
    assert values(bootstrap, topic) == ALL


def test_each_partition_is_one_task_even_if_spark_would_coalesce(
    spark: SparkSession, rows: DataFrame, raylog: str, name: str, reports: list[Written]
) -> None:
    """Adaptive execution puts so few rows into one task, and a hash puts partitions together."""
    with BlockingClient(raylog) as client:
        client.create_topics([NewTopic(name, 5)])
    assert spark.conf.get("spark.sql.adaptive.coalescePartitions.enabled") == "true"
    write_exactly_once(rows.repartition("key"), raylog, name, name, "job")
    (written,) = reports
    found = {report.partition: report.count for report in written.reports}
    assert found == {
        TopicPartition(name, number): len(records)
        for number, records in read_all(raylog, name).items()
    }
    assert len(found) == 5


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("key", "expected a column 'value', found key"),
        ("1 as value", "'value': expected string or binary, found int"),
        ("value, 'x' as partition", "'partition': expected int or smallint or tinyint"),
        ("value, array('x') as headers", "'headers': expected array<struct<"),
    ],
)
def test_wrong_columns_are_named(rows: DataFrame, raylog: str, columns: str, says: str) -> None:
    with pytest.raises(BadColumns) as raised:
        write_exactly_once(rows.selectExpr(*columns.split(", ")), raylog, "none", "none", "job")
    assert says in str(raised.value)


def test_a_bad_row_fails_the_batch_and_names_its_origin(
    spark: SparkSession, bootstrap: str, topic: str, reports: list[Written]
) -> None:
    """Nothing of it is committed, and readers wait for nothing."""
    df = spark.range(0, ROWS, 1, 2).selectExpr(
        "cast(id as string) key",
        "case id when 40 then repeat('x', 5000) else cast(id as string) end value",
    )
    settings = SinkSettings(row_bytes_max=1_000)
    with pytest.raises(BatchFailed, match=r"row 10 of input partition 1 \(key b'40'\): 50.. bytes"):
        write_exactly_once(df, bootstrap, topic, topic, "job", settings)
    good = df.where("key != '40'")
    assert write_exactly_once(good, bootstrap, topic, topic, "job", settings)
    assert values(bootstrap, topic) == [value for value in ALL if value != b"40"]
    assert len(reports) == 1


def test_rows_whose_computation_raises_fail_the_batch_in_one_run(
    spark: SparkSession, raylog: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark has tried the task as often as it is set to."""
    with BlockingClient(raylog) as client:
        client.create_topics([NewTopic(name, 1)])
    divided = udf(lambda n: str(1 // n), "string")
    df = spark.range(0, 2, 1, 1).select(divided("id").alias("value"))
    caplog.set_level(logging.INFO, "raylog.sink")
    with pytest.raises(BatchFailed, match="ZeroDivisionError: integer division or modulo by zero"):
        write_exactly_once(df, raylog, name, name, "job")
    assert "to be written again" not in caplog.text
    assert values(raylog, name) == []


def test_a_repeated_task_is_refused_and_the_batch_runs_again(
    rows: DataFrame,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A worker dies when its rows are written; its task's next attempt must not write again."""
    monkeypatch.setattr(sinks, "WriteRun", partial(DyingRun, folder=str(tmp_path)))
    caplog.set_level(logging.INFO, "raylog.sink")
    assert write_exactly_once(rows, bootstrap, topic, topic, "job")
    assert values(bootstrap, topic) == ALL
    assert "an earlier one may have written" in caplog.text


def test_a_repeated_stage_is_refused_and_the_batch_runs_again(
    spark: SparkSession,
    rows: DataFrame,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A task finds its shuffle gone; in the stage's next attempt its own is the first."""
    shuffle = spark.sparkContext.getConf().get("spark.local.dir", "")
    run = partial(ShuffleLosingRun, folder=str(tmp_path), shuffle=shuffle)
    monkeypatch.setattr(sinks, "WriteRun", run)
    caplog.set_level(logging.INFO, "raylog.sink")
    assert write_exactly_once(rows.coalesce(1), bootstrap, topic, topic, "job")
    assert values(bootstrap, topic) == ALL
    assert re.search(r"task \S+ in stage \d+\.[1-9]: .*(expected 0|an earlier one)", caplog.text)


def test_a_query_that_is_stopped_while_it_writes_leaves_nothing_open(
    copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sinks, "WriteRun", partial(HangingRun, folder=str(tmp_path)))
        copy.run(
            tmp_path / "checkpoint",
            until=lambda _: wait_until((tmp_path / "met").exists, "a task to hang"),
        )
    with BlockingClient(copy.bootstrap) as client:
        found = client.describe_transaction(f"raylog-sink-{copy.topic}")
    assert found.state == "Empty", "it was aborted, and the id taken anew"
    copy.run(tmp_path / "checkpoint")
    assert values(copy.bootstrap, copy.topic) == ALL


def test_a_stream_is_copied_with_its_offsets(copy: Copy, tmp_path: Path) -> None:
    copy.run(tmp_path / "checkpoint")
    assert values(copy.bootstrap, copy.topic) == ALL
    with BlockingClient(copy.bootstrap) as client:
        offsets = client.group_offsets(f"raylog-sink-{copy.topic}")
    of_source = {key: at.offset for key, at in offsets.items() if key.topic == copy.source}
    assert sum(of_source.values()) == ROWS
    marks = {read_mark(offset.metadata) for offset in offsets.values()}
    assert {mark.batch_id for mark in marks} == {1}


def test_a_batch_that_spark_does_not_know_to_be_written_is_skipped(
    copy: Copy, tmp_path: Path, reports: list[Written]
) -> None:
    """The driver died between our commit and Spark's."""
    checkpoint = tmp_path / "checkpoint"
    copy.run(checkpoint)
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink()
    feed(copy.bootstrap, copy.source, ROWS, ROWS + 10)
    reports.clear()
    copy.run(checkpoint)
    assert {sum(report.count for report in written.reports) for written in reports} == {10}
    expected = sorted(b"%d" % n for n in range(ROWS + 10))
    assert values(copy.bootstrap, copy.topic) == expected


def test_without_its_checkpoint_a_copy_goes_on_at_the_committed_offsets(
    copy: Copy, tmp_path: Path
) -> None:
    copy.run(tmp_path / "lost")
    feed(copy.bootstrap, copy.source, ROWS, ROWS + 10)
    with ExactlyOnceSink(copy.bootstrap, copy.topic, copy.topic) as sink:
        start = sink.starting_offsets()
    copy.run(tmp_path / "new", start)
    expected = sorted(b"%d" % n for n in range(ROWS + 10))
    assert values(copy.bootstrap, copy.topic) == expected


def test_a_new_query_that_would_begin_elsewhere_is_refused(copy: Copy, tmp_path: Path) -> None:
    copy.run(tmp_path / "lost")
    with pytest.raises(StreamingQueryException, match="SourceMismatch"):
        copy.run(tmp_path / "new", "earliest")
    assert values(copy.bootstrap, copy.topic) == ALL


def test_an_older_copy_of_the_checkpoint_is_refused(copy: Copy, tmp_path: Path) -> None:
    """Spark would write the batch behind the copied one with what is there by now."""
    checkpoint, older = tmp_path / "checkpoint", tmp_path / "older"
    copy.run(checkpoint)
    feed(copy.bootstrap, copy.source, ROWS, ROWS + 10)
    copytree(checkpoint, older)
    copy.run(checkpoint)
    feed(copy.bootstrap, copy.source, ROWS + 10, ROWS + 20)
    with pytest.raises(StreamingQueryException, match=r"SourceMismatch.*committed up to"):
        copy.run(older)
    rmtree(older / "offsets")
    copytree(checkpoint / "offsets", older / "offsets", ignore=lambda *_: ["2", ".2.crc"])
    with pytest.raises(StreamingQueryException, match="SourceMismatch"):
        copy.run(older)
    expected = sorted(b"%d" % n for n in range(ROWS + 10))
    assert values(copy.bootstrap, copy.topic) == expected


def test_a_checkpoint_of_another_query_is_refused(copy: Copy, tmp_path: Path) -> None:
    """Though it has batches of the same numbers."""
    copy.run(tmp_path / "theirs")
    own = Copy(copy.spark, copy.bootstrap, copy.source, f"{copy.topic}-own")
    with BlockingClient(copy.bootstrap) as client:
        client.create_topics([NewTopic(own.topic, 1)])
    with pytest.raises(StreamingQueryException, match="NoCheckpoint: the checkpoint belongs to"):
        own.run(tmp_path / "own", other_checkpoint=tmp_path / "theirs")
    assert values(own.bootstrap, own.topic) == []


def test_a_source_that_is_not_kafka_is_not_begun_anew(
    spark: SparkSession, raylog: str, name: str, tmp_path: Path
) -> None:
    """Files have offsets of their own checkpoint's."""
    with BlockingClient(raylog) as client:
        client.create_topics([NewTopic(name, 1)])
    files = tmp_path / "files"
    files.mkdir()

    def run(checkpoint: Path) -> None:
        with raylog_sink(raylog, name, name, str(checkpoint)) as sink:
            writer = spark.readStream.text(str(files)).writeStream.foreachBatch(sink)
            location = writer.option("checkpointLocation", str(checkpoint))
            location.trigger(availableNow=True).start().awaitTermination()

    (files / "one").write_text("1\n2\n")
    run(tmp_path / "lost")
    (files / "two").write_text("3\n")
    run(tmp_path / "lost")
    with pytest.raises(StreamingQueryException, match="no offsets that could be compared"):
        run(tmp_path / "new")
    assert values(raylog, name) == [b"1", b"2", b"3"]


def test_a_source_may_be_on_other_clusters_under_the_name_of_the_sinks_topic(
    spark: SparkSession, raylog: str, name: str, tmp_path: Path
) -> None:
    """Two of them mirrored into one, with a lost checkpoint in between."""
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        for bootstrap in (raylog, one.bootstrap, other.bootstrap):
            with BlockingClient(bootstrap) as client:
                client.create_topics([NewTopic(name, 1)])
        feed(one.bootstrap, name, 0, 20)
        feed(other.bootstrap, name, 20, ROWS)
        mirror = Copy(spark, raylog, name, name)
        mirror.source_bootstraps = [one.bootstrap, other.bootstrap]
        mirror.run(tmp_path / "lost")
        assert values(raylog, name) == ALL
        key = TopicPartition(name, 0)
        with ExactlyOnceSink(raylog, name, name) as sink:
            starts = [
                sink.starting_offsets(source_bootstrap=bootstrap)
                for bootstrap in mirror.source_bootstraps
            ]
        assert starts == [f'{{"{name}": {{"0": {end}}}}}' for end in (20, ROWS - 20)]
        with pytest.raises(StreamingQueryException, match="it begins at 0"):
            mirror.run(tmp_path / "new")
        mirror.source_bootstraps = [one.bootstrap]
        feed(one.bootstrap, name, ROWS, ROWS + 5)
        mirror.run(tmp_path / "again", starts[0])
        assert values(raylog, name) == sorted([*ALL, *(b"%d" % n for n in range(ROWS, ROWS + 5))])
        with BlockingClient(raylog) as client:
            offsets = client.group_offsets(f"raylog-sink-{name}")
        assert offsets[key].offset == 0, "it carries the mark: sources of others have none here"


def test_a_new_sink_begins_where_it_is_told(raylog: str, name: str) -> None:
    with BlockingClient(raylog) as client:
        client.create_topics([NewTopic(name, 1)])
    with ExactlyOnceSink(raylog, name, name) as sink:
        assert sink.starting_offsets(otherwise="latest") == "latest"


def test_the_transaction_opens_when_all_upstream_is_done(
    spark: SparkSession, raylog: str, name: str, tmp_path: Path
) -> None:
    """While the map stage runs, none of its topic's partitions has an open transaction."""
    with BlockingClient(raylog) as client:
        client.create_topics([NewTopic(name, 1)])

    transactional_id = f"raylog-sink-{name}"
    look = partial(_note, str(tmp_path / "states"), raylog, transactional_id)
    df = (
        spark.range(0, 10, 1, 1)
        .selectExpr("cast(id as string) value")
        .mapInArrow(_passing(look), "value string")
    )
    write_exactly_once(df, raylog, name, name, "job")
    with BlockingClient(raylog) as client:
        wait_until(
            lambda: client.describe_transaction(transactional_id).state == "CompleteCommit",
            "the markers, which are written after the answer",
        )
    assert (tmp_path / "states").read_text().split() == ["Empty"]


def _passing(look: Callable[[], None]) -> Callable[[Iterable[object]], Iterable[object]]:
    """A map function that passes all on and looks at its end."""

    def pass_on(batches: Iterable[object]) -> Iterable[object]:
        yield from batches
        look()

    return pass_on


def _note(path: str, bootstrap: str, transactional_id: str) -> None:
    """Note the state of a transactional id, from a map task."""
    with BlockingClient(bootstrap) as client:
        state = client.describe_transaction(transactional_id).state
    with Path(path).open("a") as file:
        file.write(f"{state}\n")


def test_the_mark_names_the_query_of_the_checkpoint(copy: Copy, tmp_path: Path) -> None:
    copy.run(tmp_path / "checkpoint")
    query_id = (tmp_path / "checkpoint" / "metadata").read_text()
    with BlockingClient(copy.bootstrap) as client:
        offsets = client.group_offsets(f"raylog-sink-{copy.topic}")
    mark = read_mark(offsets[TopicPartition(copy.topic, 0)].metadata)
    assert mark.query_id in query_id
