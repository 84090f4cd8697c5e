"""The facts about transactions that concern committed offsets, one test each."""

from __future__ import annotations

from pathlib import Path

from raylog.actors.names import OFFSETS_TOPIC
from raylog.actors.transaction.api import TopicPartitions
from raylog.wire.errors import ErrorCode
from raylog.wire.records import iter_batches
from tests.support.coordinator_world import CoordinatorWorld, run
from tests.support.pending_offsets import committing_in, marker, outcomes
from tests.support.shards import ShardWorld
from tests.unit.group.test_actor import offsets

CONTROL_BIT = 0x20


def test_txn_offset_commit_writes_pending_offsets_that_count_only_on_commit(
    tmp_path: Path,
) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        for epoch, committed in enumerate((False, True)):
            await world.ask(committing_in({0: 5 + epoch}, epoch=epoch), 5)
            assert await offsets(world) == {}
            await world.end(marker(committed=committed, epoch=epoch + 1, version=2))
        assert await offsets(world) == {0: 6}

    run(scenario, tmp_path)


def test_the_end_is_a_control_batch_in_consumer_offsets(tmp_path: Path) -> None:
    """Attribute bit 5; readers of committed records and offsets go by it."""

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        await world.ask(committing_in({0: 5}), 5)
        await world.end(marker())
        bits = [header.attributes & CONTROL_BIT for header, _ in iter_batches(world.log.bytes())]
        assert bits == [0, CONTROL_BIT]

    run(scenario, tmp_path)


def test_a_crash_between_any_two_of_these_resumes_to_the_same_outcome(tmp_path: Path) -> None:
    """Of the offsets: pending before the marker is in the log, decided from then on."""

    async def scenario(world: CoordinatorWorld) -> None:
        async def crash() -> None:
            world.restart()
            await world.begin()

        await world.begin()
        await world.ask(committing_in({0: 5}), 5)
        await crash()
        assert await offsets(world) == {}
        await world.ask(committing_in({1: 6}), 5)
        await crash()
        await world.end(marker())
        await crash()
        assert await offsets(world) == {0: 5, 1: 6}
        assert await world.end(marker()) == [["NONE"]], "the marker comes once more"
        assert await offsets(world) == {0: 5, 1: 6}

    run(scenario, tmp_path)


def test_add_offsets_to_txn_adds_the_groups_offsets_partition(tmp_path: Path) -> None:
    """Version 1 asks for it before TxnOffsetCommit: whether it did is verified."""

    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        await world.ask(committing_in({0: 5}), 4)
        (asked,) = world.transactions.asked
        assert asked.verify_only
        assert asked.topics == [TopicPartitions(OFFSETS_TOPIC, [0])]

    run(scenario, tmp_path)


def test_version_1_write_to_a_partition_not_added_is_transaction_abortable(
    tmp_path: Path,
) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        await world.begin()
        world.transactions.outcome = [ErrorCode.TRANSACTION_ABORTABLE]
        answer = await world.ask(committing_in({0: 5}), 4)
        assert outcomes(answer) == [("t", 0, "TRANSACTION_ABORTABLE")]
        assert world.log.end == 0

    run(scenario, tmp_path)


def test_metadata_above_4096_bytes_is_offset_metadata_too_large() -> None:
    world = ShardWorld()
    world.topics(t=3)
    answer = world.ask(committing_in({0: 5}, metadata="x" * 4_097), 5)
    assert outcomes(answer) == [("t", 0, "OFFSET_METADATA_TOO_LARGE")]
