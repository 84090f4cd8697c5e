"""A transaction coordinator's metrics of its transactions."""

from __future__ import annotations

from typing import Any

from raylog.actors.transaction.rules.state import State
from tests.worlds.decorators import TMP_PATH, in_world
from tests.worlds.transaction.actor import TransactionActorWorld, run
from tests.worlds.transaction.shard import INIT_VERSION, add_first, end, init


async def scraped(world: TransactionActorWorld, name: str) -> dict[tuple[str, ...], Any]:
    """The samples of a family, by labels."""
    answer = await world.actor.metrics()
    return {labels: value for family, labels, value in answer.samples if family == name}


@in_world(run, TMP_PATH)
async def test_transactions_are_reported_by_state_and_how_they_end(
    world: TransactionActorWorld,
) -> None:
    await world.begin()
    assert await scraped(world, "raylog_transactions") == {("Ongoing",): 0}
    assert await scraped(world, "raylog_transaction_oldest_age_seconds") == {(): 0}
    begun = await world.ask(init(), INIT_VERSION)
    await world.ask(add_first(begun.producer_id, begun.producer_epoch), 3)
    await world.world.advance(3_000)
    assert (await scraped(world, "raylog_transactions"))["Ongoing",] == 1
    ((_, age),) = (await scraped(world, "raylog_transaction_oldest_age_seconds")).items()
    assert 3 <= age < 4
    await world.ask(end(begun.producer_id, begun.producer_epoch, committed=True), 4)
    await world.world.advance(1_000)
    assert (await scraped(world, "raylog_transactions")).items() >= {
        (State.ONGOING.label,): 0,
        (State.COMPLETE_COMMIT.label,): 1,
    }.items()
    ended = await scraped(world, "raylog_transactions_ended_total")
    assert ended == {("committed",): 1, ("aborted",): 0}


@in_world(run, TMP_PATH)
async def test_a_transaction_that_times_out_is_counted(world: TransactionActorWorld) -> None:
    await world.begin()
    begun = await world.ask(init(), INIT_VERSION)
    await world.ask(add_first(begun.producer_id, begun.producer_epoch), 3)
    await world.world.advance(200_000)
    assert await scraped(world, "raylog_transactions_timed_out_total") == {(): 1}
    ended = await scraped(world, "raylog_transactions_ended_total")
    assert ended == {("committed",): 0, ("aborted",): 1}
