"""The outcome of batches and records, and of their waiters, for any answer of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest

from raylog.actors.common_messages import Route, TopicId
from raylog.actors.coordination import appending
from raylog.actors.coordination.appending import APPEND_BYTES_MAX, REFUSALS, Appender
from raylog.actors.coordination.rules.step import NO_CHANGE, Answer, Change, LogRecord, Step
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.replica import messages as api
from raylog.wire.errors import (
    EncodeError,
    InvalidProducerEpoch,
    KafkaError,
    NotLeaderOrFollower,
    UnknownServerError,
)
from raylog.wire.internal.offsets import GroupMetadataKey, OffsetCommitKey
from raylog.wire.internal.transactions import TransactionLogKey
from tests.worlds.coordination.steps import RecordedChange
from tests.worlds.runtime import FakeLink, FakeRequest, FakeRuntime

ROUTE = Route(TopicId(b"t" * 16), 0, 3, "replica", "replica", "/nowhere")
TIMEOUT_MS = 1_000


class World:
    """An appender, and a log that gives scripted answers to appends, in order."""

    def __init__(self, *answers: KafkaError | None) -> None:
        self.runtime = FakeRuntime()
        self.link = FakeLink()
        self.link.answering = self._answer
        self.answers = list(answers)
        self.events: list[object] = []
        """What was heard, in order."""
        self.appender = Appender(
            self.runtime,  # type: ignore[arg-type]  # a fake
            self.link,
            ROUTE,
            TIMEOUT_MS,
            self,
        )
        self.commits = 0

    def _answer(self, request: FakeRequest) -> list[tuple[Any, ...]]:
        assert request.header[0] == api.UNTIL_COMMITTED
        failure = self.answers.pop(0)
        return [(0, -1, 0) if failure is None else (int(failure.code), str(failure))]

    # ---- the owner -----------------------------------------------------------------------

    def append_committed(self) -> None:
        self.commits += 1

    def answer(self, answers: Sequence[Answer]) -> None:
        self.events += [one.response for one in answers]

    def refuse(self, answer: Answer, failure: KafkaError) -> None:
        self.hear(answer.response, failure)

    def append_reverted(self, records: list[LogRecord], failure: KafkaError) -> None:
        self.events.append([record.key.group for record in records])  # type: ignore[attr-defined]

    def append_lost(self, failure: Exception) -> None:
        self.events.append(failure)

    # ---- what is appended ----------------------------------------------------------------

    def batch(self, name: str) -> None:
        """Append a batch as it is, and wait for it."""
        self.appender.add_batch(
            bytearray(b"batch"),
            lambda failure: self.hear(name, failure),
            lambda _: self.events.append(f"{name} is late"),
        )
        self.appender.when_durable(lambda: self.events.append(f"behind {name}"))

    def records(self, name: str, *, undo: bool = False) -> None:
        """Append a record, and wait for it."""

        def replay(record: LogRecord) -> Change:
            return RecordedChange(name, self.events)

        step = Step(0, 0.0, MetadataImage(), Random(1), replay)
        step.append(OffsetCommitKey(group=name, topic="t", partition=0), None)
        if undo:
            step.if_refused(lambda: self.events.append(f"undo {name}"))
        self.appender.add(step)
        self.wait(name)

    def wait(self, name: str) -> None:
        """Have an answer wait for all that was added."""
        self.appender.answer_durably(Answer(1, name, durable=True))

    def hear(self, name: str, failure: KafkaError | None) -> None:
        self.events.append((name, None if failure is None else failure.code.name))


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_a_refused_batch_fails_alone() -> None:
    async def scenario() -> None:
        world = World(None, InvalidProducerEpoch("fenced"), None, None)
        world.records("first")
        world.batch("refused")
        world.batch("taken")
        world.records("last")
        await world.runtime.advance(1)
        assert world.events == [
            "commit first",
            "first",
            ("refused", "INVALID_PRODUCER_EPOCH"),
            "behind refused",
            ("taken", None),
            "behind taken",
            "commit last",
            "last",
        ]

    run(scenario)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refused_record_takes_along_what_was_decided_on_it_and_nothing_else(
    refusal: type[KafkaError],
) -> None:
    async def scenario() -> None:
        world = World(None, refusal("no"), None)
        world.records("first")
        await world.runtime.advance(0)
        world.link.answering = None
        world.records("refused", undo=True)
        world.wait("with it")
        await world.runtime.advance(0)
        world.records("behind")
        world.batch("transaction")
        world.wait("last")
        world.events.clear()
        world.link.answering = world._answer
        request = world.link.take()
        request.reply(world._answer(request))
        name = refusal.code.name
        assert world.events == [
            ("transaction", name),
            "revert behind",
            "undo refused",
            "revert refused",
            ("refused", name),
            ("with it", name),
            ("behind", name),
            ("last", name),
            ["refused", "behind"],
        ]
        world.events.clear()
        assert world.commits == 1
        world.records("next")
        await world.runtime.advance(1)
        assert world.events == ["commit next", "next"], "it goes on"
        assert world.commits == 2

    run(scenario)


def test_timed_out_waiters_are_answered_and_the_append_still_commits() -> None:
    async def scenario() -> None:
        world = World(None, None, None)
        world.link.answering = None
        world.records("slow")
        world.appender.when_durable(lambda: world.events.append("effect"))
        await world.runtime.advance(0)
        assert [world.appender.is_overdue] == [False]
        world.batch("queued")
        await world.runtime.advance(TIMEOUT_MS)
        assert world.events == [("slow", "REQUEST_TIMED_OUT"), "queued is late"]
        assert [world.appender.is_overdue] == [True]
        world.wait("comes later")
        assert world.events.pop() == ("comes later", "REQUEST_TIMED_OUT")
        world.events.clear()
        world.link.answering = world._answer
        world.link.take().reply([(0, -1, 0)])
        assert [world.appender.is_overdue] == [False]
        await world.runtime.advance(1)
        assert world.events == ["commit slow", "effect", ("queued", None), "behind queued"]

    run(scenario)


def test_queued_append_is_not_overdue_when_its_turn_comes() -> None:
    async def scenario() -> None:
        world = World()
        world.link.answering = None
        world.records("slow")
        await world.runtime.advance(0)
        world.records("queued")
        await world.runtime.advance(TIMEOUT_MS)
        world.link.take().reply([(0, -1, 0)])
        await world.runtime.advance(0)
        assert [world.appender.is_overdue] == [False]
        world.wait("new")
        await world.runtime.advance(TIMEOUT_MS)
        assert world.events[-1] == ("new", "REQUEST_TIMED_OUT")
        assert [world.appender.is_overdue] == [True]

    run(scenario)


def test_an_append_without_a_known_outcome_ends_the_appender() -> None:
    async def scenario() -> None:
        world = World(NotLeaderOrFollower("it leads no longer"))
        world.records("unknown")
        world.batch("behind it")
        await world.runtime.advance(10 * TIMEOUT_MS)
        (failure,) = world.events
        assert isinstance(failure, NotLeaderOrFollower)

    run(scenario)


def test_a_closed_appender_tells_nothing() -> None:
    async def scenario() -> None:
        world = World()
        world.link.answering = None
        world.batch("never")
        world.records("never")
        await world.runtime.advance(0)
        world.appender.close()
        world.link.take().reply([(0, -1, 0)])
        await world.runtime.advance(10 * TIMEOUT_MS)
        assert world.events == []

    run(scenario)


def test_records_of_many_bytes_are_several_appends() -> None:
    """A record may name a group by 32 KiB: a thousand of them are no batch for the event loop."""

    async def scenario() -> None:
        world = World(*[None] * 20)
        for _ in range(100):
            world.records("g" * 32_000)
        await world.runtime.advance(1)
        sizes = [len(request.payload) for request in world.link.requests]
        assert max(sizes) <= APPEND_BYTES_MAX + 33_000
        assert len(sizes) == 4

    run(scenario)


@pytest.mark.parametrize(
    ("alone", "expected"),
    [
        ("abcdefg", ["abc", "def", "g"]),
        ("abcefg", ["abcd", "efg"]),  # d belongs to c
        ("ag", ["abcdef", "g"]),
        ("", ["abcdefg"]),
    ],
)
def test_a_large_step_is_parted_where_a_record_stands_alone(
    monkeypatch: pytest.MonkeyPatch, alone: str, expected: list[str]
) -> None:
    """What was changed beside records is settled with the last of them."""
    monkeypatch.setattr(appending, "APPEND_RECORDS_MAX", 3)

    async def scenario() -> None:
        world = World()
        world.link.answering = None

        def replay(record: LogRecord) -> Change:
            return RecordedChange(record.key.group, world.events)  # type: ignore[attr-defined]

        step = Step(0, 0.0, MetadataImage(), Random(1), replay)
        for name in "abcdefg":
            commit = OffsetCommitKey(group=name, topic="t", partition=0)
            step.append(commit if name in alone else GroupMetadataKey(group=name), None)
        step.if_refused(lambda: world.events.append("undone"))
        world.appender.add(step)
        rounds = []
        for _ in expected:
            await world.runtime.advance(0)
            world.link.take().reply([(0, -1, 0)])
            rounds.append("".join(str(one).removeprefix("commit ") for one in world.events))
            world.events.clear()
        assert rounds == expected
        await world.runtime.advance(0)
        assert len(world.link.requests) == len(expected)

    run(scenario)


@pytest.mark.parametrize(
    ("kinds", "fits"), [("gg", True), ("ggg", False), ("gcg", True), ("cgg", False), ("ccc", True)]
)
def test_records_that_must_stay_together_have_a_limit(
    monkeypatch: pytest.MonkeyPatch, kinds: str, *, fits: bool
) -> None:
    """A batch of any size can be appended, but not always be loaded and cleaned."""
    monkeypatch.setattr(appending, "TOGETHER_BYTES_MAX", 2_500)

    async def scenario() -> None:
        world = World(None)
        step = Step(0, 0.0, MetadataImage(), Random(1), lambda _: NO_CHANGE)
        for kind in kinds:
            group = kind * 1_000
            commit = OffsetCommitKey(group=group, topic="t", partition=0)
            step.append(commit if kind == "c" else GroupMetadataKey(group=group), None)
        if fits:
            world.appender.add(step)
        else:
            with pytest.raises(EncodeError, match="bytes, at most 2500 are allowed"):
                world.appender.add(step)
        await world.runtime.advance(1)
        assert len(world.link.requests) == fits
        assert world.appender.is_idle

    run(scenario)


def test_transactions_of_one_step_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their markers are sent once the step is committed, and undone with it; only offsets part."""
    monkeypatch.setattr(appending, "APPEND_RECORDS_MAX", 2)
    monkeypatch.setattr(appending, "TOGETHER_BYTES_MAX", 2_500)

    async def scenario() -> None:
        world = World(None)
        step = Step(0, 0.0, MetadataImage(), Random(1), lambda _: NO_CHANGE)
        for name in "abcdefg":
            step.append(TransactionLogKey(transactional_id=name * 1_000), None)
            step.if_refused(lambda: None)
        world.appender.add(step)
        await world.runtime.advance(1)
        assert len(world.link.requests) == 1

    run(scenario)


def test_an_append_that_cannot_be_sent_ends_the_appender() -> None:
    async def scenario() -> None:
        world = World()

        def broken(*_: object) -> None:
            raise ValueError("a link that is broken")

        world.link.request = broken  # type: ignore[method-assign, assignment]  # a fake
        world.records("unknown")
        world.batch("behind it")
        await world.runtime.advance(10 * TIMEOUT_MS)
        (failure,) = world.events
        assert isinstance(failure, UnknownServerError)

    run(scenario)


@pytest.mark.parametrize(
    "answers", [[None, None], [InvalidProducerEpoch("no"), None], [NotLeaderOrFollower("no")]]
)
def test_settled_appends_leave_no_timer(answers: list[KafkaError | None]) -> None:
    async def scenario() -> None:
        world = World(*answers)
        world.records("first")
        world.batch("behind it")
        world.records("last")
        world.answers += [None]
        await world.runtime.advance(1)
        assert world.runtime.pending_timers() == 0

    run(scenario)


def test_time_limit_of_a_queued_append_starts_when_it_is_added() -> None:
    async def scenario() -> None:
        world = World()
        world.link.answering = None
        world.records("first")
        await world.runtime.advance(0)
        world.records("second")
        await world.runtime.advance(TIMEOUT_MS / 2)
        world.link.take().reply([(0, -1, 0)])
        await world.runtime.advance(TIMEOUT_MS / 2 - 1)
        assert world.events == ["commit first", "first"]
        await world.runtime.advance(1)
        assert world.events[2:] == [("second", "REQUEST_TIMED_OUT")]
        assert [world.appender.is_overdue] == [True]
        world.link.take().reply([(0, -1, 0)])
        assert world.runtime.pending_timers() == 0

    run(scenario)


def test_where_nothing_is_on_its_way_nobody_waits() -> None:
    async def scenario() -> None:
        world = World(None)
        idle = [world.appender.is_idle]
        world.appender.when_durable(lambda: world.events.append("effect"))
        world.appender.when_durable(None)
        assert world.events == ["effect"]
        world.records("record")
        idle.append(world.appender.is_idle)
        await world.runtime.advance(1)
        assert [*idle, world.appender.is_idle] == [True, False, True]

    run(scenario)


def test_answers_and_effects_come_in_the_order_in_which_they_were_asked_for() -> None:
    async def scenario() -> None:
        world = World(None)
        world.records("a")
        world.appender.when_durable(lambda: world.events.append("effect"))
        world.wait("b")
        world.appender.when_durable(None, lambda _: world.events.append("refused"))
        world.wait("c")
        await world.runtime.advance(1)
        assert world.events == ["commit a", "a", "effect", "b", "c"]

    run(scenario)


def test_waiters_of_a_refused_append_are_answered_in_order() -> None:
    async def scenario() -> None:
        world = World(REFUSALS[0]("no"))
        world.records("a")
        world.appender.when_durable(None, lambda _: world.events.append("effect refused"))
        world.appender.when_durable(lambda: world.events.append("effect"))
        world.wait("b")
        await world.runtime.advance(1)
        name = REFUSALS[0].code.name
        assert world.events == [
            "revert a",
            ("a", name),
            "effect refused",
            ("b", name),
            ["a"],
        ]

    run(scenario)


@pytest.mark.parametrize("end", ["taken", "refused", "closed"])
def test_queued_bytes_are_counted_until_they_leave_the_queue(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(appending, "QUEUED_BYTES_MAX", 10)

    async def scenario() -> None:
        world = World()
        world.link.answering = None
        world.records("g" * 100)
        assert [world.appender.is_full] == [True]
        await world.runtime.advance(0)
        assert [world.appender.is_full] == [False], "what is in flight is not queued"
        world.batch("1")
        assert [world.appender.is_full] == [False], "five bytes"
        world.batch("2")
        assert [world.appender.is_full] == [True], "the limit itself is full"
        if end == "closed":
            world.appender.close()
        else:
            refused = REFUSALS[0]("no")
            answer = (0, -1, 0) if end == "taken" else (int(refused.code), str(refused))
            world.link.take().reply([answer])
            await world.runtime.advance(0)
        assert [world.appender.is_full] == [False]

    run(scenario)
