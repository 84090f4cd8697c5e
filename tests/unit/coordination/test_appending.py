"""Batches that a log may refuse for themselves, among records that all stand or fall together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from raylog.actors.coordination.appending import Appender
from raylog.actors.coordination.step import LogRecord
from raylog.actors.ports import Route, TopicId
from raylog.wire.errors import (
    InvalidProducerEpoch,
    KafkaError,
    NotEnoughReplicas,
)
from raylog.wire.internal.offsets import OffsetCommitKey
from tests.support.gateway_world import FakeLink, FakeRequest, FakeRuntime, settle

TOMBSTONE = LogRecord(OffsetCommitKey(group="g", topic="t", partition=0), None)
ROUTE = Route(TopicId(b"t" * 16), 0, 3, "replica", "replica", "/nowhere")
TIMEOUT_MS = 1_000


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
            lambda failure: self.told.append(failure),
        )

    def _answer(self, _request: FakeRequest) -> list[tuple[Any, ...]]:
        failure = self.answers.pop(0)
        return [(0, -1, 0) if failure is None else (int(failure.code), str(failure))]

    def batch(self, name: str) -> None:
        """Append a batch as it is, and wait for it."""
        self.appender.add_batch(bytearray(b"batch"), lambda failure: self.hear(name, failure))
        self.appender.when_durable(lambda: self.told.append(f"behind {name}"))

    def records(self, name: str) -> None:
        """Append a record, and wait for it."""
        self.appender.add([TOMBSTONE])
        self.appender.when_durable(lambda: self.told.append(name))

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
            "first",
            ("refused", "INVALID_PRODUCER_EPOCH"),
            "behind refused",
            ("taken", None),
            "behind taken",
            "last",
        ]

    run(scenario)


def test_what_may_be_in_the_log_all_the_same_ends_the_appender() -> None:
    async def scenario() -> None:
        world = World(NotEnoughReplicas("too few"))
        world.batch("unknown")
        world.records("behind it")
        await world.runtime.advance(10 * TIMEOUT_MS)
        (failure,) = world.told
        assert isinstance(failure, NotEnoughReplicas)

    run(scenario)


def test_records_that_are_refused_end_it_too() -> None:
    """Of them the shard believes that they are there."""

    async def scenario() -> None:
        world = World(InvalidProducerEpoch("strange"))
        world.records("refused")
        await world.runtime.advance(1)
        await settle()
        (failure,) = world.told
        assert isinstance(failure, InvalidProducerEpoch)

    run(scenario)


def test_a_closed_appender_tells_nothing() -> None:
    async def scenario() -> None:
        world = World()
        world.link.answering = None
        world.batch("never")
        await world.runtime.advance(0)
        world.appender.close()
        world.link.take().reply([(0, -1, 0)])
        await world.runtime.advance(10 * TIMEOUT_MS)
        assert world.told == []

    run(scenario)
