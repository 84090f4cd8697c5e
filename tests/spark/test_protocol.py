"""The sink's protocol against live brokers, in both versions of transactions, without Spark."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping

import pytest

from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.client.admin.groups import CommittedOffset
from raylog.client.io import run_blocking
from raylog.client.producer.accumulator import ProducerIdentity
from raylog.sink.batches import BatchFailed
from raylog.sink.commit import (
    AnswerLost,
    BatchMachine,
    CommitOffsets,
    Effect,
    End,
    Event,
    Identified,
    ReadState,
    Refused,
    StateRead,
    TakeIdentity,
    TaskReport,
    Write,
    WriteLost,
    Written,
)
from raylog.sink.marks import Mark
from raylog.sink.writer import WriteRefused
from raylog.wire.errors import ErrorCode, KafkaError
from tests.spark.conftest import level
from tests.spark.driving import Driver, driving, expected
from tests.spark.reading import read_all, until_settled, values
from tests.support.marks import read_mark
from tests.support.ray_clusters import wait_until


def refusal(driver: Driver, key: TopicPartition, identity: ProducerIdentity) -> str:
    """What a task under this identity is refused with; empty if it wrote."""
    try:
        driver.task(key, identity, driver.batch(9), 1)
    except (WriteRefused, KafkaError) as refused:
        return str(refused) or type(refused).__name__
    return ""


def committed(bootstrap: str, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
    with BlockingClient(bootstrap) as client:
        return client.group_offsets(group_id, require_stable=True)


def test_several_writers_commit_as_one(driver: Driver, bootstrap: str) -> None:
    """Whole or not at all for a reader at any time, with the source offsets in it."""
    seen: list[int] = []

    def look(effect: Effect) -> None:
        if isinstance(effect, CommitOffsets | End):
            seen.append(len(values(bootstrap, driver.topic, settled=False)))
            seen.append(len(values(bootstrap, driver.topic, read_committed=False)))

    driver.between = look
    assert driver.write(driver.batch(0))
    assert seen == [0, 60, 0, 60]
    assert values(bootstrap, driver.topic) == expected(("q", 0))
    offsets = committed(bootstrap, driver.transactions.group_id)
    assert offsets[driver.source].offset == 10
    assert {read_mark(offset.metadata) for offset in offsets.values()} == {Mark("q", 0)}


def test_all_requests_are_of_the_clusters_version(driver: Driver, bootstrap: str) -> None:
    driver.write(driver.batch(0))
    if level(bootstrap) == 2:
        assert driver.transactions.protocol.keeps_identity
        assert driver.core.sent == {("PRODUCE", 12), ("TXN_OFFSET_COMMIT", 5), ("END_TXN", 5)}
    else:
        assert driver.transactions.protocol.registers
        assert driver.core.sent == {
            ("ADD_PARTITIONS_TO_TXN", 3),
            ("PRODUCE", 11),
            ("ADD_OFFSETS_TO_TXN", 4),
            ("TXN_OFFSET_COMMIT", 4),
            ("END_TXN", 4),
        }


def test_many_batches_of_one_driver(driver: Driver, bootstrap: str) -> None:
    """Version 2 goes on with the identity that the last EndTxn told; version 1 takes another."""
    for batch_id in range(4):
        driver.write(driver.batch(batch_id))
    asked = sum(isinstance(effect, TakeIdentity) for effect in driver.done)
    if level(bootstrap) == 2:
        assert asked == 1
    else:
        assert asked >= 4  # again while the transaction before is being completed
    assert values(bootstrap, driver.topic) == expected(*(("q", n) for n in range(4)))


def test_a_written_batch_is_skipped_for_its_query_alone(driver: Driver, bootstrap: str) -> None:
    assert driver.write(driver.batch(0))
    assert driver.write(driver.batch(1))
    assert not driver.write(driver.batch(1))
    assert driver.write(driver.batch(1, "p", begin=20))
    assert values(bootstrap, driver.topic) == expected(("q", 0), ("q", 1), ("p", 1))


def test_an_end_whose_answer_is_lost_is_retried_as_it_was(driver: Driver, bootstrap: str) -> None:
    lost: list[Effect] = []

    def lose(effect: Effect) -> Event | None:
        if isinstance(effect, End) and len(lost) < 2:
            lost.append(effect)
            return AnswerLost("cut after the broker had it")
        return None

    driver.after = lose
    assert driver.write(driver.batch(0))
    assert driver.done[-3:] == [lost[0]] * 3
    assert sum(isinstance(effect, Write) for effect in driver.done) == 1
    assert values(bootstrap, driver.topic) == expected(("q", 0))


def test_a_run_that_is_lost_leaves_nothing_to_readers(driver: Driver, bootstrap: str) -> None:
    """Its rows are aborted, the next run's rows are there once."""
    lost: list[Effect] = []

    def lose(effect: Effect) -> Event | None:
        if isinstance(effect, Write) and not lost:
            lost.append(effect)
            return WriteLost("an executor is gone")
        return None

    driver.after = lose
    assert driver.write(driver.batch(0))
    assert values(bootstrap, driver.topic) == expected(("q", 0))
    assert len(values(bootstrap, driver.topic, read_committed=False)) == 2 * 60


def test_a_zombie_task_cannot_write_into_the_next_commit(driver: Driver, bootstrap: str) -> None:
    """A task of the lost run that goes on during the next one, under its old epoch."""
    runs: list[ProducerIdentity] = []
    refused: list[str] = []

    def zombie(effect: Effect) -> Event | None:
        if isinstance(effect, Write):
            runs.append(effect.identity)
            return WriteLost("taken for lost") if len(runs) == 1 else None
        if isinstance(effect, CommitOffsets | End) and len(runs) == 2:
            refused.append(refusal(driver, driver.keys[0], runs[0]))
        return None

    driver.between = zombie
    assert driver.write(driver.batch(0))
    assert len(refused) == 2
    assert values(bootstrap, driver.topic) == expected(("q", 0))


def test_a_second_writer_of_a_partition_is_found_before_the_commit(
    driver: Driver, bootstrap: str
) -> None:
    """Merged into the first one's rows by sequence numbers: no request fails, only the count."""
    runs: list[ProducerIdentity] = []

    def second(effect: Effect) -> Event | None:
        if isinstance(effect, Write):
            runs.append(effect.identity)
            if len(runs) == 1:
                driver.task(driver.keys[0], effect.identity, driver.batch(9), 25)
                return Written(
                    [TaskReport(driver.keys[0], 20, 19)]
                    + [
                        driver.task(key, effect.identity, driver.batch(0), 20)
                        for key in driver.keys[1:]
                    ]
                )
        return None

    driver.between = second
    assert driver.write(driver.batch(0))
    assert len(runs) == 2
    assert values(bootstrap, driver.topic) == expected(("q", 0))


def test_a_new_driver_ends_what_its_predecessor_left_open(driver: Driver, bootstrap: str) -> None:
    """And the predecessor, a zombie now, commits nothing, and finds its batch written."""

    def taken_over(effect: Effect) -> None:
        if isinstance(effect, End) and not successor:
            with driving(bootstrap, driver.topic) as other:
                successor.append(other.write(other.batch(0)))

    successor: list[bool] = []
    driver.between = taken_over
    assert not driver.write(driver.batch(0))
    assert successor == [True]
    assert values(bootstrap, driver.topic) == expected(("q", 0))


def test_the_state_is_read_when_it_is_settled(driver: Driver, bootstrap: str) -> None:
    """A transaction has a state and offsets pending: who decides waits for its end."""
    order: list[str] = []

    def opened(effect: Effect) -> None:
        if isinstance(effect, End):
            reading.start()
            begun.wait(10)
            order.append("ends")

    def read() -> None:
        with driving(bootstrap, driver.topic) as other:
            other.transactions.transaction.transactional_id = f"{driver.topic}-other"
            begun.set()
            found = run_blocking(other.transactions.settle(ReadState()))
            order.append("read")
            results.append(found)

    begun, reading = threading.Event(), threading.Thread(target=read)
    results: list[Event] = []
    driver.between = opened
    driver.write(driver.batch(0))
    reading.join(60)
    assert order == ["ends", "read"]
    (found,) = results
    assert isinstance(found, StateRead)
    assert found.state == driver.state


def test_a_timeout_above_the_brokers_is_named(driver: Driver) -> None:
    protocol = driver.transactions.protocol
    machine = BatchMachine(driver.batch(0), protocol, is_registered=True, timeout_ms=900_001)
    effect = machine.start(0).effect
    event = run_blocking(driver.transactions.carry_out(effect, {}))
    assert isinstance(event, Refused)
    assert event.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    with pytest.raises(BatchFailed, match=r"transaction\.max\.timeout\.ms"):
        machine.handle(event, 0)


def test_a_transaction_that_timed_out_is_not_committed(driver: Driver, bootstrap: str) -> None:
    """Coordinators abort it; the run after it has a longer one and succeeds."""
    driver.write(driver.batch(0))
    event = run_blocking(driver.transactions.settle(TakeIdentity(1)))
    assert isinstance(event, Identified)
    driver.identity = None
    keys = itertools.cycle(driver.keys)
    wait_until(lambda: refusal(driver, next(keys), event.identity), "the timeout")
    assert driver.write(driver.batch(1))
    assert values(bootstrap, driver.topic) == expected(("q", 0), ("q", 1))


def test_the_mark_of_an_empty_batch_is_committed(driver: Driver, bootstrap: str) -> None:
    assert driver.write(driver.batch(0), rows=0)
    assert values(bootstrap, driver.topic, read_committed=False) == []
    assert committed(bootstrap, driver.transactions.group_id)[driver.source].offset == 10
    assert not driver.write(driver.batch(0), rows=0)


def test_rows_too_large_for_the_topic_fail_for_good(bootstrap: str, name: str) -> None:
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(name, 1, configs={"max.message.bytes": "100"})])
    with driving(bootstrap, name) as driver:
        driver.partitions = 1
        identity = run_blocking(driver.transactions.settle(TakeIdentity(60_000)))
        assert isinstance(identity, Identified)
        with pytest.raises(WriteRefused, match="MESSAGE_TOO_LARGE") as raised:
            driver.task(driver.keys[0], identity.identity, driver.batch(0), 20)
        assert raised.value.is_final


def test_order_within_a_partition_is_that_of_the_rows(driver: Driver, bootstrap: str) -> None:
    driver.write(driver.batch(0), rows=100)
    until_settled(bootstrap, driver.topic)
    for partition, records in read_all(bootstrap, driver.topic).items():
        found = [record.value for record in records]
        assert found == [f"q-0-{partition}-{n}".encode() for n in range(100)]
