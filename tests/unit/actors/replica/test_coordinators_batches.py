"""What a group coordinator writes into its own partition: a producer's batches, and markers."""

from __future__ import annotations

import errno

from raylog.actors.replica.api import UNTIL_COMMITTED
from raylog.actors.replica.upkeep import UPKEEP_MS
from raylog.wire.errors import ErrorCode
from raylog.wire.records import Record, encode_batch
from tests.support.logs import NOW_MS, batch, marker
from tests.support.replica_world import SETTINGS, ReplicaWorld, run_world

LAG_MS = SETTINGS.lag_ms_max


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


def test_what_is_written_waits_until_it_counts_whoever_leaves_meanwhile() -> None:
    """An answer says for certain what is in the log, however long that takes."""

    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(2)
        await world.kill(3)
        written = world.produce(1, acks=UNTIL_COMMITTED, timeout_ms=100)
        await world.pass_ms(LAG_MS + 2 * UPKEEP_MS)
        assert world.isr() == (1,)
        refused = world.produce(1, acks=UNTIL_COMMITTED)
        await world.pass_ms(60_000)
        assert await refused == [ErrorCode.NOT_ENOUGH_REPLICAS], "of this one nothing is written"
        assert not written.done()
        await world.start(2)
        await world.pass_ms(5_000)
        assert offsets_of(list(await written)) == [0]
        assert world.replica(1).log.log_end_offset == 1

    run_world(scenario, config={"min.insync.replicas": "2"})


def test_the_end_of_leadership_leaves_open_whether_it_counts() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(2)
        await world.kill(3)
        written = world.produce(1, acks=UNTIL_COMMITTED)
        await world.pass_ms(10)
        world.change(world.keys[0], leader=2, isr=(2, 3))
        await world.publish()
        assert await written == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run_world(scenario)


def test_a_flush_that_fails_leaves_it_open_too() -> None:
    """KAFKA_STORAGE_ERROR would say that nothing was written."""

    async def scenario(world: ReplicaWorld) -> None:
        world.disks[1].fail("fdatasync", errno.EIO)
        written = world.produce(1, acks=UNTIL_COMMITTED)
        await world.pass_ms(50)
        assert await written == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run_world(scenario, config={"flush.messages": "1"})


def test_a_full_disk_refuses_it() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.disks[1].fail("pwritev", errno.ENOSPC, times=1)
        refused = world.produce(1, acks=UNTIL_COMMITTED)
        await world.pass_ms(50)
        assert await refused == [ErrorCode.KAFKA_STORAGE_ERROR]
        written = world.produce(1, acks=UNTIL_COMMITTED)
        await world.pass_ms(50)
        assert offsets_of(list(await written)) == [0]

    run_world(scenario)


def test_a_control_batch_that_ends_no_transaction_is_refused() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        record = Record(0, NOW_MS, bytes([0, 0, 0, 2]), bytes(6), [])
        other = encode_batch([record], producer_id=7, producer_epoch=0, is_control=True)
        answers = world.produce(1, other, marker(7, commit=True))
        await world.pass_ms(0)
        assert offsets_of(list(await answers)) == [ErrorCode.INVALID_RECORD, 0]

    run_world(scenario, brokers=1)
