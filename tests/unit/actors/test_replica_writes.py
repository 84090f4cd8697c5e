"""A produce request for several partitions is answered once, late or not."""

from __future__ import annotations

from typing import Any

from raylog.actors.replica.messages import ProduceAnswer, produced
from raylog.actors.replica.writes import Write, Writes
from raylog.actors.runtime.deadlines import TICK_MS, Deadlines
from raylog.wire.errors import ErrorCode, InvalidRecord, KafkaError, RequestTimedOut
from raylog.wire.records import NO_SEQUENCE
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run

WHERE = ProduceAnswer(7, -1, 0)


class Asked:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def reply(self, answer: Any) -> None:
        self.answers.append([error(outcome) or produced(outcome) for outcome in answer])


def error(outcome: Any) -> ErrorCode | None:
    try:
        produced(outcome)
    except KafkaError as failure:
        return failure.code
    return None


def writes(count: int) -> tuple[Asked, Writes, list[Write]]:
    asked = Asked()
    all_of_it = Writes(asked, count)
    return (
        asked,
        all_of_it,
        [Write(all_of_it, at, memoryview(b""), NO_SEQUENCE) for at in range(count)],
    )


def test_the_last_outcome_answers_for_all() -> None:
    asked, _, (first, second) = writes(2)
    second.fail(InvalidRecord("no"))
    assert asked.answers == []
    first.reply(WHERE)
    assert asked.answers == [[WHERE, ErrorCode.INVALID_RECORD]]


@in_world(run)
async def test_write_not_replicated_in_time_is_timed_out(world: World) -> None:
    asked, all_of_it, (first, second) = writes(2)
    first.reply(WHERE)
    all_of_it.limit(Deadlines(world.runtime), 500)  # type: ignore[arg-type]  # a fake
    await world.runtime.advance(499)
    assert asked.answers == []
    await world.runtime.advance(2 * TICK_MS)
    assert asked.answers == [[WHERE, RequestTimedOut.code]]
    second.reply(WHERE)
    assert len(asked.answers) == 1, "who came later interests nobody"
    assert world.runtime.pending_timers() == 0


@in_world(run)
async def test_an_answered_request_has_no_deadline(world: World) -> None:
    deadlines = Deadlines(world.runtime)  # type: ignore[arg-type]  # a fake
    _, settled, (only,) = writes(1)
    only.reply(WHERE)
    settled.limit(deadlines, 500)
    assert world.runtime.pending_timers() == 0
    asked, waiting, (late,) = writes(1)
    waiting.limit(deadlines, 500)
    late.reply(WHERE)
    await world.runtime.advance(5_000)
    assert asked.answers == [[WHERE]]
