"""What a transaction coordinator tells of its transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raylog.actors.transaction.state import State
from tests.support.transaction_world import TransactionActorWorld, run
from tests.support.transactions import INIT_VERSION, add_first, end, init


async def told(world: TransactionActorWorld, name: str) -> dict[tuple[str, ...], Any]:
    """The samples of a family, by labels."""
    answer = await world.actor.metrics()
    return {labels: value for family, labels, value in answer.samples if family == name}


def test_transactions_are_told_by_state_and_how_they_end(tmp_path: Path) -> None:
    async def scenario(world: TransactionActorWorld) -> None:
        await world.begin()
        assert await told(world, "raylog_transactions") == {("Ongoing",): 0}
        assert await told(world, "raylog_transaction_oldest_age_seconds") == {(): 0}
        begun = await world.ask(init(), INIT_VERSION)
        await world.ask(add_first(begun.producer_id, begun.producer_epoch), 3)
        await world.world.advance(3_000)
        assert (await told(world, "raylog_transactions"))["Ongoing",] == 1
        ((_, age),) = (await told(world, "raylog_transaction_oldest_age_seconds")).items()
        assert 3 <= age < 4
        await world.ask(end(begun.producer_id, begun.producer_epoch, committed=True), 4)
        await world.world.advance(1_000)
        assert (await told(world, "raylog_transactions")).items() >= {
            (State.ONGOING.label,): 0,
            (State.COMPLETE_COMMIT.label,): 1,
        }.items()
        ended = await told(world, "raylog_transactions_ended_total")
        assert ended == {("committed",): 1, ("aborted",): 0}

    run(scenario, tmp_path)


def test_a_transaction_that_times_out_is_counted(tmp_path: Path) -> None:
    async def scenario(world: TransactionActorWorld) -> None:
        await world.begin()
        begun = await world.ask(init(), INIT_VERSION)
        await world.ask(add_first(begun.producer_id, begun.producer_epoch), 3)
        await world.world.advance(200_000)
        assert await told(world, "raylog_transactions_timed_out_total") == {(): 1}
        ended = await told(world, "raylog_transactions_ended_total")
        assert ended == {("committed",): 0, ("aborted",): 1}

    run(scenario, tmp_path)
