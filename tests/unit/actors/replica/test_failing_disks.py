"""A failing disk takes partitions offline one by one, and the broker learns of it."""

from __future__ import annotations

import asyncio
import errno

import pytest

from raylog.actors.replica import actor as replica_actor
from raylog.actors.replica.log_manager import CHECKPOINT_TICKS, LOOK_EVERY_MS
from raylog.actors.replica.messages import (
    DELETE_RECORDS,
    LATEST_TIMESTAMP,
    OFFSET_FOR,
    ProduceAnswer,
)
from raylog.actors.replica.partition import Partition
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.wire.errors import ErrorCode, KafkaStorageError
from tests.unit.actors.replica.test_replication import LAG_MS
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, answers, run_world
from tests.worlds.replica.scripted_transactions import ended
from tests.worlds.storage.logs import batch


@in_world(run_world, partitions=2)
async def test_a_leader_whose_disk_fails_gives_that_partition_up(world: ReplicaWorld) -> None:
    first = world.produce(1)
    await world.pass_ms(60)
    assert await first == answers(0)
    world.disks[1].fail("pwritev", errno.EIO, path="t-0")
    lost = world.produce(1)
    other = world.produce(1, partition=1)
    await world.pass_ms(50)
    assert await lost == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert await other == answers(0)
    assert world.failed == [(1, [world.keys[0]])]
    gone = world.produce(1)
    assert await gone == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    world.change(world.keys[0], leader=2, isr=(2, 3))
    await world.publish()
    written = world.produce(2)
    await world.pass_ms(50)
    assert await written == answers(1)


@pytest.mark.parametrize(
    "outcomes",
    [
        [None],
        [PeerTimeout("late"), PeerTimeout("late"), None],
        [PeerLost("gone")],
        [ActorGone("gone")],
    ],
    ids=["heard", "late", "lost", "gone"],
)
@in_world(run_world)
async def test_the_broker_is_told_of_a_failed_disk_until_it_has_heard_or_is_gone(
    world: ReplicaWorld, *, outcomes: list[Exception | None]
) -> None:
    calls: list[object] = []
    call = world.call

    async def played(peer: str, method: str, *args: object) -> object:
        if method != "partitions_failed":
            return await call(peer, method, *args)
        calls.append(args[1])
        outcome = outcomes[len(calls) - 1]
        if outcome is not None:
            raise outcome
        return None

    world.call = played  # type: ignore[method-assign]  # one that does not always hear
    world.disks[1].fail("pwritev", errno.EIO, path="t-0")
    lost = world.produce(1)
    await world.pass_ms(50)
    assert await lost == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert calls == [world.keys] * len(outcomes)


@pytest.mark.parametrize("call", ["rename", "fdatasync"])
@in_world(run_world, partitions=2)
async def test_a_disk_that_fails_at_a_checkpoint_takes_that_partition_alone(
    world: ReplicaWorld, *, call: str
) -> None:
    written = [world.produce(1, partition=index) for index in (0, 1)]
    await world.pass_ms(60)
    assert [await one for one in written] == [answers(0)] * 2
    world.disks[1].fail(call, errno.EIO, path="t-0")
    await world.pass_ms((CHECKPOINT_TICKS + 1) * LOOK_EVERY_MS)
    assert world.failed == [(1, [world.keys[0]])]
    gone, other = world.produce(1), world.produce(1, partition=1)
    await world.pass_ms(60)
    assert await gone == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await other == answers(1)


@in_world(run_world, config={"flush.messages": "1"})
async def test_failed_flush_answers_the_waiting_producer(world: ReplicaWorld) -> None:
    world.disks[1].fail("fdatasync", errno.EIO)
    written = world.produce(1)
    await world.pass_ms(50)
    assert await written == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.failed == [(1, [world.keys[0]])]


@in_world(run_world, partitions=2)
async def test_a_follower_whose_disk_fails_stops_with_that_partition_only(
    world: ReplicaWorld,
) -> None:
    world.disks[2].fail("pwritev", errno.EIO, path="t-0")
    first = world.produce(1)
    second = world.produce(1, partition=1)
    await world.pass_ms(50)
    assert await second == answers(0)
    assert not first.done()
    await world.pass_ms(LAG_MS + LOOK_EVERY_MS + 100)
    assert await first == answers(0)
    assert world.isr() == (1, 3)
    assert world.failed == [(2, [world.keys[0]])]


def test_a_failure_that_the_log_does_not_know_of_is_the_requesters_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    async def scenario(world: ReplicaWorld) -> None:
        monkeypatch.setattr(Partition, "offset_for", fail)
        with pytest.raises(KafkaStorageError, match="broken"):
            await world.ask(1, OFFSET_FOR, -1, LATEST_TIMESTAMP, 0)
        assert f"{OFFSET_FOR} failed on the disk" in caplog.text
        monkeypatch.undo()
        assert await world.ask(1, OFFSET_FOR, -1, LATEST_TIMESTAMP, 0)

    run_world(scenario)


def test_a_partition_that_cannot_be_closed_is_given_up_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KafkaStorageError("not closed")

    async def scenario(world: ReplicaWorld) -> None:
        monkeypatch.setattr(replica_actor, "close_logs", fail)
        world.disks[1].fail("pwritev", errno.EIO, path="t-0")
        lost = world.produce(1)
        await world.pass_ms(50)
        assert await lost == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert world.failed == [(1, world.keys)]
        assert "t-0 could not be closed: not closed" in caplog.text

    run_world(scenario)


@in_world(run_world, partitions=2)
async def test_a_verified_batch_that_cannot_be_written_gives_that_partition_up(
    world: ReplicaWorld,
) -> None:
    data = batch(producer_id=7, transactional=True)
    world.disks[1].fail("pwritev", errno.EIO, path="t-0")
    lost = world.produce_in_transaction(1, data, bytearray(data), partitions=(0, 1))
    await world.pass_ms(50)
    first, second = await lost
    assert first == ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(second, ProduceAnswer)
    assert world.failed == [(1, [world.keys[0]])]


@in_world(run_world)
async def test_a_marker_that_cannot_be_written_gives_that_partition_up(world: ReplicaWorld) -> None:
    asked = world.produce_in_transaction(1, batch(producer_id=7, transactional=True))
    await world.pass_ms(50)
    await asked
    world.disks[1].fail("pwritev", errno.EIO, path="t-0")
    marked = world.write_markers(1, ended(7, 1))
    await world.pass_ms(50)
    assert await marked == [[ErrorCode.KAFKA_STORAGE_ERROR]]
    assert world.failed == [(1, world.keys)]


@in_world(run_world, partitions=2)
async def test_a_leader_that_cannot_read_for_a_follower_gives_that_partition_up(
    world: ReplicaWorld,
) -> None:
    world.disks[1].fail("pread", errno.EIO, path="t-0")
    written = [world.produce(1, partition=index) for index in (0, 1)]
    await world.pass_ms(60)
    assert await written[1] == answers(0)
    assert world.failed == [(1, [world.keys[0]])]
    assert [world.replica(2, index).log.log_end_offset for index in (0, 1)] == [0, 1]
    assert await written[0] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize(("code", "is_lost"), [(errno.EIO, True), (errno.ENOSPC, False)])
@in_world(run_world, brokers=2)
async def test_a_follower_that_cannot_save_its_log_start(
    world: ReplicaWorld, *, code: int, is_lost: bool
) -> None:
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    world.disks[2].fail("pwritev", code, path="state")
    deleted = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, 3))
    await world.pass_ms(10)
    assert world.failed == [(2, world.keys)] * is_lost
    assert not deleted.done()
    if not is_lost:
        assert world.replica(2).log.durable_start_offset == 0
        more = world.produce(1)
        await world.pass_ms(LOOK_EVERY_MS * (CHECKPOINT_TICKS + 1))
        assert [getattr(one, "base_offset", one) for one in await more] == [5]
        assert world.replica(2).log.durable_start_offset == 3
        assert deleted.result() == 3
    deleted.cancel()


@in_world(run_world)
async def test_a_follower_whose_log_is_damaged_where_it_is_cut_gives_that_partition_up(
    world: ReplicaWorld,
) -> None:
    shared = world.produce(1, *[batch() for _ in range(3)])
    await world.pass_ms(60)
    await shared
    world.change(leader=2)
    await world.publish(2, 3)  # 1 does not know yet
    alone = world.produce(1, acks=1)
    await world.pass_ms(10)
    await alone
    world.disks[1].corrupt(f"{world.directory(1, 0)}/{0:020}.log", len(batch()) + 16, b"\xff")
    await world.publish(1)
    await world.pass_ms(100)
    assert world.failed == [(1, world.keys)]
    await world.kill(1)
    await world.start(1)
    assert world.replica(1).log.log_end_offset == 1
    await world.pass_ms(100)
    assert world.raw(1) == world.raw(2)
