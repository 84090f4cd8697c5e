"""A shard's shell when a step fails, cannot be written, or would never be repeated."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest

from raylog.actors.common_messages import Route, TopicId
from raylog.actors.coordination import appending, hosting
from raylog.actors.coordination.hosting import REPEAT_MS, RETRY_S, Host
from raylog.actors.coordination.lease import LeaseHolder
from raylog.actors.coordination.rules.step import Change, ClientCall, LogRecord, Step
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.runtime.base import PeerLost
from raylog.wire.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    NotLeaderOrFollower,
)
from raylog.wire.internal.offsets import OffsetCommitKey
from tests.worlds.coordination.steps import RecordedChange
from tests.worlds.runtime import FakeLink, FakeRuntime, FakeTimer, settle

ROUTE = Route(TopicId(b"t" * 16), 0, 3, "replica", "replica", "/nowhere")
TIMEOUT_MS = 60_000
UNWRITABLE = "x" * 40_000
"""A group id that fits into no record."""


class Machine:
    """A shard that writes what it is asked to write."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.at_start: list[str] = []
        self.when_reverted: list[str] = []

    def replay(self, record: LogRecord) -> Change:
        return RecordedChange(record.key.group[:10], self.events)  # type: ignore[attr-defined]

    def write(self, step: Step, *names: str) -> None:
        for name in names:
            step.append(OffsetCommitKey(group=name, topic="t", partition=0), None)

    def handle(self, step: Step, call: ClientCall[Any]) -> None:
        if isinstance(call.request, Exception):
            raise call.request
        self.write(step, *call.request)
        step.answer(call, "done")

    def loaded(self, step: Step) -> None:
        self.events.append("loaded")
        self.write(step, *self.at_start)

    def reverted(self, step: Step, records: Sequence[LogRecord], failure: KafkaError) -> None:
        self.events.append(f"reverted {failure.code.name}")
        names, self.when_reverted = self.when_reverted, []
        self.write(step, *names)


class OwnHost(Host[Machine, Step]):
    """The shell around it."""

    def __init__(self, runtime: FakeRuntime, link: FakeLink) -> None:
        self.events: list[str] = []
        self.read = 0
        super().__init__(
            runtime,  # type: ignore[arg-type]  # a fake
            link,
            ROUTE,
            MetadataImage(),
            LeaseHolder(runtime, "broker", MetadataImage()),  # type: ignore[arg-type]  # a fake
            TIMEOUT_MS,
        )

    def __str__(self) -> str:
        return "shard"

    def _new_shard(self) -> Machine:
        return Machine(self.events)

    def _new_step(self, shard: Machine) -> Step:
        return Step(0, 0.0, self._image, Random(1), shard.replay)

    async def _read(self, shard: Machine) -> int:
        self.read += 1
        return 0

    def _failed(self, call: ClientCall[Any], failure: KafkaError) -> Any:
        return failure.code.name


class World:
    """A shell whose log gives these answers in order; further appends stay unanswered."""

    def __init__(self, *answers: KafkaError | None) -> None:
        self.runtime, self.link = FakeRuntime(), FakeLink()
        self.answers = list(answers)
        self.host = OwnHost(self.runtime, self.link)
        self.replies: list[Any] = []

    @property
    def events(self) -> list[str]:
        return self.host.events

    def ask(self, *names: str, failure: Exception | None = None) -> None:
        request: Any = names if failure is None else failure
        self.host.ask(ClientCall(0, request, 0, "", ""), self.replies.append)

    async def answer(self) -> None:
        """Let the log answer what it was sent."""
        await self.runtime.advance(0)
        while self.answers and any(one.open for one in self.link.requests):
            failure = self.answers.pop(0)
            header = (0, -1, 0) if failure is None else (int(failure.code), str(failure))
            self.link.take().reply([header])
            await self.runtime.advance(0)

    async def answer_one(self) -> None:
        """Let the log answer the oldest append alone."""
        later, self.answers = self.answers[1:], self.answers[:1]
        await self.answer()
        self.answers = later


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_a_step_that_cannot_be_written_is_undone_from_its_end() -> None:
    async def scenario() -> None:
        world = World()
        await settle()
        world.events.clear()
        world.ask("first", "second", UNWRITABLE)
        assert world.events == [
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


def test_internal_event_is_retried_with_backoff_until_the_log_accepts_it() -> None:
    async def scenario() -> None:
        refusals = [MessageTooLarge("no")] * 5
        world = World(*refusals, None)
        world.host._new_shard = lambda: _writing(world.events)  # type: ignore[method-assign]
        await settle()
        first_ms, longest_ms = REPEAT_MS
        for delay_ms in [first_ms, 2 * first_ms, 4 * first_ms, 8 * first_ms, longest_ms]:
            await world.answer()
            assert world.events.count("loaded") == 1
            world.events.clear()
            await world.runtime.advance(delay_ms - 1)
            assert "loaded" not in world.events
            await world.runtime.advance(1)
        await world.answer()
        assert world.events[-1] == "commit begun"
        world.events.clear()
        await world.runtime.advance(10 * longest_ms)
        assert world.events == []

    run(scenario)


def _writing(events: list[str]) -> Machine:
    made = Machine(events)
    made.at_start = ["begun"]
    return made


def test_after_the_log_has_taken_records_a_refusal_is_the_first_one_again() -> None:
    async def scenario() -> None:
        refusal = MessageTooLarge("no")
        world = World(refusal, refusal, None, refusal, None)
        world.host._new_shard = lambda: _writing(world.events)  # type: ignore[method-assign]
        await settle()
        first_ms, _ = REPEAT_MS
        for delay_ms in [first_ms, 2 * first_ms]:
            await world.answer_one()
            await world.runtime.advance(delay_ms)
        await world.answer_one()
        assert world.events[-1] == "commit begun"
        world.host._insist(lambda step: world.host.shard.write(step, "later"))
        await world.answer_one()
        world.events.clear()
        await world.runtime.advance(first_ms)
        await world.answer_one()
        assert world.events == ["commit later"]

    run(scenario)


def test_internal_event_whose_records_cannot_be_encoded_is_retried() -> None:
    """What was in its way may be over: nobody else brings it."""

    async def scenario() -> None:
        world = World(None)
        await settle()
        names = [UNWRITABLE]
        world.host._insist(lambda step: world.host.shard.write(step, *names))
        assert world.events[-1] == "reverted UNKNOWN_SERVER_ERROR"
        names[:] = ["later"]
        await world.runtime.advance(2 * REPEAT_MS[0])
        await world.answer()
        assert world.events[-1] == "commit later"

    run(scenario)


@pytest.mark.parametrize("end", ["loaded again", "being loaded again", "closed"])
def test_pending_retry_ends_with_its_shard(end: str) -> None:
    """A shard that is loaded again finds in the log what there is to do, and does that once."""

    async def scenario() -> None:
        world = World(MessageTooLarge("no"))
        await settle()
        befell: list[Machine] = []

        def event(step: Step) -> None:
            befell.append(world.host.shard)
            world.host.shard.write(step, "befell")

        world.host._insist(event)
        await world.answer()
        assert len(befell) == 1
        loading = asyncio.get_running_loop().create_future()
        if end == "closed":
            world.host.close("it has moved")
        else:
            if end == "being loaded again":
                world.host._read = lambda _: loading  # type: ignore[method-assign,assignment,return-value]
            world.ask(failure=ValueError("nobody foresaw it"))
        await world.runtime.advance(10 * REPEAT_MS[1])
        assert len(befell) == 1
        assert world.host.is_active == (end == "loaded again")
        loading.cancel()
        world.host.close("the end")
        await settle()

    run(scenario)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_load_that_fails_is_tried_again_while_its_link_is_open(is_open: bool) -> None:
    """Where the link is closed, the shard that a new route brings takes its place."""

    async def scenario() -> None:
        world = World()
        times_ms: list[float] = []

        async def failing(_: Machine) -> int:
            times_ms.append(world.runtime.monotonic_ms())
            raise PeerLost("nobody is there")

        world.host._read = failing  # type: ignore[assignment,method-assign]
        world.link.is_open = is_open
        await world.runtime.advance(20_000)
        waits_s = [(b - a) / 1000 for a, b in itertools.pairwise(times_ms)]
        first_s, longest_s = RETRY_S
        expected = [first_s, 2 * first_s, 4 * first_s, 8 * first_s, 16 * first_s, 32 * first_s]
        assert waits_s[:7] == pytest.approx([*expected, longest_s] if is_open else [])
        assert not world.host.is_active
        world.host.close("the end")
        await world.runtime.advance(20_000)
        assert len(times_ms) == len(waits_s) + 1

    run(scenario)


def test_close_answers_waiting_and_later_requests_exactly_once() -> None:
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


def test_a_shard_that_is_left_while_it_is_loaded_never_answers() -> None:
    async def scenario() -> None:
        world = World()
        loading = asyncio.get_running_loop().create_future()

        async def slowly(_: Machine) -> int:
            await loading
            return 0

        world.host._read = slowly  # type: ignore[assignment,method-assign]  # a log that takes its time
        await settle()
        world.host.close("it has moved")
        if not loading.done():
            loading.set_result(None)
        await settle()
        assert not world.host.is_active
        assert world.events == []
        world.ask("late")
        assert world.replies == [NotCoordinator.code.name]

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


@pytest.mark.parametrize("needs_log", [True, False])
def test_while_too_much_is_queued_only_who_needs_no_log_is_let_in(
    monkeypatch: pytest.MonkeyPatch, *, needs_log: bool
) -> None:
    monkeypatch.setattr(appending, "QUEUED_BYTES_MAX", 1)

    async def scenario() -> None:
        world = World(None, None)
        world.host._needs_log = lambda call: needs_log  # type: ignore[method-assign]
        await settle()
        world.ask("first")
        world.ask("other")
        expected = [CoordinatorNotAvailable.code.name] if needs_log else []
        assert world.replies == expected
        await world.answer()
        assert world.replies == [*expected, *["done"] * (2 - needs_log)]
        world.answers = [None]
        world.ask("next")
        await world.answer()
        assert world.replies[-1] == "done"

    run(scenario)


@pytest.mark.parametrize(("at_once", "turns"), [(1, [1, 2, 3, 4]), (2, [2, 4]), (4, [4])])
def test_many_answers_are_given_in_turns(
    monkeypatch: pytest.MonkeyPatch, at_once: int, turns: list[int]
) -> None:
    monkeypatch.setattr(hosting, "ANSWERED_AT_ONCE", at_once)

    async def scenario() -> None:
        world = World()
        await settle()
        for name in "abcd":
            world.ask(name)
        await world.runtime.advance(0)
        seen: list[int] = []
        call_later = world.runtime.call_later

        def recording(delay_ms: float, callback: Callable[[], None]) -> FakeTimer:
            def turn() -> None:
                callback()
                seen.append(len(world.replies))

            return call_later(delay_ms, turn)

        world.runtime.call_later = recording  # type: ignore[method-assign]
        world.link.take().reply([(0, -1, 0)])
        seen.append(len(world.replies))
        await world.runtime.advance(0)
        assert sorted({*seen} - {0}) == turns
        assert world.replies == ["done"] * 4

    run(scenario)


def test_request_that_failed_while_queued_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "ANSWERED_AT_ONCE", 1)

    async def scenario() -> None:
        world = World()
        await settle()
        for name in "abc":
            world.ask(name)
        await world.runtime.advance(0)
        world.link.take().reply([(0, -1, 0)])
        world.host.close("it has moved")
        await world.runtime.advance(1)
        assert world.replies == [NotCoordinator.code.name] * 3

    run(scenario)


def test_a_load_is_put_off_the_longer_the_more_appends_have_failed() -> None:
    """What fails is what a load appends, as on a full disk."""

    async def scenario() -> None:
        world = World()
        world.host._new_shard = lambda: _writing(world.events)  # type: ignore[method-assign]
        await settle()
        first_s, longest_s = RETRY_S
        lost = NotLeaderOrFollower("unknown")
        for failures in range(1, 9):
            read = world.host.read
            assert world.host.is_active
            world.answers = [lost]
            await world.answer_one()
            wait_ms = 1_000 * min(first_s * 2**failures, longest_s) if failures > 1 else 0
            if wait_ms:
                await world.runtime.advance(wait_ms - 1)
                assert (world.host.is_active, world.host.read) == (False, read)
                await world.runtime.advance(1)
            await settle()
            assert world.host.read == read + 1
        world.host.close("the end")

    run(scenario)
