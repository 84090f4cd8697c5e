"""What becomes of batches and records, and of who waits for them, whatever the log answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest

from raylog.actors.coordination import appending
from raylog.actors.coordination.appending import APPEND_BYTES_MAX, REFUSALS, Appender
from raylog.actors.coordination.step import Answer, Change, LogRecord, Step
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.ports import Route, TopicId
from raylog.actors.replica import api
from raylog.wire.errors import (
    InvalidProducerEpoch,
    KafkaError,
    NotLeaderOrFollower,
    UnknownServerError,
)
from raylog.wire.internal.offsets import OffsetCommitKey
from tests.support.gateway_world import FakeLink, FakeRequest, FakeRuntime

ROUTE = Route(TopicId(b"t" * 16), 0, 3, "replica", "replica", "/nowhere")
TIMEOUT_MS = 1_000


class Noted:
    """A change that tells what becomes of it."""

    def __init__(self, name: str, told: list[object]) -> None:
        self.name, self.told = name, told

    def commit(self) -> None:
        self.told.append(f"commit {self.name}")

    def revert(self) -> None:
        self.told.append(f"revert {self.name}")


class World:
    """An appender and a log that answers appends as told, in order."""

    def __init__(self, *answers: KafkaError | None) -> None:
        self.runtime = FakeRuntime()
        self.link = FakeLink()
        self.link.answering = self._answer
        self.answers = list(answers)
        self.told: list[object] = []
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
        self.told += [one.response for one in answers]

    def refuse(self, answer: Answer, failure: KafkaError) -> None:
        self.hear(answer.response, failure)

    def append_reverted(self, records: list[LogRecord], failure: KafkaError) -> None:
        self.told.append([record.key.group for record in records])  # type: ignore[attr-defined]

    def append_lost(self, failure: Exception) -> None:
        self.told.append(failure)

    # ---- what is appended ----------------------------------------------------------------

    def batch(self, name: str) -> None:
        """Append a batch as it is, and wait for it."""
        self.appender.add_batch(
            bytearray(b"batch"),
            lambda failure: self.hear(name, failure),
            lambda _: self.told.append(f"{name} is late"),
        )
        self.appender.when_durable(lambda: self.told.append(f"behind {name}"))

    def records(self, name: str, *, undo: bool = False) -> None:
        """Append a record, and wait for it."""

        def replay(record: LogRecord) -> Change:
            return Noted(name, self.told)

        step = Step(0, 0.0, MetadataImage(), Random(1), replay)
        step.append(OffsetCommitKey(group=name, topic="t", partition=0), None)
        if undo:
            step.if_refused(lambda: self.told.append(f"undo {name}"))
        self.appender.add(step)
        self.wait(name)

    def wait(self, name: str) -> None:
        """Have an answer wait for all that was added."""
        self.appender.answer_durably(Answer(1, name, durable=True))

    def hear(self, name: str, failure: KafkaError | None) -> None:
        self.told.append((name, None if failure is None else failure.code.name))


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
        assert world.told == [
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
        world.told.clear()
        world.link.answering = world._answer
        request = world.link.take()
        request.reply(world._answer(request))
        name = refusal.code.name
        assert world.told == [
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
        world.told.clear()
        assert world.commits == 1
        world.records("next")
        await world.runtime.advance(1)
        assert world.told == ["commit next", "next"], "it goes on"
        assert world.commits == 2

    run(scenario)


def test_who_waits_for_too_long_is_told_and_the_append_counts_all_the_same() -> None:
    async def scenario() -> None:
        world = World(None, None, None)
        world.link.answering = None
        world.records("slow")
        world.appender.when_durable(lambda: world.told.append("effect"))
        await world.runtime.advance(0)
        assert [world.appender.is_overdue] == [False]
        world.batch("queued")
        await world.runtime.advance(TIMEOUT_MS)
        assert world.told == [("slow", "REQUEST_TIMED_OUT"), "queued is late"]
        assert [world.appender.is_overdue] == [True]
        world.wait("comes later")
        assert world.told.pop() == ("comes later", "REQUEST_TIMED_OUT")
        world.told.clear()
        world.link.answering = world._answer
        world.link.take().reply([(0, -1, 0)])
        assert [world.appender.is_overdue] == [False]
        await world.runtime.advance(1)
        assert world.told == ["commit slow", "effect", ("queued", None), "behind queued"]

    run(scenario)


def test_what_was_kept_waiting_is_not_overdue_when_its_turn_comes() -> None:
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
        assert world.told[-1] == ("new", "REQUEST_TIMED_OUT")
        assert [world.appender.is_overdue] == [True]

    run(scenario)


def test_an_append_without_a_known_outcome_ends_the_appender() -> None:
    async def scenario() -> None:
        world = World(NotLeaderOrFollower("it leads no longer"))
        world.records("unknown")
        world.batch("behind it")
        await world.runtime.advance(10 * TIMEOUT_MS)
        (failure,) = world.told
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
        assert world.told == []

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
            return Noted(record.key.group, world.told)  # type: ignore[attr-defined]

        step = Step(0, 0.0, MetadataImage(), Random(1), replay)
        for name in "abcdefg":
            step.append(OffsetCommitKey(group=name, topic="t", partition=0), None)
        step.if_refused(lambda: world.told.append("undone"))
        world.appender.add(step, lambda record: record.key.group in alone)  # type: ignore[attr-defined]
        told = []
        for _ in expected:
            await world.runtime.advance(0)
            world.link.take().reply([(0, -1, 0)])
            told.append("".join(str(one).removeprefix("commit ") for one in world.told))
            world.told.clear()
        assert told == expected
        await world.runtime.advance(0)
        assert len(world.link.requests) == len(expected)

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
        (failure,) = world.told
        assert isinstance(failure, UnknownServerError)

    run(scenario)


@pytest.mark.parametrize(
    "answers", [[None, None], [InvalidProducerEpoch("no"), None], [NotLeaderOrFollower("no")]]
)
def test_what_is_settled_is_not_waited_for_any_longer(answers: list[KafkaError | None]) -> None:
    async def scenario() -> None:
        world = World(*answers)
        world.records("first")
        world.batch("behind it")
        world.records("last")
        world.answers += [None]
        await world.runtime.advance(1)
        assert world.runtime.pending_timers() == 0

    run(scenario)


def test_what_waits_in_the_queue_has_its_time_limit_from_when_it_was_added() -> None:
    async def scenario() -> None:
        world = World()
        world.link.answering = None
        world.records("first")
        await world.runtime.advance(0)
        world.records("second")
        await world.runtime.advance(TIMEOUT_MS / 2)
        world.link.take().reply([(0, -1, 0)])
        await world.runtime.advance(TIMEOUT_MS / 2 - 1)
        assert world.told == ["commit first", "first"]
        await world.runtime.advance(1)
        assert world.told[2:] == [("second", "REQUEST_TIMED_OUT")]
        assert [world.appender.is_overdue] == [True]
        world.link.take().reply([(0, -1, 0)])
        assert world.runtime.pending_timers() == 0

    run(scenario)


def test_where_nothing_is_on_its_way_nobody_waits() -> None:
    async def scenario() -> None:
        world = World(None)
        world.wait("at once")
        world.appender.when_durable(lambda: world.told.append("effect"))
        world.appender.when_durable(None)
        assert world.told == ["at once", "effect"]
        world.records("record")
        await world.runtime.advance(1)
        world.told.clear()
        world.wait("again")
        assert world.told == ["again"]

    run(scenario)


def test_answers_and_effects_come_in_the_order_in_which_they_were_asked_for() -> None:
    async def scenario() -> None:
        world = World(None)
        world.records("a")
        world.appender.when_durable(lambda: world.told.append("effect"))
        world.wait("b")
        world.appender.when_durable(None, lambda _: world.told.append("refused"))
        world.wait("c")
        await world.runtime.advance(1)
        assert world.told == ["commit a", "a", "effect", "b", "c"]

    run(scenario)


def test_who_waits_for_a_refused_append_alone_is_told_in_order() -> None:
    async def scenario() -> None:
        world = World(REFUSALS[0]("no"))
        world.records("a")
        world.appender.when_durable(None, lambda _: world.told.append("effect refused"))
        world.appender.when_durable(lambda: world.told.append("effect"))
        world.wait("b")
        await world.runtime.advance(1)
        name = REFUSALS[0].code.name
        assert world.told == [
            "revert a",
            ("a", name),
            "effect refused",
            ("b", name),
            ["a"],
        ]

    run(scenario)


@pytest.mark.parametrize("end", ["taken", "refused", "closed"])
def test_what_is_queued_is_counted_until_it_leaves(
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
