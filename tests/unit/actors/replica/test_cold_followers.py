"""Followers that catch up are served by threads: old records may have to be read from disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, Threads, run_world
from tests.worlds.runtime import settle
from tests.worlds.storage.logs import batch

SMALL = {"internal.segment.bytes": "1024", "file.delete.delay.ms": "0"}
BATCHES = 8


async def behind(world: ReplicaWorld) -> Threads:
    """Broker 2 comes back and lacks several segments of the leader, whose threads do not run."""
    await world.kill(2)
    written = world.produce(1, *[batch(5) for _ in range(BATCHES)], acks=1)
    await world.pass_ms(60)
    await written
    assert world.replica(1).log.segment_count > 3
    threads = Threads(world.nodes[1])
    await world.start(2)
    await world.pass_ms(60)
    return threads


async def caught_up(world: ReplicaWorld, threads: Threads, holds: Callable[[], bool]) -> None:
    """Let the leader's threads run until something holds."""
    for _ in range(50):
        while threads.waiting:
            await threads.run_one()
        await world.pass_ms(200)
        if holds():
            return
    raise AssertionError


def end(world: ReplicaWorld, broker_id: int) -> int:
    return world.replica(broker_id).log.log_end_offset


@in_world(run_world, brokers=2, config=SMALL)
async def test_the_leader_goes_on_while_a_thread_reads_for_a_follower(world: ReplicaWorld) -> None:
    threads = await behind(world)
    assert threads.waiting
    assert end(world, 2) == 0
    reads = [call for call in world.disks[1].calls if call == "pread"]
    written = world.produce(1, batch(), acks=1)
    await settle()
    await written
    assert [call for call in world.disks[1].calls if call == "pread"] == reads
    await caught_up(world, threads, lambda: end(world, 2) == end(world, 1))
    assert world.raw(2) == world.raw(1)


@in_world(run_world, brokers=2, config=SMALL)
async def test_a_disk_that_fails_a_thread_takes_the_log_offline(world: ReplicaWorld) -> None:
    threads = await behind(world)
    log = world.replica(1).log
    world.disks[1].fail("pread", errno.EIO, times=100)
    await threads.run_one()
    assert log.offline
    while threads.waiting:  # the log is closed
        await threads.run_one()
    assert world.failed == [(1, world.keys)]
    assert end(world, 2) == 0


@in_world(run_world, brokers=2, config=SMALL)
async def test_records_that_were_deleted_meanwhile_are_asked_for_again(world: ReplicaWorld) -> None:
    threads = await behind(world)
    log = world.replica(1).log
    log.delete_records_to(20)
    log.retention(world.clock.now_ms(), 40)
    checkpoint = log.checkpoints.begin(world.clock.now_ms() + 120_000, 40)
    assert checkpoint is not None
    checkpoint.run()
    log.checkpoints.end(checkpoint)
    await caught_up(world, threads, lambda: end(world, 2) == end(world, 1))
    assert not log.offline
    assert world.replica(2).log.log_start_offset == 20


@in_world(run_world, brokers=2)
async def test_the_end_of_the_log_is_read_at_once(world: ReplicaWorld) -> None:
    threads = Threads(world.nodes[1])
    written = asyncio.ensure_future(world.produce(1, batch()))
    await world.pass_ms(60)
    await written
    assert not threads.waiting
    assert end(world, 2) == end(world, 1)


@in_world(run_world, brokers=2, config=SMALL)
async def test_a_thread_that_has_no_descriptor_keeps_the_follower_waiting_for_a_while(
    world: ReplicaWorld,
) -> None:
    threads = await behind(world)
    world.disks[1].fail("open", errno.EMFILE, path=".log")
    await threads.run_one()
    assert end(world, 2) == 0
    assert not world.replica(1).log.offline
    await caught_up(world, threads, lambda: end(world, 2) == end(world, 1))
    assert world.raw(2) == world.raw(1)
    assert world.failed == []
