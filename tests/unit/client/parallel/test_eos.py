"""eos.process on an embedded broker: each record has its result once, with any kind of worker."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from raylog import eos
from raylog.client import EARLIEST, BlockingClient, ConsumerSettings, InvalidSetting, TopicPartition
from raylog.client.admin.topics import NewTopic
from raylog.client.errors import ClientError
from raylog.client.interceptors import ConsumerRecord
from raylog.client.parallel.policy import RetryPolicy
from raylog.client.parallel.supervision import Step
from raylog.eos import RestartPolicy, process
from tests.support.ray_clusters import wait_until

PARTITIONS = 3
RECORDS = 300
DEADLINE_S = 60


def fill(client: BlockingClient, topic: str, first: int, count: int) -> None:
    with client.producer() as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, b"k%d" % (number % 7))


def committed(client: BlockingClient, topic: str) -> Counter[bytes]:
    """Values of a topic's committed records."""
    (view,) = [client.describe_topic(topic)]
    keys = [TopicPartition(topic, index) for index in view.partitions]
    ends = client.list_offsets(dict.fromkeys(keys, -1), read_committed=True)
    consumer = client.consumer(ConsumerSettings(read_committed=True))
    consumer.assign(dict.fromkeys(keys, EARLIEST))
    found: Counter[bytes] = Counter()
    try:
        while any(consumer.position(key) < end.offset for key, end in ends.items()):
            for batch in consumer.poll(1_000):
                found.update(record.value or b"" for record in batch.records)
    finally:
        consumer.close()
    return found


def result_of(record: ConsumerRecord) -> bytes:
    assert isinstance(record.value, bytes)
    return b"result of " + record.value


def results(first: int, end: int) -> Counter[bytes]:
    return Counter(b"result of %d" % number for number in range(first, end))


@pytest.mark.timeout(180)
def test_each_result_is_there_once_while_tasks_come_and_go(
    client: BlockingClient, bootstrap: str
) -> None:
    client.create_topics([NewTopic("orders", PARTITIONS), NewTopic("invoices", 2)])
    fill(client, "orders", 0, RECORDS)
    with process("orders", "invoices", result_of, group="billing", config=bootstrap) as running:
        wait_until(lambda: committed(client, "invoices").total() > 0, "a first result", DEADLINE_S)
        running.scale(3)
        fill(client, "orders", RECORDS, RECORDS)
        wait_until(
            lambda: committed(client, "invoices").total() >= 2 * RECORDS, "results", DEADLINE_S
        )
        running.scale(1)
        fill(client, "orders", 2 * RECORDS, RECORDS)
        wait_until(
            lambda: committed(client, "invoices").total() >= 3 * RECORDS, "results", DEADLINE_S
        )
    assert committed(client, "invoices") == results(0, 3 * RECORDS)


@pytest.mark.timeout(120)
def test_a_task_that_fails_is_started_again_and_repeats_nothing(
    client: BlockingClient, bootstrap: str
) -> None:
    client.create_topics([NewTopic("calls", 1), NewTopic("bills", 1)])
    fill(client, "calls", 0, 50)
    fails = threading.Event()

    def fn(record: ConsumerRecord) -> bytes:
        if record.value == b"30" and not fails.is_set():
            fails.set()
            raise SystemExit("killed in the middle")
        return result_of(record)

    with process(
        "calls",
        "bills",
        fn,
        group="phones",
        config=bootstrap,
        restart=RestartPolicy(backoff_ms=50.0),
        transactional_id_prefix="phones",
        retry=RetryPolicy(attempts=1),
    ) as running:
        wait_until(lambda: committed(client, "bills").total() >= 49, "results", DEADLINE_S)
        assert fails.is_set()
        del running
    found = committed(client, "bills")
    assert not found - results(0, 50)


def test_without_ray_tasks_of_that_kind_say_so(bootstrap: str) -> None:
    running = process("a", "b", result_of, group="g", config=bootstrap, kind="ray")
    with pytest.raises(InvalidSetting, match=r"need a Ray cluster: call ray\.init"):
        running.wait(DEADLINE_S)


def test_invalid_arguments_are_refused_at_once(bootstrap: str) -> None:
    with pytest.raises(InvalidSetting, match="expected kind to be one of thread, ray"):
        process("a", "b", result_of, group="g", config=bootstrap, kind="fiber")
    with pytest.raises(ClientError, match="nearest"):
        process("a", "b", result_of, group="g", config=bootstrap, sesion_timeout_ms=1)
    with process("a", "b", result_of, group="g", config=bootstrap, tasks=0) as running:
        with pytest.raises(InvalidSetting, match="expected 0 tasks or more, found -1"):
            running.scale(-1)
        assert running.statistics() == {}


def test_a_task_that_could_not_be_started_and_is_not_wanted_any_more_ends_nothing(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unstartable:
        def __init__(self, *_: object) -> None:
            raise RuntimeError("no thread to be had")

    monkeypatch.setattr(eos, "_ThreadTask", Unstartable)
    running = process("in", "out", result_of, group="g", config=bootstrap, tasks=0)
    busy = threading.Event()
    running._events.put(lambda now_ms: (busy.wait(), [])[1])  # both wait behind it
    running.scale(1)
    running.scale(0)
    busy.set()
    running.stop(DEADLINE_S)


def test_a_supervisor_that_fails_tells_those_who_wait(bootstrap: str) -> None:
    running = process("in", "out", result_of, group="g", config=bootstrap, tasks=0)

    def fail(now_ms: float) -> list[Step]:
        raise ZeroDivisionError("ours")

    running._events.put(fail)
    with pytest.raises(ZeroDivisionError, match="ours"):
        running.wait(DEADLINE_S)
