"""A disk that fails takes partitions away, one by one, and the broker hears of it."""

from __future__ import annotations

import asyncio
import errno

import pytest

from raylog.actors.replica import actor as replica_actor
from raylog.actors.replica.api import (
    DELETE_RECORDS,
    LATEST_TIMESTAMP,
    OFFSET_FOR,
    ProduceAnswer,
)
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.upkeep import CHECKPOINT_TICKS, UPKEEP_MS
from raylog.actors.runtime.base import ActorGone, PeerLost, PeerTimeout
from raylog.wire.errors import ErrorCode, KafkaStorageError
from tests.support.logs import batch
from tests.support.played_transactions import ended
from tests.support.replica_world import ReplicaWorld, run_world
from tests.unit.actors.replica.test_replication import LAG_MS, answers


def test_a_leader_whose_disk_fails_gives_that_partition_up() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, partitions=2)


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
def test_the_broker_is_told_of_a_failed_disk_until_it_has_heard_or_is_gone(
    outcomes: list[Exception | None],
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        told: list[object] = []
        call = world.call

        async def played(peer: str, method: str, *args: object) -> object:
            if method != "partitions_failed":
                return await call(peer, method, *args)
            told.append(args[1])
            outcome = outcomes[len(told) - 1]
            if outcome is not None:
                raise outcome
            return None

        world.call = played  # type: ignore[method-assign]  # one that does not always hear
        world.disks[1].fail("pwritev", errno.EIO, path="t-0")
        lost = world.produce(1)
        await world.pass_ms(50)
        assert await lost == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert told == [world.keys] * len(outcomes)

    run_world(scenario)


@pytest.mark.parametrize("call", ["rename", "fdatasync"])
def test_a_disk_that_fails_at_a_checkpoint_takes_that_partition_alone(call: str) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        written = [world.produce(1, partition=index) for index in (0, 1)]
        await world.pass_ms(60)
        assert [await one for one in written] == [answers(0)] * 2
        world.disks[1].fail(call, errno.EIO, path="t-0")
        await world.pass_ms((CHECKPOINT_TICKS + 1) * UPKEEP_MS)
        assert world.failed == [(1, [world.keys[0]])]
        gone, other = world.produce(1), world.produce(1, partition=1)
        await world.pass_ms(60)
        assert await gone == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await other == answers(1)

    run_world(scenario, partitions=2)


def test_who_waits_for_a_flush_that_fails_is_told() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.disks[1].fail("fdatasync", errno.EIO)
        written = world.produce(1)
        await world.pass_ms(50)
        assert await written == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert world.failed == [(1, [world.keys[0]])]

    run_world(scenario, config={"flush.messages": "1"})


def test_a_follower_whose_disk_fails_stops_with_that_partition_only() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.disks[2].fail("pwritev", errno.EIO, path="t-0")
        first = world.produce(1)
        second = world.produce(1, partition=1)
        await world.pass_ms(50)
        assert await second == answers(0)
        assert not first.done()
        await world.pass_ms(LAG_MS + UPKEEP_MS + 100)
        assert await first == answers(0)
        assert world.isr() == (1, 3)
        assert world.failed == [(2, [world.keys[0]])]

    run_world(scenario, partitions=2)


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


def test_a_verified_batch_that_cannot_be_written_gives_that_partition_up() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        data = batch(producer_id=7, transactional=True)
        world.disks[1].fail("pwritev", errno.EIO, path="t-0")
        lost = world.produce_in_transaction(1, data, bytearray(data), partitions=(0, 1))
        await world.pass_ms(50)
        first, second = await lost
        assert first == ErrorCode.KAFKA_STORAGE_ERROR
        assert isinstance(second, ProduceAnswer)
        assert world.failed == [(1, [world.keys[0]])]

    run_world(scenario, partitions=2)


def test_a_marker_that_cannot_be_written_gives_that_partition_up() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        asked = world.produce_in_transaction(1, batch(producer_id=7, transactional=True))
        await world.pass_ms(50)
        await asked
        world.disks[1].fail("pwritev", errno.EIO, path="t-0")
        marked = world.write_markers(1, ended(7, 1))
        await world.pass_ms(50)
        assert await marked == [[ErrorCode.KAFKA_STORAGE_ERROR]]
        assert world.failed == [(1, world.keys)]

    run_world(scenario)


def test_a_leader_that_cannot_read_for_a_follower_gives_that_partition_up() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.disks[1].fail("pread", errno.EIO, path="t-0")
        written = [world.produce(1, partition=index) for index in (0, 1)]
        await world.pass_ms(60)
        assert await written[1] == answers(0)
        assert world.failed == [(1, [world.keys[0]])]
        assert [world.replica(2, index).log.log_end_offset for index in (0, 1)] == [0, 1]
        assert await written[0] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run_world(scenario, partitions=2)


@pytest.mark.parametrize(("code", "is_lost"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_follower_that_cannot_save_its_log_start(code: int, is_lost: bool) -> None:
    async def scenario(world: ReplicaWorld) -> None:
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
            await world.pass_ms(UPKEEP_MS * (CHECKPOINT_TICKS + 1))
            assert [getattr(one, "base_offset", one) for one in await more] == [5]
            assert world.replica(2).log.durable_start_offset == 3
            assert deleted.result() == 3
        deleted.cancel()

    run_world(scenario, brokers=2)
