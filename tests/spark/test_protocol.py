"""The sink's protocol against live brokers, in both versions of transactions, without Spark.

A `Driver` is the sink's driver with tasks that run in this process.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from raylog.client import BlockingClient, NewTopic, TopicPartition
from raylog.client.accumulator import ProducerIdentity
from raylog.client.connection import Pending
from raylog.client.core import Core
from raylog.client.groups import CommittedOffset
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings, parse_bootstrap
from raylog.client.sockets import BlockingIo
from raylog.raydp_jobs.commit import (
    AnswerLost,
    Batch,
    BatchFailed,
    BatchMachine,
    CommitOffsets,
    Effect,
    End,
    Event,
    Finished,
    Identified,
    OffsetsRead,
    ReadOffsets,
    Refused,
    TakeIdentity,
    TaskReport,
    Write,
    WriteLost,
    Written,
)
from raylog.raydp_jobs.coordinator import Transactions
from raylog.raydp_jobs.marks import Mark, read_mark
from raylog.raydp_jobs.protocol import FIRST, SECOND, choose_protocol
from raylog.raydp_jobs.writer import PartitionWriter, WriteRefused
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.records import Record, encode_batch
from tests.spark.conftest import level
from tests.spark.reading import read_all, until_settled, values
from tests.support.ray_clusters import wait_until

R = TypeVar("R")

ROWS_PER_BLOCK = 5
"""A few records a batch."""
WATCHED = ("PRODUCE", "TXN_OFFSET_COMMIT", "END_TXN", "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN")


class WatchedCore(Core):
    """Notes the versions of what it asks."""

    def __init__(self, bootstrap: str) -> None:
        settings = ClientSettings(parse_bootstrap(bootstrap))
        super().__init__(BlockingIo(), settings)
        self.sent: set[tuple[str, int]] = set()

    async def submit(
        self,
        node_id: int,
        request: object,
        expected: type[R],
        *,
        timeout_ms: float | None = None,
        at_most: int | None = None,
        answered: bool = True,
    ) -> Pending[R]:
        pending = await super().submit(
            node_id, request, expected, timeout_ms=timeout_ms, at_most=at_most, answered=answered
        )
        if pending.api_key.name in WATCHED:
            self.sent.add((pending.api_key.name, pending.version))
        return pending


@dataclass
class Driver:
    """A sink's driver; `rows` of every partition are written by as many writers."""

    core: WatchedCore
    transactions: Transactions
    topic: str
    partitions: int = 3
    between: Callable[[Effect], Event | None] = lambda effect: None
    """Called before each effect; an event instead of carrying it out."""
    after: Callable[[Effect], Event | None] = lambda effect: None
    """Called after each request; an event instead of its answer."""
    done: list[Effect] = field(default_factory=list)
    identity: ProducerIdentity | None = None

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions of its topic."""
        return [TopicPartition(self.topic, number) for number in range(self.partitions)]

    def batch(self, batch_id: int, query_id: str = "q", **offsets: int) -> Batch:
        """A batch that read the source up to some offset."""
        ends = {TopicPartition(self.topic, 1): offset for offset in offsets.values()}
        return Batch(Mark(query_id, batch_id), self.keys, {}, ends)

    def write(self, batch: Batch, rows: int = 20) -> bool:
        """Run the machine to its end; returns whether the batch was new."""
        machine = BatchMachine(batch, self.transactions.protocol, self.identity, runs_max=3)
        step = machine.start(0)
        while not isinstance(step.effect, Finished):
            self.done.append(step.effect)
            run_blocking(self.core.io.pause(step.pause_ms))
            event = self.between(step.effect) or self._carry_out(step.effect, batch, rows)
            step = machine.handle(self.after(step.effect) or event, 0)
        self.identity = step.effect.identity
        return step.effect.is_new

    def _carry_out(self, effect: Effect, batch: Batch, rows: int) -> Event:
        if isinstance(effect, Write):
            return Written([self.task(key, effect.identity, batch, rows) for key in self.keys])
        return run_blocking(self.transactions.carry_out(effect, batch.offsets()))

    def task(
        self, key: TopicPartition, identity: ProducerIdentity, batch: Batch, rows: int
    ) -> TaskReport:
        """One task with connections of its own, as in another process."""
        io = BlockingIo()
        core = WatchedCore(",".join(f"{h}:{p}" for h, p in self.core.settings.bootstrap))
        try:
            report = run_blocking(self._written(core, key, identity, batch, rows))
        finally:
            self.core.sent |= core.sent
            core.close()
            io.close()
        return report

    async def _written(
        self, core: Core, key: TopicPartition, identity: ProducerIdentity, batch: Batch, rows: int
    ) -> TaskReport:
        transactions = replace(self.transactions, core=core, _coordinators={})
        if self.transactions.protocol.registers:
            await transactions.add_partition(identity, key)
        writer = PartitionWriter(
            core, transactions.protocol, transactions.transactional_id, identity, key
        )
        mark = batch.mark
        text = f"{mark.query_id}-{mark.batch_id}-{key.partition}"
        now_ms = int(time.time() * 1000)  # what is old may be deleted by the next test
        records = [Record(0, now_ms, None, f"{text}-{n}".encode(), []) for n in range(rows)]
        for start in range(0, rows, ROWS_PER_BLOCK):
            block = records[start : start + ROWS_PER_BLOCK]
            await writer.write(encode_batch(block, is_transactional=True))
        return await writer.finish()


def expected(*marks: tuple[str, int], rows: int = 20, partitions: int = 3) -> list[bytes]:
    """All values of some batches."""
    return sorted(
        f"{query_id}-{batch_id}-{partition}-{n}".encode()
        for query_id, batch_id in marks
        for partition in range(partitions)
        for n in range(rows)
    )


@contextmanager
def driving(bootstrap: str, topic: str) -> Iterator[Driver]:
    """A driver; the topic's name is the sink's too."""
    core = WatchedCore(bootstrap)
    try:
        protocol = run_blocking(choose_protocol(core))
        yield Driver(
            core, Transactions(core, protocol, topic, topic, TopicPartition(topic, 0)), topic
        )
    finally:
        core.close()


@pytest.fixture
def driver(bootstrap: str, topic: str) -> Iterator[Driver]:
    with driving(bootstrap, topic) as opened:
        yield opened


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
    assert driver.write(driver.batch(0, source=30))
    assert seen == [0, 60, 0, 60]
    assert values(bootstrap, driver.topic) == expected(("q", 0))
    offsets = committed(bootstrap, driver.topic)
    assert offsets[TopicPartition(driver.topic, 1)].offset == 30
    assert {read_mark(offset.metadata) for offset in offsets.values()} == {Mark("q", 0)}


def test_all_requests_are_of_the_clusters_version(driver: Driver, bootstrap: str) -> None:
    driver.write(driver.batch(0))
    if level(bootstrap) == 2:
        assert driver.transactions.protocol is SECOND
        assert driver.core.sent == {("PRODUCE", 12), ("TXN_OFFSET_COMMIT", 5), ("END_TXN", 5)}
    else:
        assert driver.transactions.protocol is FIRST
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
    assert not driver.write(driver.batch(0))
    assert driver.write(driver.batch(1, "p"))
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


def test_offsets_are_read_when_they_are_stable(driver: Driver, bootstrap: str) -> None:
    """Another transaction has offsets of the group pending: who decides waits for its end."""
    order: list[str] = []

    def opened(effect: Effect) -> None:
        if isinstance(effect, End):
            reading.start()
            begun.wait(10)
            order.append("ends")

    def read() -> None:
        with driving(bootstrap, driver.topic) as other:
            other.transactions.transactional_id = f"{driver.topic}-other"
            begun.set()
            found = run_blocking(other.transactions.settle(ReadOffsets()))
            order.append("read")
            results.append(found)

    begun, reading = threading.Event(), threading.Thread(target=read)
    results: list[Event] = []
    driver.between = opened
    driver.write(driver.batch(3))
    reading.join(60)
    assert order == ["ends", "read"]
    (found,) = results
    assert isinstance(found, OffsetsRead)
    assert read_mark(found.offsets[driver.keys[0]].metadata) == Mark("q", 3)


def test_a_timeout_above_the_brokers_is_named(driver: Driver) -> None:
    machine = BatchMachine(driver.batch(0), driver.transactions.protocol, timeout_ms=900_001)
    effect = machine.start(0).effect
    event = run_blocking(driver.transactions.carry_out(effect, {}))
    assert isinstance(event, Refused)
    assert event.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    with pytest.raises(BatchFailed, match=r"transaction\.max\.timeout\.ms"):
        machine.handle(event, 0)


def test_a_transaction_that_timed_out_is_not_committed(driver: Driver, bootstrap: str) -> None:
    """Coordinators abort it; the run after it has a longer one and succeeds."""
    event = run_blocking(driver.transactions.settle(TakeIdentity(1)))
    assert isinstance(event, Identified)
    keys = itertools.cycle(driver.keys)
    wait_until(lambda: refusal(driver, next(keys), event.identity), "the timeout")
    assert driver.write(driver.batch(0))
    assert values(bootstrap, driver.topic) == expected(("q", 0))


def test_the_mark_of_an_empty_batch_is_committed(driver: Driver, bootstrap: str) -> None:
    assert driver.write(driver.batch(0, source=7), rows=0)
    assert values(bootstrap, driver.topic, read_committed=False) == []
    offsets = committed(bootstrap, driver.topic)
    assert offsets[TopicPartition(driver.topic, 1)].offset == 7
    assert not driver.write(driver.batch(0, source=7), rows=0)


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
