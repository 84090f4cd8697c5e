"""Requests for ISR changes: each is answered, or repeated unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.controller.messages import IsrChange, IsrOutcome
from raylog.actors.replica.alter_partition import BACKOFF_MS, AlterPartitionManager
from raylog.actors.replica.rules.leading import Proposal
from raylog.actors.replica.rules.machine import IsrAltered, IsrRefused
from raylog.actors.runtime.base import PeerTimeout
from raylog.wire.errors import ErrorCode
from tests.worlds.decorators import in_loop
from tests.worlds.replica.fake_host import TOPIC_ID
from tests.worlds.runtime import FakeRuntime, settle

PROPOSAL = Proposal(3, 7, ((1, "a"),))
AGAIN = ErrorCode.NOT_CONTROLLER


class Leading:
    """A partition of which only the number and the answers matter."""

    def __init__(self, index: int) -> None:
        self.key = (TOPIC_ID, index)
        self.name = f"t-{index}"
        self.events: list[object] = []
        self.under_way = True
        self.machine = self.host = self.progress = self
        self.now_ms = 0

    def is_under_way(self, _proposal: Proposal) -> bool:
        return self.under_way

    def monotonic_ms(self) -> int:
        return self.now_ms

    def handle(self, event: object) -> None:
        self.under_way = False
        self.events.append(type(event))

    isr_altered = handle


class Controller(FakeRuntime):
    """A broker that forwards requests; each partition gets its scripted answer once."""

    def __init__(self, **outcomes: list[ErrorCode]) -> None:
        super().__init__()
        self.outcomes = {int(name[1:]): codes for name, codes in outcomes.items()}
        self.asked: list[list[int]] = []
        self.silent = 0

    async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
        assert method == "alter_partitions"
        changes: list[IsrChange] = args[0]
        self.asked.append([one.partition for one in changes])
        if self.silent:
            self.silent -= 1
            raise PeerTimeout("no answer")
        return [
            IsrOutcome(
                one.topic_id, one.partition, self.outcomes[one.partition].pop(0), None, 1, 3, 8, ()
            )
            for one in changes
        ]


def propose(runtime: Controller, count: int) -> list[Leading]:
    found = [Leading(index) for index in range(count)]
    made: Any = AlterPartitionManager(runtime, "cluster", 1)  # type: ignore[arg-type]  # a fake
    for one in found:
        made.propose(one, PROPOSAL)
    return found


@in_loop
async def test_each_partition_hears_its_own_outcome() -> None:
    """Also behind one that has to be asked for again, which comes alone the next time."""

    runtime = Controller(
        p0=[AGAIN, ErrorCode.NONE], p1=[ErrorCode.NONE], p2=[ErrorCode.INELIGIBLE_REPLICA]
    )
    first, second, third = propose(runtime, 3)
    await settle()
    assert (first.events, second.events, third.events) == ([], [IsrAltered], [IsrRefused])
    await runtime.advance(BACKOFF_MS - 1)
    assert runtime.asked == [[0, 1, 2]], "not at once"
    await runtime.advance(1)
    assert runtime.asked == [[0, 1, 2], [0]]
    assert first.events == [IsrAltered]


@in_loop
async def test_unanswered_proposal_is_sent_again() -> None:
    runtime = Controller(p0=[ErrorCode.NONE])
    runtime.silent = 2
    (one,) = propose(runtime, 1)
    for _ in range(2):
        await settle()
        await runtime.advance(BACKOFF_MS)
    assert (len(runtime.asked), one.events) == (3, [IsrAltered])


@in_loop
async def test_superseded_proposal_is_not_sent_again() -> None:
    runtime = Controller()
    runtime.silent = 1
    (one,) = propose(runtime, 1)
    one.under_way = False
    await runtime.advance(10 * BACKOFF_MS)
    assert len(runtime.asked) == 1


REFUSED = [
    ErrorCode.INELIGIBLE_REPLICA,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
]
SETTLED = [
    ErrorCode.NONE,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NEW_LEADER_ELECTED,
]


@pytest.mark.parametrize("code", [*REFUSED, *SETTLED])
@in_loop
async def test_an_outcome_that_will_be_no_other_is_not_asked_for_again(code: ErrorCode) -> None:
    runtime = Controller(p0=[code])
    (one,) = propose(runtime, 1)
    await runtime.advance(10 * BACKOFF_MS)
    assert one.events == [IsrRefused if code in REFUSED else IsrAltered]
    assert len(runtime.asked) == 1


@in_loop
async def test_proposals_that_come_later_are_sent_too() -> None:
    runtime = Controller(p0=[ErrorCode.NONE] * 2)
    made: Any = AlterPartitionManager(runtime, "cluster", 1)  # type: ignore[arg-type]  # a fake
    for _ in range(2):
        one = Leading(0)
        made.propose(one, PROPOSAL)
        await settle()
        assert one.events == [IsrAltered]
