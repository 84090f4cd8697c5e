"""What a group coordinator writes into its own partition: a producer's batches, and markers."""

from __future__ import annotations

from raylog.wire.errors import ErrorCode
from tests.support.logs import batch, marker
from tests.support.replica_world import ReplicaWorld, run_world


def offsets_of(answers: list[object]) -> list[object]:
    return [getattr(answer, "base_offset", answer) for answer in answers]


def test_equal_batches_without_a_sequence_are_all_written() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        written = batch(2, producer_id=7, sequence=-1, transactional=True)
        first = world.produce(1, bytearray(written), bytearray(written))
        await world.pass_ms(0)
        assert offsets_of(list(await first)) == [0, 2]

    run_world(scenario)


def test_a_producer_that_a_marker_has_fenced_writes_no_more() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        answers = world.produce(
            1,
            batch(1, producer_id=7, sequence=-1, transactional=True),
            marker(7, producer_epoch=1, commit=True),
            batch(1, producer_id=7, sequence=-1, transactional=True),
        )
        await world.pass_ms(0)
        assert offsets_of(list(await answers)) == [0, 1, ErrorCode.INVALID_PRODUCER_EPOCH]
        assert world.replica(1).log.producers.transaction_start(7) == -1

    run_world(scenario)


def test_old_markers_are_refused() -> None:
    """Of an older epoch of the producer, and of a coordinator that was replaced."""

    async def scenario(world: ReplicaWorld) -> None:
        answers = world.produce(
            1,
            batch(1, producer_id=7, producer_epoch=3, sequence=-1, transactional=True),
            marker(7, producer_epoch=3, coordinator_epoch=5, commit=True),
            marker(7, producer_epoch=2, coordinator_epoch=6, commit=False),
            marker(7, producer_epoch=3, coordinator_epoch=4, commit=False),
        )
        await world.pass_ms(0)
        assert offsets_of(list(await answers)) == [
            0,
            1,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ]

    run_world(scenario)
