"""Writes to topics with `flush.messages` are acknowledged only once they are on disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.replica.log_manager import CHECKPOINT_TICKS, LOOK_EVERY_MS
from raylog.actors.replica.messages import ACKS_ALL, UNTIL_COMMITTED
from raylog.wire.errors import ErrorCode
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, Threads, answers, run_world
from tests.worlds.storage.logs import batch


@pytest.mark.parametrize("acks", [ACKS_ALL, UNTIL_COMMITTED])
@in_world(run_world, config={"flush.messages": "1"})
async def test_acks_all_waits_for_the_flush_too(world: ReplicaWorld, *, acks: int) -> None:
    is_over = asyncio.Event()
    run_blocking = world.nodes[1].runtime.run_blocking

    async def slowly(function: Callable[..., Any], *args: Any) -> Any:
        await is_over.wait()
        return await run_blocking(function, *args)

    world.nodes[1].runtime.run_blocking = slowly  # type: ignore[method-assign]  # a slow disk
    written = world.produce(1, acks=acks)
    await world.pass_ms(60)
    assert world.ends() == [(1, 1)] * 3
    assert not written.done()
    is_over.set()
    await world.pass_ms(0)
    assert await written == answers(0)


@in_world(run_world, brokers=1, config={"flush.messages": "3"})
async def test_the_batch_that_reaches_flush_messages_waits_and_others_do_not(
    world: ReplicaWorld,
) -> None:
    threads = Threads(world.nodes[1])
    written = [world.produce(1, batch(count), acks=1) for count in (2, 1)]
    await world.pass_ms(1)
    assert [one.done() for one in written] == [True, False]
    await threads.run_one()
    assert await written[1] == answers(2)
    after = world.produce(1, batch(2), acks=1)
    await world.pass_ms(1)
    assert await after == answers(3)
    assert not threads.waiting


@pytest.mark.parametrize("acks", [1, ACKS_ALL, UNTIL_COMMITTED])
@in_world(run_world, brokers=1, config={"flush.messages": "1"})
async def test_write_during_a_flush_waits_for_the_next_flush(
    world: ReplicaWorld, *, acks: int
) -> None:
    threads = Threads(world.nodes[1])
    first = world.produce(1, acks=acks)
    await world.pass_ms(1)
    second = world.produce(1, acks=acks)
    await world.pass_ms(60)
    assert (first.done(), second.done()) == (False, False)
    await threads.run_one()
    assert (await first, second.done()) == (answers(0), False)
    await threads.run_one()
    assert await second == answers(1)
    assert not threads.waiting, "nothing is left to be flushed"


@in_world(run_world, config={"flush.messages": "1"})
async def test_acks_1_waits_for_the_flush_and_not_for_followers(world: ReplicaWorld) -> None:
    await world.kill(2)
    await world.kill(3)
    one, both = world.produce(1, acks=1), world.produce(1)
    await world.pass_ms(50)
    assert await one == answers(0)
    assert not both.done()
    world.disks[1].fail("fdatasync", errno.EIO)
    unflushed = world.produce(1, acks=1)
    await world.pass_ms(50)
    assert await unflushed == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert await both == [ErrorCode.KAFKA_STORAGE_ERROR]


@in_world(run_world)
async def test_what_was_written_before_flush_ms_was_set_is_flushed_too(world: ReplicaWorld) -> None:
    written = world.produce(1, batch(3))
    await world.pass_ms(CHECKPOINT_TICKS * LOOK_EVERY_MS)
    await written
    assert recovery_points(world) == [0, 0, 0]
    await world.configure(flush_ms="1000")
    await world.pass_ms(LOOK_EVERY_MS)
    assert recovery_points(world) == [3, 3, 3]


@in_world(run_world, config={"flush.ms": "1000"})
async def test_flush_ms_holds_for_what_a_dead_process_left(world: ReplicaWorld) -> None:
    for _ in range(2):  # the first is flushed at once
        await world.produce(1, acks=1)
    await world.kill(1)
    await world.start(1)
    await world.pass_ms(0)
    assert recovery_points(world)[0] == 2


@in_world(run_world, config={"flush.messages": "100"})
async def test_no_writer_waits_for_a_flush_of_records_that_were_truncated(
    world: ReplicaWorld,
) -> None:
    world.change(leader=2)
    await world.publish(2, 3)  # 1 does not know yet
    alone = world.produce(1, batch(150), acks=1)
    await world.pass_ms(50)
    assert await alone == answers(0)
    await world.publish(1)
    await world.pass_ms(500)
    assert world.ends() == [(0, 0)] * 3
    await world.elect(1)
    await world.pass_ms(100)
    written = [world.produce(1, acks=acks) for acks in (1, ACKS_ALL)]
    await world.pass_ms(100)
    assert [one.done() for one in written] == [True, True]


def recovery_points(world: ReplicaWorld) -> list[int]:
    return [world.replica(one).log.state.recovery_point for one in world.brokers]
