"""The parallel consumer's shell under virtual time, on a group in memory."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from random import Random
from typing import Any

import pytest

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition
from raylog.client.interceptors import ConsumerRecord, ProducerRecord
from raylog.client.parallel.effects import Effect, Outcome, ProcessingFailed, WindowSettings
from raylog.client.parallel.engine import Engine, EngineSettings
from raylog.client.parallel.job import Job
from raylog.client.parallel.note import decode_note
from raylog.client.parallel.policy import DeadLetter, Order, RetryPolicy
from raylog.client.parallel.window import Window
from raylog.client.parallel.workers.tasks import TaskWorkers
from raylog.simulation.loop import run_in_virtual_time
from tests.worlds.client.group import WALL_MS, FakeBroker, FakeSink, FakeSource

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Fn = Callable[[Any], Awaitable[object]]


class Member:
    """One parallel consumer in the group."""

    def __init__(
        self,
        broker: FakeBroker,
        fn: Fn,
        keys: list[TopicPartition],
        *,
        times: EngineSettings | None = None,
        kind: type[Window] = Window,
        as_batch: bool = False,
        **settings: Any,
    ) -> None:
        self.broker = broker
        self.window = kind(WindowSettings("g", **settings), Random(1))
        retry_topics = self.window.watch_retry_topics("t")
        self.source = FakeSource(
            broker, [*keys, *(TopicPartition(name, 0) for name in retry_topics)]
        )
        job = Job(
            fn,
            as_batch=as_batch,
            keeps_results=True,
            retry_topics=frozenset(retry_topics),
            sink="out",
        )
        self.sink = FakeSink(broker, self.source)
        loop = asyncio.get_running_loop()
        self.engine = Engine(
            self.source,
            self.sink,
            TaskWorkers(job),
            self.window,
            times or EngineSettings(),
            wall_ms=lambda: WALL_MS + int(loop.time() * 1000),
        )
        self.task = asyncio.create_task(self.engine.run(["t"]))

    async def until(self, enough: Callable[[], bool], timeout_s: float = 3_600) -> None:
        async with asyncio.timeout(timeout_s):
            while not enough():
                assert not self.task.done(), self.task
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self.engine.stop()
        await self.task


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_virtual_time(lambda loop: test())


def filled(count: int, keys: int = 10, partition: TopicPartition = P0) -> FakeBroker:
    broker = FakeBroker()
    for number in range(count):
        broker.append(partition, b"%d" % number, b"k%d" % (number % keys))
    return broker


@pytest.mark.parametrize("cells", [1, 8, 64])
def test_cells_that_sleep_10_ms_a_record_finish_cells_times_as_many(cells: int) -> None:
    async def test() -> None:
        broker = filled(cells * 100, keys=997)

        async def fn(record: ConsumerRecord) -> None:
            await asyncio.sleep(0.010)

        began = asyncio.get_running_loop().time()
        member = Member(broker, fn, [P0], cells=cells)
        await member.until(lambda: member.window.statistics.processed == cells * 100)
        took_s = asyncio.get_running_loop().time() - began
        await member.stop()
        assert cells * 100 * 0.010 / took_s >= 0.85 * cells
        assert broker.committed[P0] == CommittedOffset(cells * 100)

    virtual(test)


class CostlyWindow(Window):
    """The end of each run takes 30 microseconds of the loop's time, as it does in production."""

    def ran(self, cell_id: int, outcome: Outcome, now_ms: float, wall_ms: int) -> list[Effect]:
        loop: Any = asyncio.get_running_loop()
        loop._now_s += 30e-6
        return super().ran(cell_id, outcome, now_ms, wall_ms)


def test_a_run_does_not_wait_for_the_ends_of_all_others() -> None:
    async def test() -> None:
        broker = filled(64 * 100, keys=9_973)

        async def fn(record: ConsumerRecord) -> None:
            await asyncio.sleep(0.010)

        loop = asyncio.get_running_loop()
        member = Member(broker, fn, [P0], cells=64, kind=CostlyWindow)
        began = loop.time()
        await member.until(lambda: member.window.statistics.processed == 64 * 100)
        took_s = loop.time() - began
        await member.stop()
        assert 0.010 * 100 / took_s >= 0.9

    virtual(test)


def test_context_variables_are_isolated_between_runs() -> None:
    variable = ContextVar("variable", default=0)

    async def test() -> None:
        broker = filled(50)
        seen: list[int] = []

        async def fn(record: ConsumerRecord) -> None:
            seen.append(variable.get())
            if record.offset % 3 == 0:
                variable.set(record.offset + 1)
            await asyncio.sleep(0.001)

        member = Member(broker, fn, [P0], cells=2)
        await member.until(lambda: len(seen) == 50)
        await member.stop()
        assert seen == [0] * 50

    virtual(test)


def test_a_run_that_cancels_its_own_task_does_not_cancel_the_next_one() -> None:
    async def test() -> None:
        broker = filled(20)
        ran: list[int] = []

        async def fn(record: ConsumerRecord) -> None:
            if record.offset == 5 and 5 not in ran:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            ran.append(record.offset)

        member = Member(broker, fn, [P0], cells=1, retry=RetryPolicy(attempts=1))
        await member.until(lambda: broker.committed.get(P0) == CommittedOffset(20))
        await member.stop()
        assert ran == list(range(20))
        assert member.window.statistics.dead_lettered == 0

    virtual(test)


def test_coroutines_that_never_wait_leave_the_loop_its_turns() -> None:
    async def test() -> None:
        broker = filled(2_000, keys=1)
        ran = 0
        turns: list[int] = []

        async def other() -> None:
            while ran < 2_000:
                turns.append(ran)
                await asyncio.sleep(0)

        others: set[asyncio.Task[None]] = set()

        async def fn(record: ConsumerRecord) -> None:
            nonlocal ran
            if not ran:
                others.add(asyncio.create_task(other()))
            ran += 1

        member = Member(broker, fn, [P0], cells=4)
        await member.until(lambda: ran == 2_000)
        await member.stop()
        assert max(b - a for a, b in itertools.pairwise(turns)) <= 4 * 16

    virtual(test)


def test_a_poison_record_ends_in_the_dead_letters_while_the_partition_moves_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        broker = filled(100)
        calls: list[bytes] = []

        async def fn(record: ConsumerRecord) -> None:
            assert isinstance(record.value, bytes)
            calls.append(record.value)
            if record.value == b"13":
                raise ValueError("thirteen")

        member = Member(broker, fn, [P0], retry=RetryPolicy(backoff_ms=100))
        await member.until(lambda: member.window.statistics.processed == 99)
        await member.stop()
        assert calls.count(b"13") == 3
        assert broker.committed[P0] == CommittedOffset(100)
        ((dead,),) = [some for key, some in broker.log.items() if key.topic == "t.g.dlq"]
        assert (dead.key, dead.value) == (b"k3", b"13")
        headers = dict(dead.headers)
        assert headers["raylog-original-topic"] == b"t"
        assert headers["raylog-original-partition"] == b"0"
        assert headers["raylog-original-offset"] == b"13"
        assert headers["raylog-original-timestamp"] == str(WALL_MS).encode()
        assert headers["raylog-exception-class"] == b"ValueError"
        assert headers["raylog-exception-text"] == b"thirteen"
        assert headers["raylog-attempts"] == b"3"
        assert headers["raylog-group"] == b"g"
        assert int(headers["raylog-first-failure"] or 0) >= WALL_MS

    with caplog.at_level(logging.WARNING):
        virtual(test)
    assert "t-0 at offset 13 goes to t.g.dlq: ValueError: thirteen" in caplog.text


def test_retry_topics_wait_by_pausing_and_the_function_sees_the_first_place() -> None:
    async def test() -> None:
        broker = filled(20)
        seen: list[tuple[float, ConsumerRecord]] = []
        loop = asyncio.get_running_loop()

        async def fn(record: ConsumerRecord) -> None:
            if record.value == b"7":
                seen.append((loop.time(), record))
                if len(seen) < 4:
                    raise ValueError("not yet")

        policy = RetryPolicy(attempts=2, backoff_ms=10, topic_delays_ms=(60_000, 600_000))
        member = Member(broker, fn, [P0], retry=policy)
        retry_1 = TopicPartition("t.g.retry.1", 0)
        await member.until(lambda: retry_1 in member.source.paused)
        assert member.window.count_statistics().buffered == 1
        assert broker.committed.get(P0) in (None, CommittedOffset(20))
        await member.until(lambda: len(seen) == 4)
        await asyncio.sleep(5)
        await member.stop()
        times = [when for when, _ in seen]
        assert times[1] - times[0] < 1
        assert 59.9 <= times[2] - times[1] < 62
        assert 599.9 <= times[3] - times[2] < 602
        assert {record for _, record in seen} == {seen[0][1]}
        assert broker.committed[P0] == CommittedOffset(20)
        assert broker.committed[TopicPartition("t.g.retry.2", 0)] == CommittedOffset(1)
        assert not broker.values("t.g.dlq")
        assert member.source.polls > 600, "a consumer that waits for a retry polls on"

    virtual(test)


def test_a_call_that_never_returns_is_given_up_and_the_window_moves_on() -> None:
    async def test() -> None:
        broker = filled(50)

        async def fn(record: ConsumerRecord) -> None:
            if record.value == b"5":
                await asyncio.Event().wait()

        policy = RetryPolicy(attempts=2, backoff_ms=10, stall_timeout_ms=5_000)
        member = Member(broker, fn, [P0], retry=policy)
        await member.until(lambda: member.window.statistics.processed == 49, timeout_s=20)
        await member.stop()
        assert broker.committed[P0] == CommittedOffset(50)
        assert member.window.statistics.stalled == 2
        (dead,) = broker.log[TopicPartition("t.g.dlq", 0)]
        assert dict(dead.headers)["raylog-failure"] == b"stalled"

    virtual(test)


@pytest.mark.long
def test_a_call_that_takes_a_week_holds_its_cell_while_others_go_on() -> None:
    async def test() -> None:
        broker = filled(2_000)

        async def fn(record: ConsumerRecord) -> None:
            if record.value == b"5":
                await asyncio.sleep(7 * 24 * 3_600)

        times = EngineSettings(poll_timeout_ms=60_000, commit_interval_ms=60_000)
        member = Member(broker, fn, [P0], order=Order.NONE, times=times)
        await member.until(lambda: member.window.statistics.processed == 1_999)
        await asyncio.sleep(120)
        held = broker.committed[P0]
        assert held.offset == 5
        assert decode_note(P0, 5, held.metadata) == [(6, 2_000)]
        await asyncio.sleep(7 * 24 * 3_600)
        await member.stop()
        assert broker.committed[P0] == CommittedOffset(2_000)

    virtual(test)


@pytest.mark.parametrize(
    "error", [SystemExit("out"), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_base_exceptions_are_failures_like_others(error: BaseException) -> None:
    async def test() -> None:
        broker = filled(5)

        async def fn(record: ConsumerRecord) -> None:
            if record.value == b"2":
                raise error

        member = Member(broker, fn, [P0], retry=RetryPolicy(attempts=1))
        await member.until(lambda: member.window.statistics.dead_lettered == 1)
        await member.stop()
        assert broker.committed[P0] == CommittedOffset(5)

    virtual(test)


def test_a_rebalance_finishes_what_runs_then_commits_then_lets_go() -> None:
    async def test() -> None:
        broker = filled(40)
        running: set[bytes] = set()
        ran: list[bytes] = []

        async def fn(record: ConsumerRecord) -> None:
            assert isinstance(record.value, bytes)
            assert record.value not in running
            running.add(record.value)
            await asyncio.sleep(2)
            running.discard(record.value)
            ran.append(record.value)

        first = Member(broker, fn, [P0], cells=4)
        await first.until(lambda: len(ran) >= 8)
        second = Member(broker, fn, [P0], cells=4)
        first.source.wanted.clear()
        await second.until(lambda: second.window.statistics.processed > 0)
        assert first.window.count_statistics().running == 0
        await second.until(lambda: len(set(ran)) == 40)
        await first.stop()
        await second.stop()
        assert len(ran) == 40, "nothing ran twice"

    virtual(test)


def test_record_finished_after_revocation_is_not_committed() -> None:
    async def test() -> None:
        broker = filled(10)
        release = asyncio.Event()

        async def stubborn(record: ConsumerRecord) -> None:
            if record.value == b"0":
                while not release.is_set():
                    try:
                        await release.wait()
                    except asyncio.CancelledError:
                        continue

        times = EngineSettings(drain_timeout_ms=1_000)
        member = Member(broker, stubborn, [P0], times=times)
        await member.until(lambda: member.window.statistics.processed == 9)
        member.source.wanted.clear()
        await member.until(lambda: P0 not in member.source.owned)
        before = broker.committed[P0]
        assert before.offset == 0
        assert decode_note(P0, 0, before.metadata) == [(1, 10)]
        release.set()
        await asyncio.sleep(5)
        await member.stop()
        assert broker.committed[P0] == before

    virtual(test)


def test_a_lost_partition_is_not_committed() -> None:
    async def test() -> None:
        broker = filled(10)
        broker.append(P1, b"x")

        async def fn(record: ConsumerRecord) -> None:
            await asyncio.sleep(5)

        member = Member(broker, fn, [P0, P1], cells=4, times=EngineSettings(poll_timeout_ms=10))
        await member.until(lambda: member.window.count_statistics().running == 4)
        member.source.lose.append(P0)
        member.source.wanted.remove(P0)
        await member.until(lambda: member.window.statistics.late > 0)
        await member.stop()
        assert P0 not in broker.committed
        assert broker.committed[P1] == CommittedOffset(1)

    virtual(test)


@pytest.mark.parametrize("metadata", ["somebody's own words", "raylog-note:1:r:0000000000", "\x00"])
def test_metadata_of_another_tool_is_ignored_and_reported(
    metadata: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        broker = filled(10)
        broker.committed[P0] = CommittedOffset(4, metadata=metadata)
        seen: list[object] = []

        async def fn(record: ConsumerRecord) -> None:
            seen.append(record.offset)

        member = Member(broker, fn, [P0])
        await member.until(lambda: len(seen) == 6)
        await member.stop()
        assert broker.committed[P0] == CommittedOffset(10)

    with caplog.at_level(logging.WARNING):
        virtual(test)
    assert "records beyond 4 are all run" in caplog.text


def test_without_a_dead_letter_topic_a_poison_record_ends_the_consumer_and_stays() -> None:
    async def test() -> None:
        broker = filled(10)

        async def fn(record: ConsumerRecord) -> None:
            if record.value == b"3":
                raise ValueError("three")

        member = Member(broker, fn, [P0], dead_letter=None, retry=RetryPolicy(backoff_ms=1))
        with pytest.raises(ProcessingFailed, match="t-0 at offset 3 failed 3 times"):
            await member.task
        assert broker.committed[P0].offset == 3
        assert member.source.is_closed

    virtual(test)


def test_a_letter_whose_topic_is_gone_is_sent_until_it_is_back() -> None:
    async def test() -> None:
        broker = filled(10)
        broker.refuse_topics.add("t.g.dlq")

        async def fn(record: ConsumerRecord) -> None:
            if record.value == b"3":
                raise ValueError("three")

        member = Member(broker, fn, [P0], retry=RetryPolicy(attempts=1))
        await member.until(lambda: member.window.statistics.processed == 9)
        await asyncio.sleep(100)
        assert broker.committed[P0].offset == 3
        broker.refuse_topics.clear()
        await asyncio.sleep(20)
        await member.stop()
        assert broker.committed[P0] == CommittedOffset(10)
        assert broker.values("t.g.dlq") == [b"3"]

    virtual(test)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_result_that_no_broker_takes_fails_its_record_alone(transactional: bool) -> None:
    async def test() -> None:
        broker = filled(60)
        broker.refuse_topics.add("nowhere")
        runs: Counter[bytes] = Counter()

        async def fn(record: ConsumerRecord) -> ProducerRecord | None:
            assert isinstance(record.value, bytes)
            runs[record.value] += 1
            topic = "nowhere" if record.value in (b"13", b"14") else "out"
            return ProducerRecord(topic, record.value, record.key)

        member = Member(
            broker,
            fn,
            [P0],
            transactional=transactional,
            retry=RetryPolicy(attempts=3, backoff_ms=10),
            times=EngineSettings(commit_interval_ms=50),
        )
        await member.until(lambda: broker.committed.get(P0) == CommittedOffset(60), 30)
        await member.stop()
        assert sorted(int(value or 0) for value in broker.values("out")) == [
            number for number in range(60) if number not in (13, 14)
        ]
        dead = broker.log[TopicPartition("t.g.dlq", 0)]
        assert sorted(one.value or b"" for one in dead) == [b"13", b"14"]
        headers = dict(dead[0].headers)
        assert headers["raylog-failure"] == b"undelivered"
        assert b"UnknownTopicOrPartition" in (headers["raylog-exception-class"] or b"")
        # What a transaction refused was finished by then: it is not run again.
        assert headers["raylog-attempts"] == (b"1" if transactional else b"3")
        assert runs[b"13"] == (1 if transactional else 3)
        found = member.window.statistics
        assert (found.processed, found.dead_lettered) == (58, 2)

    virtual(test)


def test_a_refused_result_of_a_batch_fails_its_own_record_only() -> None:
    async def test() -> None:
        broker = filled(40)
        broker.refuse_topics.add("nowhere")

        async def fn(records: list[ConsumerRecord]) -> list[ProducerRecord]:
            return [
                ProducerRecord("nowhere" if one.value == b"7" else "out", one.value)
                for one in records
            ]

        policy = RetryPolicy(attempts=2, backoff_ms=10)
        member = Member(broker, fn, [P0], batch_size=10, retry=policy, as_batch=True)
        await member.until(lambda: broker.committed.get(P0) == CommittedOffset(40), 30)
        await member.stop()
        assert broker.values("t.g.dlq") == [b"7"]
        assert len(set(broker.values("out"))) == 39

    virtual(test)


def test_a_refused_result_goes_to_the_retry_topics_first() -> None:
    async def test() -> None:
        broker = filled(5)
        broker.refuse_topics.add("out")

        async def fn(record: ConsumerRecord) -> ProducerRecord | None:
            return ProducerRecord("out", record.value) if record.value == b"3" else None

        policy = RetryPolicy(attempts=1, topic_delays_ms=(10_000,))
        member = Member(broker, fn, [P0], retry=policy)
        await member.until(lambda: bool(broker.values("t.g.retry.1")), 5)
        broker.refuse_topics.clear()
        await member.until(lambda: bool(broker.values("out")), 20)
        await member.stop()
        assert not broker.values("t.g.dlq")

    virtual(test)


@pytest.mark.parametrize("transactional", [False, True])
def test_without_dead_letters_a_refused_result_ends_the_consumer(transactional: bool) -> None:
    async def test() -> None:
        broker = filled(10)
        broker.refuse_topics.add("nowhere")

        async def fn(record: ConsumerRecord) -> ProducerRecord | None:
            return ProducerRecord("nowhere", b"x") if record.value == b"3" else None

        member = Member(
            broker,
            fn,
            [P0],
            dead_letter=None,
            transactional=transactional,
            retry=RetryPolicy(attempts=1),
        )
        with pytest.raises(ProcessingFailed, match="t-0 at offset 3 failed 1 times"):
            await member.task
        found = broker.committed.get(P0)
        assert found is None or found.offset <= 3

    virtual(test)


@pytest.mark.parametrize("aborted", [0, 3])
def test_results_and_offsets_are_one_transaction(aborted: int) -> None:
    async def test() -> None:
        broker = filled(200)
        broker.abort_transactions = aborted

        async def fn(record: ConsumerRecord) -> ProducerRecord | None:
            await asyncio.sleep(0.01)
            if record.value == b"66":
                raise ValueError("66")
            return ProducerRecord("", record.value, record.key)

        member = Member(
            broker,
            fn,
            [P0],
            transactional=True,
            retry=RetryPolicy(attempts=2, backoff_ms=1),
            times=EngineSettings(commit_interval_ms=50),
        )
        await member.until(lambda: broker.committed.get(P0) == CommittedOffset(200))
        await member.stop()
        assert sorted(int(value or 0) for value in broker.values("out")) == [
            number for number in range(200) if number != 66
        ]
        assert broker.values("t.g.dlq") == [b"66"]
        assert sum(member.sink.transactions) == 200

    virtual(test)


def test_results_of_a_lost_partition_are_not_committed() -> None:
    async def test() -> None:
        broker = filled(5)

        async def fn(record: ConsumerRecord) -> object:
            return ProducerRecord("out", record.value)

        times = EngineSettings(commit_interval_ms=10_000)
        member = Member(broker, fn, [P0], transactional=True, times=times)
        await member.until(lambda: member.window.statistics.processed == 5)
        member.source.lose.append(P0)
        member.source.wanted.clear()
        await member.until(lambda: not member.source.owned)
        await member.stop()
        assert not broker.values("out")
        assert not broker.committed

    virtual(test)


@pytest.mark.long
def test_ten_thousand_cells() -> None:
    async def test() -> None:
        broker = filled(25_000, keys=25_000)

        async def fn(record: ConsumerRecord) -> None:
            await asyncio.sleep(10)

        member = Member(broker, fn, [P0], cells=10_000, buffer_records=20_000)
        await member.until(lambda: member.window.count_statistics().running == 10_000)
        await member.until(lambda: member.window.statistics.processed == 25_000, timeout_s=60)
        await member.stop()
        assert broker.committed[P0] == CommittedOffset(25_000)

    virtual(test)


def test_dead_letters_can_be_named() -> None:
    async def test() -> None:
        broker = filled(1)

        async def fn(record: ConsumerRecord) -> None:
            raise ValueError

        member = Member(
            broker,
            fn,
            [P0],
            dead_letter=DeadLetter("dead.{topic}"),
            retry=RetryPolicy(attempts=1),
        )
        await member.until(lambda: member.window.statistics.dead_lettered == 1)
        await member.stop()
        assert broker.values("dead.t") == [b"0"]

    virtual(test)
