"""What a shard's shell does where a step breaks, cannot be written, or nobody brings it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest

from raylog.actors.coordination.hosting import REPEAT_MS, Host
from raylog.actors.coordination.step import Asked, Change, LogRecord, Step
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.ports import Route, TopicId
from raylog.wire.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
)
from raylog.wire.internal.offsets import OffsetCommitKey
from tests.support.gateway_world import FakeLink, FakeRuntime, settle

ROUTE = Route(TopicId(b"t" * 16), 0, 3, "replica", "replica", "/nowhere")
TIMEOUT_MS = 60_000
UNWRITABLE = "x" * 40_000
"""A group id that fits into no record."""


class Noted:
    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self.told = name, told

    def commit(self) -> None:
        self.told.append(f"commit {self.name}")

    def revert(self) -> None:
        self.told.append(f"revert {self.name}")


class Machine:
    """A shard that writes what it is asked to write."""

    def __init__(self, told: list[str]) -> None:
        self.told = told
        self.at_start: list[str] = []
        self.when_reverted: list[str] = []

    def replay(self, record: LogRecord) -> Change:
        return Noted(record.key.group[:10], self.told)  # type: ignore[attr-defined]

    def write(self, step: Step, *names: str) -> None:
        for name in names:
            step.append(OffsetCommitKey(group=name, topic="t", partition=0), None)

    def handle(self, step: Step, asked: Asked[Any]) -> None:
        if isinstance(asked.request, Exception):
            raise asked.request
        self.write(step, *asked.request)
        step.answer(asked, "done")

    def loaded(self, step: Step) -> None:
        self.told.append("loaded")
        self.write(step, *self.at_start)

    def reverted(self, step: Step, records: Sequence[LogRecord], failure: KafkaError) -> None:
        self.told.append(f"reverted {failure.code.name}")
        names, self.when_reverted = self.when_reverted, []
        self.write(step, *names)


class OwnHost(Host[Machine, Step]):
    """The shell around it."""

    def __init__(self, runtime: FakeRuntime, link: FakeLink) -> None:
        self.told: list[str] = []
        self.read = 0
        super().__init__(
            runtime,  # type: ignore[arg-type]  # a fake
            link,
            ROUTE,
            MetadataImage(),
            TIMEOUT_MS,
        )

    def __str__(self) -> str:
        return "shard"

    def _new_shard(self) -> Machine:
        return Machine(self.told)

    def _new_step(self, shard: Machine) -> Step:
        return Step(0, 0.0, self._image, Random(1), shard.replay)

    async def _read(self, shard: Machine) -> int:
        self.read += 1
        return 0

    def _failed(self, asked: Asked[Any], failure: KafkaError) -> Any:
        return failure.code.name


class World:
    """A shell whose log answers as told, in order; what is left over is not answered yet."""

    def __init__(self, *answers: KafkaError | None) -> None:
        self.runtime, self.link = FakeRuntime(), FakeLink()
        self.answers = list(answers)
        self.host = OwnHost(self.runtime, self.link)
        self.replies: list[Any] = []

    @property
    def told(self) -> list[str]:
        return self.host.told

    def ask(self, *names: str, failure: Exception | None = None) -> None:
        request: Any = names if failure is None else failure
        self.host.ask(Asked(0, request, 0, "", ""), self.replies.append)

    async def answer(self) -> None:
        """Let the log answer what it was sent."""
        await self.runtime.advance(0)
        while self.answers and any(one.open for one in self.link.requests):
            failure = self.answers.pop(0)
            told = (0, -1, 0) if failure is None else (int(failure.code), str(failure))
            self.link.take().reply([told])
            await self.runtime.advance(0)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_a_step_that_cannot_be_written_is_undone_from_its_end() -> None:
    async def scenario() -> None:
        world = World()
        await settle()
        world.told.clear()
        world.ask("first", "second", UNWRITABLE)
        assert world.told == [
            f"revert {UNWRITABLE[:10]}",
            "revert second",
            "revert first",
            "reverted UNKNOWN_SERVER_ERROR",
        ]
        assert world.replies == ["UNKNOWN_SERVER_ERROR"]
        assert world.host.is_active
        await world.runtime.advance(0)
        assert not world.link.requests, "nothing of it goes to the log"

    run(scenario)


def test_a_shard_that_cannot_be_put_right_is_loaded_again() -> None:
    async def scenario() -> None:
        world = World()
        await settle()
        world.host.shard.when_reverted = [UNWRITABLE]
        world.ask(UNWRITABLE)
        assert not world.host.is_active
        world.ask("early")
        assert world.replies == ["UNKNOWN_SERVER_ERROR", "COORDINATOR_LOAD_IN_PROGRESS"]
        await world.runtime.advance(1_000)  # what fails again would fail at once
        assert (world.host.is_active, world.host.read) == (True, 2)

    run(scenario)


def test_a_step_that_breaks_has_the_shard_loaded_again_and_fails_all_who_wait() -> None:
    async def scenario() -> None:
        world = World()
        await settle()
        world.ask("waits")
        world.ask(failure=ValueError("nobody foresaw it"))
        assert world.replies == ["UNKNOWN_SERVER_ERROR"] * 2
        await settle()
        assert (world.host.is_active, world.host.read) == (True, 2)

    run(scenario)


def test_a_broken_invariant_is_no_answer() -> None:
    async def scenario() -> None:
        world = World()
        await settle()
        with pytest.raises(AssertionError):
            world.ask(failure=AssertionError("ours"))

    run(scenario)


def test_what_nobody_brings_again_is_repeated_ever_more_slowly_until_the_log_takes_it() -> None:
    async def scenario() -> None:
        refusals = [MessageTooLarge("no")] * 5
        world = World(*refusals, None)
        world.host._new_shard = lambda: _writing(world.told)  # type: ignore[method-assign]
        await settle()
        first_ms, longest_ms = REPEAT_MS
        for delay_ms in [first_ms, 2 * first_ms, 4 * first_ms, 8 * first_ms, longest_ms]:
            await world.answer()
            assert world.told.count("loaded") == 1
            world.told.clear()
            await world.runtime.advance(delay_ms - 1)
            assert "loaded" not in world.told
            await world.runtime.advance(1)
        await world.answer()
        assert world.told[-1] == "commit begun"
        world.told.clear()
        await world.runtime.advance(10 * longest_ms)
        assert world.told == []

    run(scenario)


def _writing(told: list[str]) -> Machine:
    made = Machine(told)
    made.at_start = ["begun"]
    return made


def test_who_waits_at_the_end_is_told_and_nobody_later() -> None:
    async def scenario() -> None:
        world = World(None)
        await settle()
        world.ask("waits")
        world.host.close("it has moved")
        assert world.replies == [NotCoordinator.code.name]
        world.ask("late")
        assert world.replies == [NotCoordinator.code.name] * 2
        await world.answer()
        await world.runtime.advance(2 * TIMEOUT_MS)
        assert len(world.replies) == 2

    run(scenario)


def test_while_the_log_is_overdue_nobody_else_is_let_in() -> None:
    async def scenario() -> None:
        world = World()
        await settle()
        world.ask("slow")
        await world.runtime.advance(TIMEOUT_MS + 1)
        world.ask("other")
        assert world.replies[-1] == CoordinatorNotAvailable.code.name
        world.answers = [None]
        await world.answer()
        world.answers = [None]
        world.ask("next")
        await world.answer()
        assert world.replies[-1] == "done"

    run(scenario)
