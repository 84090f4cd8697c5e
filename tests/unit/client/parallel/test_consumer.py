"""ParallelConsumer on an embedded broker: all kinds of workers that do not need Ray."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from raylog.client import EARLIEST, BlockingClient, ConsumerSettings, InvalidSetting, TopicPartition
from raylog.client.admin.groups import CommittedOffset
from raylog.client.admin.topics import NewTopic
from raylog.client.interceptors import ConsumerRecord, ProducerRecord
from raylog.client.parallel.consumer import ParallelConsumer
from raylog.client.parallel.effects import ProcessingFailed
from raylog.client.parallel.policy import RetryPolicy
from raylog.testing import EmbeddedBroker
from raylog.wire.record import Record
from tests.support.parallel_functions import note_down, upper

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def strict() -> Iterator[str]:
    """A broker that makes no topic on first use."""
    settings = {"auto.create.topics.enable": "false"}
    with EmbeddedBroker(settings=settings) as broker, BlockingClient(broker.bootstrap) as client:
        small = {"max.message.bytes": "1000"}
        client.create_topics([NewTopic("accepted", 1), NewTopic("small", 1, configs=small)])
        client.create_topics([NewTopic("compacted", 1, configs={"cleanup.policy": "compact"})])
        yield broker.bootstrap


@pytest.fixture
def strict_client(strict: str) -> Iterator[BlockingClient]:
    with BlockingClient(strict) as made:
        yield made


@pytest.fixture
def topic_of_strict(strict_client: BlockingClient, request: pytest.FixtureRequest) -> str:
    return new_topic(strict_client, request)


@pytest.fixture
def topic(client: BlockingClient, request: pytest.FixtureRequest) -> str:
    return new_topic(client, request)


def new_topic(client: BlockingClient, request: pytest.FixtureRequest) -> str:
    name: str = "".join(c if c.isalnum() else "-" for c in request.node.name)
    client.create_topics([NewTopic(name, 1)])
    return name


def fill(client: BlockingClient, topic: str, records: list[tuple[bytes, bytes]]) -> None:
    with client.producer() as producer:
        for key, value in records:
            producer.send(topic, value, key)


def read(client: BlockingClient, topic: str, *, read_committed: bool = False) -> list[Record]:
    """All records of partition 0."""
    key = TopicPartition(topic, 0)
    (end,) = client.list_offsets({key: -1}, read_committed=read_committed).values()
    consumer = client.consumer(ConsumerSettings(read_committed=read_committed))
    consumer.assign({key: EARLIEST})
    found: list[Record] = []
    while consumer.position(key) < end.offset:
        found += [record for some in consumer.poll(1_000) for record in some.records]
    consumer.close()
    return found


@contextmanager
def running(
    bootstrap: str, topic: str, fn: Callable[..., object], **options: Any
) -> Iterator[ParallelConsumer]:
    options = {"group_id": "g", "partitions": [TopicPartition(topic, 0)]} | options
    made = ParallelConsumer(bootstrap, [topic], fn, **options)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            made.run()
        except BaseException as error:  # noqa: BLE001  # the test raises it
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    for failure in failures:
        raise failure


def until(enough: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not enough():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def committed(client: BlockingClient, topic: str) -> CommittedOffset | None:
    return client.group_offsets("g").get(TopicPartition(topic, 0))


def by_key(lines: list[str]) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for line in lines:
        key, offset, _ = line.split()
        found.setdefault(key, []).append(int(offset))
    return found


def test_threads_keep_the_order_of_keys(bootstrap: str, client: BlockingClient, topic: str) -> None:
    fill(client, topic, [(b"k%d" % (n % 17), b"%d" % n) for n in range(2_000)])
    seen: dict[bytes, list[int]] = {}

    def fn(record: ConsumerRecord) -> None:
        assert isinstance(record.key, bytes)
        seen.setdefault(record.key, []).append(record.offset)

    with running(bootstrap, topic, fn, workers=8) as made:
        until(lambda: made.statistics().processed == 2_000)
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert sum(map(len, seen.values())) == 2_000
    assert committed(client, topic) == CommittedOffset(2_000)


def test_batches_and_a_poison_record_in_one(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    fill(client, topic, [(b"k%d" % n, b"%d" % n) for n in range(500)])
    sizes = []

    def fn(records: list[ConsumerRecord]) -> None:
        sizes.append(len(records))
        if any(record.value == b"321" for record in records):
            raise ValueError("321")

    policy = RetryPolicy(attempts=2, backoff_ms=1)
    with running(bootstrap, topic, fn, batch_size=50, retry=policy) as made:
        until(lambda: made.statistics().processed == 499)
    assert max(sizes) <= 50
    assert committed(client, topic) == CommittedOffset(500)
    (dead,) = read(client, f"{topic}.g.dlq")
    assert dead.value == b"321"


@pytest.mark.long
def test_a_process_that_a_record_kills_takes_nothing_with_it(
    bootstrap: str, client: BlockingClient, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "noted"
    records = [(b"k%d" % (n % 7), str(path).encode()) for n in range(200)]
    records[50] = records[50][0], f"{path}|kill-once".encode()
    records[99] = records[99][0], f"{path}|kill".encode()
    records[120] = records[120][0], f"{path}|hang".encode()
    fill(client, topic, records)
    policy = RetryPolicy(attempts=2, backoff_ms=1, stall_timeout_ms=5_000)
    with running(
        bootstrap, topic, note_down, workers=3, worker_kind="process", retry=policy
    ) as made:
        until(lambda: made.statistics().processed == 198)
        found = made.statistics()
    assert (found.workers_lost, found.stalled, found.dead_lettered) == (3, 2, 2)
    noted = by_key(path.read_text().splitlines())
    assert all(offsets == sorted(offsets) for offsets in noted.values())
    assert sorted(offset for offsets in noted.values() for offset in offsets) == sorted(
        set(range(200)) - {99, 120}
    )
    assert committed(client, topic) == CommittedOffset(200)
    reasons = [dict(one.headers)["raylog-failure"] for one in read(client, f"{topic}.g.dlq")]
    assert sorted(reason or b"" for reason in reasons) == [b"stalled", b"worker lost"]


def test_records_finished_beyond_the_commit_are_not_repeated(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    fill(client, topic, [(b"k%d" % n, b"%d" % n) for n in range(1_000)])
    release = threading.Event()
    calls: list[int] = []

    def fn(record: ConsumerRecord) -> None:
        calls.append(record.offset)
        if record.offset == 3:
            release.wait(DEADLINE_S)

    options: dict[str, Any] = {"commit_interval_ms": 50, "drain_timeout_ms": 100}
    with running(bootstrap, topic, fn, **options) as made:
        until(lambda: made.statistics().processed == 999)
    left = committed(client, topic)
    assert left is not None
    assert left.offset == 3
    assert left.metadata.startswith("raylog-note:1:")
    with running(bootstrap, topic, fn, **options) as made:
        until(lambda: made.statistics().skipped == 996)
        release.set()
        until(lambda: made.statistics().processed == 1)
    assert sorted(calls) == sorted([*range(1_000), 3])
    assert committed(client, topic) == CommittedOffset(1_000)


def test_coroutines(bootstrap: str, client: BlockingClient, topic: str) -> None:
    fill(client, topic, [(b"k%d" % n, b"%d" % n) for n in range(300)])

    async def fn(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.001)

    with running(bootstrap, topic, fn, worker_kind="asyncio", workers=64) as made:
        until(lambda: made.statistics().processed == 300)
    assert committed(client, topic) == CommittedOffset(300)


def test_parallel_consumer_runs_on_uvloop(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    fill(client, topic, [(b"k%d" % n, b"%d" % n) for n in range(100)])

    async def fn(record: ConsumerRecord) -> None:
        await asyncio.sleep(0.001)
        if made.statistics().processed == 99:
            made.stop()

    made = ParallelConsumer(
        bootstrap, [topic], fn, worker_kind="asyncio", group_id="u", auto_offset_reset="earliest"
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(made.run_async(), DEADLINE_S))
    assert client.group_offsets("u") == {TopicPartition(topic, 0): CommittedOffset(100)}


def test_results_and_offsets_in_transactions(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    client.create_topics([NewTopic("out", 1)])
    values = [b"poison" if n == 40 else b"v%d" % n for n in range(300)]
    fill(client, topic, [(b"k%d" % (n % 9), value) for n, value in enumerate(values)])
    with running(
        bootstrap,
        topic,
        upper,
        transactional_id=topic,
        commit_interval_ms=20,
        retry=RetryPolicy(attempts=2, backoff_ms=1),
    ):
        until(lambda: committed(client, topic) == CommittedOffset(300))
    found = [record.value for record in read(client, "out", read_committed=True)]
    assert sorted(found, key=repr) == sorted(
        [value.upper() for value in values if value != b"poison"], key=repr
    )
    (dead,) = read(client, f"{topic}.g.dlq", read_committed=True)
    assert dead.value == b"poison"


def test_a_mutated_record_is_whole_again_in_the_next_run(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    fill(client, topic, [(b"k", b"a,b")])
    seen: list[list[str]] = []

    def fn(record: ConsumerRecord) -> None:
        assert isinstance(record.value, list)
        seen.append(list(record.value))
        record.value.clear()
        if len(seen) < 3:
            raise ValueError("again")

    with running(
        bootstrap,
        topic,
        fn,
        retry=RetryPolicy(backoff_ms=1),
        value_deserializer=lambda topic, data, headers: data.decode().split(","),
    ) as made:
        until(lambda: made.statistics().processed == 1)
    assert seen == [["a", "b"]] * 3


def test_undeserializable_record_is_a_dead_letter(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    fill(client, topic, [(b"k", b"1"), (b"k", b"x"), (b"k", b"3")])
    seen: list[object] = []
    with running(
        bootstrap,
        topic,
        lambda record: seen.append(record.value),
        retry=RetryPolicy(attempts=1),
        value_deserializer=lambda topic, data, headers: int(data),
    ) as made:
        until(lambda: made.statistics().processed == 2)
    assert seen == [1, 3]
    (dead,) = read(client, f"{topic}.g.dlq")
    assert (dead.value, dict(dead.headers)["raylog-exception-class"]) == (b"x", b"ValueError")


def test_a_failure_without_dead_letters_is_raised(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    fill(client, topic, [(b"k", b"1")])

    def fn(record: ConsumerRecord) -> None:
        raise SystemExit("no")

    with (
        pytest.raises(ProcessingFailed, match=r"at offset 0 failed 1 times.*SystemExit: no"),
        running(bootstrap, topic, fn, dead_letter=None, retry=RetryPolicy(attempts=1)) as made,
    ):
        until(lambda: made.statistics().failures == 1)


def test_results_that_are_too_large_fail_their_record_alone(
    bootstrap: str, client: BlockingClient, topic: str
) -> None:
    fill(client, topic, [(b"k", b"1"), (b"k", b"2")])

    def fn(record: ConsumerRecord) -> ProducerRecord:
        return ProducerRecord("large", b"x" * (2_000_000 if record.value == b"1" else 1))

    client.create_topics([NewTopic("large", 1)])
    with running(bootstrap, topic, fn, results=True, retry=RetryPolicy(attempts=1)) as made:
        until(lambda: made.statistics().processed == 1)
    assert [record.value for record in read(client, "large")] == [b"x"]
    (dead,) = read(client, f"{topic}.g.dlq")
    assert b"max_record_bytes" in (dict(dead.headers)["raylog-exception-text"] or b"")


REFUSED = {
    b"invalid name": ProducerRecord("no such/topic", b"x"),
    b"no topic": ProducerRecord("there-is-none", b"x"),
    b"no partition": ProducerRecord("accepted", b"x", partition=99),
    b"too large": ProducerRecord("small", b"x" * 2_000),
    b"without key": ProducerRecord("compacted", b"x"),
    b"header": ProducerRecord("accepted", b"x", headers=[("name", "text")]),  # type: ignore[list-item]  # a mistake
    b"time": ProducerRecord("accepted", b"x", timestamp_ms=1 << 70),
}


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.timeout(120)
def test_results_that_no_topic_takes_fail_their_records_and_hold_up_no_others(
    strict: str, strict_client: BlockingClient, topic_of_strict: str, transactional: bool
) -> None:
    client, topic = strict_client, topic_of_strict
    fill(client, topic, [(b"k", name) for name in REFUSED] + [(b"l", b"fine")] * 50)

    def fn(record: ConsumerRecord) -> ProducerRecord:
        assert isinstance(record.value, bytes)
        return REFUSED.get(record.value) or ProducerRecord("accepted", record.value)

    options: dict[str, Any] = {"transactional_id": topic} if transactional else {"results": True}
    with running(
        strict,
        topic,
        fn,
        retry=RetryPolicy(attempts=1),
        delivery_timeout_ms=4_000,
        commit_interval_ms=50,
        **options,
    ) as made:
        until(lambda: made.statistics().dead_lettered == len(REFUSED))
        until(lambda: committed(client, topic) == CommittedOffset(50 + len(REFUSED)))
    dead = read(client, f"{topic}.g.dlq", read_committed=True)
    assert {one.value for one in dead} == set(REFUSED)
    assert {dict(one.headers)["raylog-failure"] for one in dead} == {b"undelivered"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"group_id": None}, "expected group_id"),
        ({"enable_auto_commit": True}, "not finished"),
        ({"worker_kind": "asyncio"}, "run a coroutine function"),
        ({"worker_kind": "process"}, "can be pickled"),
        ({"worker_kind": "fibre"}, "thread, process, asyncio, ray"),
        ({"order": "topic"}, "partition, key, none"),
        ({"workers": 0}, "workers to be a number of 1 or more"),
        ({"drain_timeout_ms": 1e9}, "half of max_poll_interval_ms"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], reason: str) -> None:
    settings = {"group_id": "g"} | options
    with pytest.raises(InvalidSetting, match=reason):
        ParallelConsumer("localhost:1", ["t"], lambda record: None, **settings)
