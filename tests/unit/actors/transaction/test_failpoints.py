"""A coordinator killed between any two durable steps: its successor gives the same outcome.

Clients retry requests that got no answer. Every partition then has the outcome that the client was
told, and no other; epochs never go back.
"""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.coordination.rules.failpoints import Failpoints
from raylog.actors.transaction.messages import AddPartitions, TopicPartitions
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tests.worlds.transaction.actor import TransactionActorWorld, run
from tests.worlds.transaction.shard import (
    FIRST,
    INIT_VERSION,
    SECOND,
    add_first,
    end,
    init,
    offsets,
)

EVERYWHERE = [TopicPartitions("t", [0, 1]), TopicPartitions("u", [0])]
PARTITIONS = 4
"""With that of the offsets."""
COMMON = [
    "loading",
    "loaded",
    "CoordinatorEpoch.decided",
    "CoordinatorEpoch.durable",
    "Empty.decided",
    "Empty.durable",
    "Ongoing.decided",
    "Ongoing.durable",
    "markers.sending",
    "markers.sent",
    "markers.answered",
    "markers.written",
]
COMMIT = [
    f"{state}.{when}"
    for state in ("PrepareCommit", "CompleteCommit")
    for when in ("decided", "durable")
]
ABORT = [
    f"{state}.{when}"
    for state in ("PrepareAbort", "CompleteAbort")
    for when in ("decided", "durable")
]
RETRIED = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
TRIES = 100
Scenario = Callable[["Client"], Coroutine[Any, Any, None]]


class Client:
    """A producer that retries until it is answered, and restarts coordinators."""

    def __init__(self, world: TransactionActorWorld, at: str, nth: int, version: int) -> None:
        self.world = world
        self.version = version
        self.kills = 0
        self._at = at
        self._left = nth

    async def begin(self) -> None:
        """The first coordinator, which dies when it comes to the place for the nth time."""
        await self.world.start()
        self.world.actor.failpoints.set(self._at, self._reached)
        await self.world.route()
        await self.revive()

    def _reached(self) -> None:
        self._left -= 1
        if not self._left:
            self.kills += 1
            self.world.process.die()

    async def revive(self) -> None:
        """Another coordinator, if the last is dead."""
        if self.world.process.killed:
            await self.world.begin()

    async def pass_ms(self, duration_ms: float) -> None:
        """Time goes on."""
        await self.world.world.advance(duration_ms)
        await self.revive()
        await self.world.world.advance(10)

    async def insist(self, ask: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Ask until there is an answer that is none to be repeated."""
        for _ in range(TRIES):
            answer = await ask()
            if answer is not None and code_of(answer) not in RETRIED:
                return answer
            await self.pass_ms(20)
        raise AssertionError("nobody answers")

    async def start(self) -> tuple[int, int]:
        """InitProducerId."""
        answer = await self.insist(lambda: self.world.ask(init(), INIT_VERSION))
        assert not answer.error_code
        return answer.producer_id, answer.producer_epoch

    async def add(self, holder: tuple[int, int]) -> None:
        """All partitions and the offsets."""
        if self.version < SECOND:
            request = add_first(*holder, 0, 1)
            await self.insist(lambda: self.world.ask(request, 3))
        asked = AddPartitions("x", *holder, verify_only=False, topics=EVERYWHERE)
        assert await self.insist(lambda: self.world.ask_add(asked)) == [0, 0, 0]
        answer = await self.insist(lambda: self.world.ask(offsets(*holder), 4))
        assert not answer.error_code

    async def end(self, holder: tuple[int, int], *, committed: bool) -> tuple[int, int]:
        """EndTxn; whom the producer is afterwards."""
        request = end(*holder, committed=committed)
        answer = await self.insist(lambda: self.world.ask(request, self.version))
        assert not answer.error_code, ErrorCode(answer.error_code)
        if self.version < SECOND:
            return holder
        return answer.producer_id, answer.producer_epoch

    async def settled(self, state: str) -> None:
        """The id comes to a state, and stays there."""
        await self.pass_ms(3_000)
        request = DescribeTransactionsRequest(transactional_ids=["x"])
        answer = await self.insist(lambda: self.world.ask(request, 0))
        (found,) = answer.transaction_states
        assert found.transaction_state == state

    def outcomes(self) -> list[set[bool]]:
        """What each partition was told since the last look."""
        found = [set(outcomes) for outcomes in self.world.outcomes().values()]
        for leader in self.world.leaders.values():
            for markers in leader.markers.values():
                epochs = [(one.coordinator_epoch, one.producer_epoch) for one in markers]
                assert epochs == sorted(epochs)
            leader.markers.clear()
        return found


def code_of(answer: Any) -> int:
    """The error of an answer of any kind."""
    if isinstance(answer, list):
        return int(answer[0])
    if hasattr(answer, "results_by_topic_v3_and_below"):
        return int(
            answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        )
    if hasattr(answer, "transaction_states"):
        return int(answer.transaction_states[0].error_code)
    return int(answer.error_code)


async def ends(client: Client, *, committed: bool) -> None:
    """Two transactions in a row, of which the second ends the other way."""
    state = {True: "CompleteCommit", False: "CompleteAbort"}
    await client.begin()
    holder = await client.start()
    await client.add(holder)
    holder = await client.end(holder, committed=committed)
    await client.settled(state[committed])
    assert client.outcomes() == [{committed}] * PARTITIONS
    await client.add(holder)
    await client.end(holder, committed=not committed)
    await client.settled(state[not committed])
    assert client.outcomes() == [{not committed}] * PARTITIONS


async def commits(client: Client) -> None:
    await ends(client, committed=True)


async def aborts(client: Client) -> None:
    await ends(client, committed=False)


async def is_fenced(client: Client) -> None:
    """A second producer ends what the first has open."""
    await client.begin()
    first = await client.start()
    await client.add(first)
    second = await client.start()
    assert second > first
    await client.settled("Empty")
    assert client.outcomes() == [{False}] * PARTITIONS
    answer = await client.insist(lambda: client.world.ask(end(*first), client.version))
    assert answer.error_code == ErrorCode.PRODUCER_FENCED
    await client.add(second)
    await client.end(second, committed=True)
    await client.settled("CompleteCommit")
    assert client.outcomes() == [{True}] * PARTITIONS


async def times_out(client: Client) -> None:
    """A producer dies inside a transaction; later its id is forgotten."""
    await client.begin()
    holder = await client.start()
    await client.add(holder)
    for _ in range(8):
        await client.pass_ms(10_000)
    assert client.outcomes() == [{False}] * PARTITIONS
    await client.settled("CompleteAbort")
    answer = await client.insist(lambda: client.world.ask(end(*holder), client.version))
    late = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    assert answer.error_code in late
    for _ in range(40):
        await client.pass_ms(10_000)
    answer = await client.insist(lambda: client.world.ask(end(*holder), client.version))
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


ALL = [*COMMON, *COMMIT, *ABORT]
CASES = [
    *((commits, name, nth, SECOND) for name in ALL for nth in (1, 2)),
    *((aborts, name, 1, SECOND) for name in ALL),
    *((commits, name, 1, FIRST) for name in ALL),
    *((is_fenced, name, 1, version) for name in ALL for version in (FIRST, SECOND)),
    *((times_out, name, 1, SECOND) for name in [*COMMON, *ABORT, "Dead.decided", "Dead.durable"]),
]
"""Scenario, place, at which time that it is reached, and the version of EndTxn."""


@pytest.mark.parametrize(("scenario", "at", "nth", "version"), CASES)
def test_killed_anywhere_the_outcome_is_the_same(
    scenario: Scenario, at: str, nth: int, version: int, tmp_path: Path
) -> None:
    async def killed(world: TransactionActorWorld) -> None:
        client = Client(world, at, nth, version)
        await scenario(client)
        assert client.kills == 1 or nth == 2, f"{at} was never reached"

    run(
        killed,
        tmp_path,
        level=2 if version == SECOND else 1,
        transactional_id_expiration_ms="120000",
        transaction_remove_expired_transaction_cleanup_interval_ms="60000",
    )


def test_there_are_enough_places() -> None:
    assert len({name for _, name, _, _ in CASES}) >= 14


def test_places_mean_nothing_unless_a_test_says_so() -> None:
    failpoints = Failpoints()
    reached: list[str] = []
    failpoints.reach("a")
    failpoints.set("a", lambda: reached.append("a"))
    assert failpoints
    failpoints.reach("a")
    failpoints.reach("b")
    failpoints.clear()
    failpoints.reach("a")
    assert reached == ["a"]
    assert not failpoints
