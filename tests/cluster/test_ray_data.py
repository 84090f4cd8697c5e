"""Topics as Ray datasets and back, on a local Ray beside an embedded cluster.

Ray must not be imported before its environment is set, so what needs it is imported in the tests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from raylog.client import BlockingClient, NewTopic, ProducerSettings, TopicPartition
from raylog.client.producer.partitioner import partition_of_key
from raylog.testing import EmbeddedBroker

if TYPE_CHECKING:
    from ray.data import Dataset

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray Data, by itself
    pytest.mark.timeout(600),  # the first test waits for workers that import Ray Data
]
ROWS = 60
NUMBERS = sorted(b"%d" % n for n in range(ROWS))
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(brokers=2) as running:
        yield running.bootstrap


@pytest.fixture(autouse=True)
def _quiet(local_ray: Path) -> None:
    from ray.data import DataContext

    context = DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of the test's topic and sink."""
    return str(request.node.name).replace("[", "-").replace("]", "")


@pytest.fixture
def source(bootstrap: str, name: str) -> str:
    """A topic of two partitions with numbers in it."""
    return feed(bootstrap, f"{name}-in", 2)


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    """An empty topic of three partitions."""
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(name, 3)])
    return name


def feed(bootstrap: str, topic: str, partitions: int) -> str:
    """A topic with numbers as keys and values, a second apart; every third has a header."""
    with BlockingClient(bootstrap) as client, client.producer() as producer:
        client.create_topics([NewTopic(topic, partitions, configs={"retention.ms": "-1"})])
        for n in range(ROWS):
            headers = [("third", b"%d" % n), ("none", None)] if n % 3 == 0 else []
            text = b"%d" % n
            producer.send(topic, text, text, headers, FIRST_MS + 1_000 * n)
    return topic


def rows_of(bootstrap: str, topic: str, **options: Any) -> list[dict[str, Any]]:
    from raylog import ray_data

    rows: list[dict[str, Any]] = ray_data.read(bootstrap, topic, **options).take_all()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def values(bootstrap: str, topic: str, **options: Any) -> list[bytes]:
    return sorted(row["value"] for row in rows_of(bootstrap, topic, **options))


def contents(bootstrap: str, source: str) -> Dataset:
    """Keys and values of a topic."""
    from raylog import ray_data

    settings = ray_data.ReadSettings(records_per_task=20)
    return ray_data.read(bootstrap, source, settings=settings).select_columns(["key", "value"])


def test_a_topic_is_read_whole_by_several_tasks(bootstrap: str, source: str) -> None:
    from raylog import ray_data

    settings = ray_data.ReadSettings(records_per_task=7, table_bytes=200)
    rows = rows_of(bootstrap, source, settings=settings)
    found = {int(row["value"]): row for row in rows}
    assert sorted(found) == list(range(ROWS))
    assert len(rows) == ROWS
    for n, row in found.items():
        assert row["key"] == b"%d" % n
        assert row["topic"] == source
        assert row["partition"] == partition_of_key(row["key"], 2)
        assert row["timestamp"].timestamp() * 1_000 == FIRST_MS + 1_000 * n
        assert row["timestamp_type"] == 0
        expected = [{"key": "third", "value": row["key"]}, {"key": "none", "value": None}]
        assert row["headers"] == (expected if n % 3 == 0 else None)
    for partition in range(2):
        offsets = [row["offset"] for row in rows if row["partition"] == partition]
        assert offsets == list(range(len(offsets)))


def test_bounds_are_times_offsets_or_the_ends_of_the_log(bootstrap: str, name: str) -> None:
    from raylog import ray_data

    feed(bootstrap, name, 1)
    key = TopicPartition(name, 0)
    times = [datetime.fromtimestamp(FIRST_MS / 1_000 + n, UTC) for n in (10, 20)]
    between = rows_of(bootstrap, name, start=times[0], end=times[1])
    assert [row["offset"] for row in between] == list(range(10, 20))
    assert ray_data.positions(bootstrap, name, times[0]) == {key: 10}
    with BlockingClient(bootstrap) as client:
        client.delete_records({key: 50})
    rows = rows_of(bootstrap, name, end={key: 55})
    assert [row["offset"] for row in rows] == list(range(50, 55))
    assert ray_data.read(bootstrap, name, start="latest").count() == 0
    with pytest.raises(ray_data.OffsetsUnavailable, match="the log holds 50 to 60"):
        ray_data.read(bootstrap, name, start={key: 49})


def test_transactions_are_seen_as_their_readers_may(bootstrap: str, name: str) -> None:
    """Markers and aborted records leave gaps; ranges end in the middle of transactions."""
    from raylog import ray_data

    small = ray_data.ReadSettings(records_per_task=4)
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(name, 1)])
        producer = client.producer(ProducerSettings(transactional_id=name))
        producer.init_transactions()
        for transaction in range(5):
            producer.begin_transaction()
            for n in range(5):
                producer.send(name, b"%d-%d" % (transaction, n))
            if transaction == 4:
                producer.flush()  # left open
            elif transaction % 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        committed = [b"%d-%d" % (transaction, n) for transaction in (0, 2) for n in range(5)]
        everything = [b"%d-%d" % (transaction, n) for transaction in range(5) for n in range(5)]
        assert values(bootstrap, name, settings=small) == committed
        isolation = "read_uncommitted"
        assert values(bootstrap, name, settings=small, isolation=isolation) == everything
        producer.abort_transaction()
        producer.close()
    assert values(bootstrap, name, settings=small) == committed


@pytest.mark.long
def test_a_reader_that_dies_in_the_middle_hands_on_each_row_once(
    bootstrap: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task is run again, and Ray drops as many of its tables as were handed on before."""
    from ray.data import DataContext

    from raylog import ray_data
    from tests.cluster.ray_data_faults import DyingReader

    monkeypatch.setattr(DataContext.get_current(), "target_max_block_size", 300)
    feed(bootstrap, name, 1)
    dataset = ray_data.read(bootstrap, name, settings=ray_data.ReadSettings(table_bytes=300))
    dying = DyingReader(str(tmp_path), b"40")
    found = dataset.map_batches(dying, batch_format="pyarrow", batch_size=None).take_all()
    assert (tmp_path / "met").exists()
    assert sorted(row["value"] for row in found) == NUMBERS


def test_a_dataset_is_written_once(bootstrap: str, source: str, topic: str) -> None:
    """By keys as Kafka's clients do, with offsets; skipped if it is written, for its job alone."""
    from raylog import ray_data

    dataset = contents(bootstrap, source)
    ends = ray_data.positions(bootstrap, source)
    assert ray_data.write(dataset, bootstrap, topic, topic, job_id="1", offsets=ends)
    assert not ray_data.write(dataset, bootstrap, topic, topic, job_id="1", offsets=ends)
    rows = rows_of(bootstrap, topic)
    assert sorted(row["value"] for row in rows) == NUMBERS
    assert all(row["partition"] == partition_of_key(row["key"], 3) for row in rows)
    with ray_data.Sink(bootstrap, topic, topic) as sink:
        assert sink.positions() == ends
        assert sink.write_job(dataset.limit(2), "2")
        assert sink.write_job(dataset.limit(0), "3")
        assert not sink.write_job(dataset, "3")
        assert not sink.write_job(dataset, "2"), "though another came since"
    assert len(values(bootstrap, topic)) == ROWS + 2


@pytest.mark.long
def test_rows_keep_their_order_if_ray_data_is_told_to_keep_it(
    bootstrap: str, name: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though several tasks read a partition."""
    from ray.data import DataContext

    from raylog import ray_data

    options = DataContext.get_current().execution_options
    monkeypatch.setattr(options, "preserve_order", True)
    source = feed(bootstrap, f"{name}-in", 1)
    assert ray_data.write(contents(bootstrap, source), bootstrap, topic, topic, job_id="1")
    rows = rows_of(bootstrap, topic)
    for partition in range(3):
        numbers = [int(row["value"]) for row in rows if row["partition"] == partition]
        assert numbers == sorted(numbers)


@pytest.mark.long
@pytest.mark.parametrize(
    ("run", "reason"),
    [("DyingRun", "WorkerCrashed"), ("RepeatedRun", "PermitRefused")],
)
def test_a_writer_that_dies_or_is_repeated_costs_a_run(
    bootstrap: str,
    source: str,
    topic: str,
    run: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its rows are in the log, under an identity that is never committed."""
    from raylog import ray_data
    from raylog.ray_data import sink as sinks
    from tests.cluster import ray_data_faults as faults

    faulty = partial(getattr(faults, run), folder=str(tmp_path))
    monkeypatch.setattr(sinks, "RayRun", faulty)
    caplog.set_level(logging.INFO, "raylog.sink")
    assert ray_data.write(contents(bootstrap, source), bootstrap, topic, topic, job_id="1")
    assert values(bootstrap, topic) == NUMBERS
    assert len(values(bootstrap, topic, isolation="read_uncommitted")) > ROWS
    assert caplog.text.count("to be written again") == 1
    assert reason in caplog.text


def test_a_stream_is_copied_batch_by_batch(bootstrap: str, source: str, topic: str) -> None:
    """A second program goes on where the first one ended; one that would not is refused."""
    from raylog import ray_data

    def copy(end: Any, start: Any = None) -> list[bool]:
        with ray_data.Sink(bootstrap, topic, topic) as sink:
            batches = ray_data.read_continuing(
                bootstrap, source, start=start or sink.positions(), end=end, records_per_batch=25
            )
            return [
                sink.write(batch.dataset.select_columns(["key", "value"]), batch)
                for batch in batches
            ]

    half = {TopicPartition(source, n): 10 for n in range(2)}
    assert copy(half) == [True]
    assert len(values(bootstrap, topic)) == 20
    with BlockingClient(bootstrap) as client:
        client.delete_groups([f"raylog-sink-{topic}"])  # a week later
    assert copy("latest") == [True, True]
    assert values(bootstrap, topic) == NUMBERS
    with pytest.raises(ray_data.SourceMismatch, match="begins at 10"):
        copy("latest", half)


def test_a_topic_is_mirrored_under_its_own_name(bootstrap: str, name: str) -> None:
    """Its offsets are of another cluster, and those of the sink's topic none of its business."""
    from raylog import ray_data

    with EmbeddedBroker() as other:
        feed(other.bootstrap, name, 2)
        with BlockingClient(bootstrap) as client:
            client.create_topics([NewTopic(name, 2)])

        def mirror(records_per_batch: int) -> list[bool]:
            with ray_data.Sink(bootstrap, name, name) as sink:
                batches = ray_data.read_continuing(
                    other.bootstrap,
                    name,
                    start=sink.positions(source_bootstrap=other.bootstrap),
                    end="latest",
                    records_per_batch=records_per_batch,
                )
                return [
                    sink.write(batch.dataset.select_columns(["key", "value"]), batch)
                    for batch in batches
                ]

        assert mirror(40) == [True, True]
        assert mirror(40) == []
        assert values(bootstrap, name) == NUMBERS


def test_a_reading_waits_for_what_comes(bootstrap: str, source: str) -> None:
    from raylog import ray_data

    batches = ray_data.read_continuing(bootstrap, source, start="latest", poll_interval_ms=20)
    reading = iter(batches)
    with BlockingClient(bootstrap) as client, client.producer() as producer:
        starts = ray_data.positions(bootstrap, source)
        batches.positions = starts
        producer.send(source, b"new")
        producer.flush()
    batch = next(reading)
    assert [row["value"] for row in batch.dataset.take_all()] == [b"new"]
    assert sum(batch.ends.values()) == ROWS + 1
    batches.stop()
    assert list(reading) == []
    assert batches.positions == batch.ends


def test_a_reading_that_is_broken_off_goes_on_with_the_same_batch(
    bootstrap: str, source: str, topic: str
) -> None:
    """Though there is more by then: its mark says which rows are written."""
    from raylog import ray_data

    batches = ray_data.read_continuing(bootstrap, source, end="latest", records_per_batch=25)
    with ray_data.Sink(bootstrap, topic, topic) as sink:
        first = next(iter(batches))
        assert sink.write(first.dataset.select_columns(["key", "value"]), first)
        news = [
            sink.write(batch.dataset.select_columns(["key", "value"]), batch) for batch in batches
        ]
    assert news[:2] == [False, True]
    assert values(bootstrap, topic) == NUMBERS


def test_rows_that_no_run_can_write_fail_at_once(bootstrap: str, topic: str) -> None:
    import ray

    from raylog import ray_data

    dataset = ray.data.from_items([{"value": b"v"}, {"value": b"v" * 2_000}])
    settings = ray_data.SinkSettings(row_bytes_max=1_000)
    with pytest.raises(ray_data.BatchFailed, match=r"row \d+ of input partition"):
        ray_data.write(dataset, bootstrap, topic, topic, job_id="1", settings=settings)
    numbers = ray.data.from_items([{"value": 1}])
    with pytest.raises(ray_data.BatchFailed, match="expected string or binary, found int64"):
        ray_data.write(numbers, bootstrap, topic, topic, job_id="1")
    assert values(bootstrap, topic, isolation="read_uncommitted") == []
