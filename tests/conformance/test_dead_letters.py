"""Poison records become dead letters, and return with `raylog dlq`; the same on Apache Kafka."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from raylog.cli.app import app
from raylog.client import EARLIEST, BlockingClient, ConsumerSettings, NewTopic, TopicPartition
from raylog.client.interceptors import ConsumerRecord
from raylog.client.parallel.consumer import ParallelConsumer
from raylog.client.parallel.policy import RetryPolicy
from raylog.wire.record import Record
from tests.conformance.conftest import Target

PARTITIONS = 2
RECORDS = 60
POISON = (b"7", b"8", b"21", b"40")
DEADLINE_S = 90


@pytest.fixture
def client(target: Target) -> Iterator[BlockingClient]:
    with BlockingClient(target.bootstrap) as made:
        yield made


@pytest.fixture
def filled(client: BlockingClient, topic: str) -> str:
    """A topic with records, each with a header."""
    client.create_topics([NewTopic(topic, PARTITIONS)])
    with client.producer() as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, b"k%d" % (number % 5), [("n", b"%d" % number)])
    return topic


@contextmanager
def consuming(
    target: Target, topic: str, fn: Callable[..., object], **options: Any
) -> Iterator[ParallelConsumer]:
    consumer = ParallelConsumer(
        target.bootstrap,
        [topic],
        fn,
        group_id=f"{topic}-g",
        auto_offset_reset="earliest",
        retry=RetryPolicy(attempts=2, backoff_ms=1),
        **options,
    )
    failures: list[BaseException] = []

    def run() -> None:
        try:
            consumer.run()
        except BaseException as error:  # noqa: BLE001  # the test raises it
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield consumer
    finally:
        consumer.stop()
        thread.join(DEADLINE_S)
    assert not failures


def until(enough: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not enough():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read(client: BlockingClient, topic: str) -> list[tuple[int, Record]]:
    """All committed records, with their partitions."""
    keys = [TopicPartition(topic, index) for index in client.describe_topic(topic).partitions]
    ends = client.list_offsets(dict.fromkeys(keys, -1), read_committed=True)
    consumer = client.consumer(ConsumerSettings(read_committed=True))
    consumer.assign(dict.fromkeys(keys, EARLIEST))
    found: list[tuple[int, Record]] = []
    while any(consumer.position(key) < end.offset for key, end in ends.items()):
        for some in consumer.poll(1_000):
            found += [(some.partition, record) for record in some.records]
    consumer.close()
    return found


def dlq(target: Target, *arguments: str, code: int = 0) -> Result:
    environment = {"RAYLOG_BOOTSTRAP": target.bootstrap, "COLUMNS": "200", "NO_COLOR": "1"}
    found = CliRunner().invoke(app, ["dlq", *arguments], env=environment)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == code, found.output
    return found


def shown(target: Target, *arguments: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in dlq(target, "show", *arguments, "--json").stdout.splitlines()
    ]


@pytest.mark.timeout(240)
def test_poison_records_end_as_dead_letters_and_are_processed_once_they_are_replayed(
    target: Target, client: BlockingClient, filled: str
) -> None:
    is_fixed = False
    processed: list[bytes] = []

    def fn(record: ConsumerRecord) -> None:
        assert isinstance(record.value, bytes)
        if record.value in POISON and not is_fixed:
            raise ValueError(f"no {record.value.decode()}")
        processed.append(record.value)

    letters = f"{filled}.{filled}-g.dlq"
    with consuming(target, filled, fn) as consumer:
        until(lambda: consumer.statistics().dead_lettered == len(POISON))
        until(lambda: len(processed) == RECORDS - len(POISON))
        until(lambda: consumer.statistics().waiting == 0)
    ends = client.list_offsets({TopicPartition(filled, index): -1 for index in range(PARTITIONS)})
    left = client.group_offsets(f"{filled}-g", ends)
    assert {key: found.offset for key, found in left.items()} == {
        key: end.offset for key, end in ends.items() if end.offset
    }

    (row,) = json.loads(dlq(target, "list", letters, "--json").stdout)
    assert (row["letters"], row["replayed"]) == (len(POISON), 0)
    assert row["reasons"] == {"raised": len(POISON)}
    assert row["groups"] == {f"{filled}-g": len(POISON)}
    found = shown(target, letters)
    assert {one["value"].encode() for one in found} == set(POISON)
    places = {(p, record.offset): record for p, record in read(client, filled)}
    for one in found:
        original = one["original"]
        source = places[original["partition"], original["offset"]]
        assert (one["value"].encode(), one["key"].encode()) == (source.value, source.key)
        assert original["timestamp"] == source.timestamp
        assert one["headers"] == [["n", one["value"]]]
        assert (one["reason"], one["exception"], one["attempts"]) == ("raised", "ValueError", 2)

    assert "4 letters would be replayed" in dlq(target, "replay", letters, "--dry-run").stderr
    assert len(read(client, filled)) == RECORDS
    done = json.loads(dlq(target, "replay", letters, "--yes", "--json").stdout)
    assert (done["letters"], done["to"], done["left"]) == (4, {filled: 4}, 0)
    again = json.loads(dlq(target, "replay", letters, "--yes", "--json").stdout)
    assert (again["letters"], again["replayed_before"]) == (0, 4)
    assert all(one["replayed"] for one in shown(target, letters))
    back = read(client, filled)
    assert len(back) == RECORDS + len(POISON)
    by_value = {record.value: (p, record) for p, record in back}
    for (partition, offset), source in places.items():
        if source.value not in POISON:
            continue
        new_partition, new = by_value[source.value]
        assert (new_partition, new.key) == (partition, source.key)
        assert new.offset > offset
        names = [name for name, _ in new.headers]
        assert names == ["n", "raylog-replayed"]
        assert dict(new.headers)["n"] == source.value

    is_fixed = True
    with consuming(target, filled, fn) as consumer:
        until(lambda: consumer.statistics().processed == len(POISON))
    assert sorted(processed) == sorted(b"%d" % number for number in range(RECORDS))


@pytest.mark.timeout(240)
def test_letters_are_replayed_in_parts_and_elsewhere_once_each(
    target: Target, client: BlockingClient, filled: str
) -> None:
    def fn(record: ConsumerRecord) -> None:
        raise KeyError if record.value in POISON else ValueError

    letters = f"{filled}.{filled}-g.dlq"
    elsewhere = f"{filled}-elsewhere"
    client.create_topics([NewTopic(elsewhere, 1)])
    with consuming(target, filled, fn) as consumer:
        until(lambda: consumer.statistics().dead_lettered == RECORDS)
        until(lambda: consumer.statistics().waiting == 0)
    assert len(shown(target, letters, "--reason", "KeyError")) == len(POISON)
    assert len(shown(target, letters, "--limit", "3")) == 3
    in_first = len(shown(target, letters, "--partition", "0"))

    def replay(*arguments: str) -> tuple[int, int]:
        found = json.loads(dlq(target, "replay", letters, "-y", "--json", *arguments).stdout)
        return found["letters"], found["left"]

    to = ("--to", elsewhere)
    assert replay(*to, "--reason", "KeyError") == (4, RECORDS - 4)
    assert replay(*to, "--limit", "10")[0] == 10
    assert replay(*to, "--reason", "KeyError")[0] == 0
    first = replay(*to, "--partition", "0")[0]
    assert first <= in_first
    assert replay(*to) == (RECORDS - 14 - first, 0)
    assert replay(*to) == (0, 0)
    values = [record.value for _, record in read(client, elsewhere)]
    assert sorted(values, key=repr) == sorted((b"%d" % n for n in range(RECORDS)), key=repr)
    text = dlq(target, "show", letters, "--partition", "0").stdout
    assert "reason: raised, KeyError" in text
    assert "replayed" in text
