"""A group coordinator's writes to its own partition: a producer's batches, and markers."""

from __future__ import annotations

import errno

from raylog.actors.replica.log_manager import LOOK_EVERY_MS
from raylog.actors.replica.messages import UNTIL_COMMITTED
from raylog.wire.errors import ErrorCode
from raylog.wire.records import Record, encode_batch
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import SETTINGS, ReplicaWorld, run_world
from tests.worlds.storage.logs import NOW_MS, batch, marker

LAG_MS = SETTINGS.lag_ms_max


def offsets_of(answers: list[object]) -> list[object]:
    return [getattr(answer, "base_offset", answer) for answer in answers]


@in_world(run_world)
async def test_equal_batches_without_a_sequence_are_all_written(world: ReplicaWorld) -> None:
    written = batch(2, producer_id=7, sequence=-1, transactional=True)
    first = world.produce(1, bytearray(written), bytearray(written))
    await world.pass_ms(0)
    assert offsets_of(list(await first)) == [0, 2]


@in_world(run_world)
async def test_a_producer_that_a_marker_has_fenced_writes_no_more(world: ReplicaWorld) -> None:
    answers = world.produce(
        1,
        batch(1, producer_id=7, sequence=-1, transactional=True),
        marker(7, producer_epoch=1, commit=True),
        batch(1, producer_id=7, sequence=-1, transactional=True),
    )
    await world.pass_ms(0)
    assert offsets_of(list(await answers)) == [0, 1, ErrorCode.INVALID_PRODUCER_EPOCH]
    assert world.replica(1).log.producers.transaction_start(7) == -1


@in_world(run_world)
async def test_old_markers_are_refused(world: ReplicaWorld) -> None:
    """Of an older epoch of the producer, and of a coordinator that was replaced."""

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


@in_world(run_world, config={"min.insync.replicas": "2"})
async def test_coordinator_write_waits_for_the_commit_even_if_followers_leave(
    world: ReplicaWorld,
) -> None:
    """An answer says for certain what is in the log, however long that takes."""

    await world.kill(2)
    await world.kill(3)
    written = world.produce(1, acks=UNTIL_COMMITTED, timeout_ms=100)
    await world.pass_ms(LAG_MS + 2 * LOOK_EVERY_MS)
    assert world.isr() == (1,)
    refused = world.produce(1, acks=UNTIL_COMMITTED)
    await world.pass_ms(60_000)
    assert await refused == [ErrorCode.NOT_ENOUGH_REPLICAS], "of this one nothing is written"
    assert not written.done()
    await world.start(2)
    await world.pass_ms(5_000)
    assert offsets_of(list(await written)) == [0]
    assert world.replica(1).log.log_end_offset == 1


@in_world(run_world)
async def test_the_end_of_leadership_leaves_open_whether_it_counts(world: ReplicaWorld) -> None:
    await world.kill(2)
    await world.kill(3)
    written = world.produce(1, acks=UNTIL_COMMITTED)
    await world.pass_ms(10)
    world.change(world.keys[0], leader=2, isr=(2, 3))
    await world.publish()
    assert await written == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@in_world(run_world, config={"flush.messages": "1"})
async def test_a_flush_that_fails_leaves_it_open_too(world: ReplicaWorld) -> None:
    """KAFKA_STORAGE_ERROR would say that nothing was written."""

    world.disks[1].fail("fdatasync", errno.EIO)
    written = world.produce(1, acks=UNTIL_COMMITTED)
    await world.pass_ms(50)
    assert await written == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@in_world(run_world)
async def test_a_full_disk_refuses_it(world: ReplicaWorld) -> None:
    world.disks[1].fail("pwritev", errno.ENOSPC, times=1)
    refused = world.produce(1, acks=UNTIL_COMMITTED)
    await world.pass_ms(50)
    assert await refused == [ErrorCode.KAFKA_STORAGE_ERROR]
    written = world.produce(1, acks=UNTIL_COMMITTED)
    await world.pass_ms(50)
    assert offsets_of(list(await written)) == [0]


@in_world(run_world, brokers=1)
async def test_a_control_batch_that_ends_no_transaction_is_refused(world: ReplicaWorld) -> None:
    record = Record(0, NOW_MS, bytes([0, 0, 0, 2]), bytes(6), [])
    other = encode_batch([record], producer_id=7, producer_epoch=0, is_control=True)
    answers = world.produce(1, other, marker(7, commit=True))
    await world.pass_ms(0)
    assert offsets_of(list(await answers)) == [ErrorCode.INVALID_RECORD, 0]
