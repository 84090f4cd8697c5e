"""Offsets by time are looked up off the event loop, while the log changes."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from raylog.actors.replica.lookups import LOOKUPS_AT_ONCE
from raylog.actors.replica.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    OFFSET_FOR,
)
from raylog.wire.errors import KafkaStorageError, NotLeaderOrFollower
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, Threads, run_world
from tests.worlds.runtime import settle
from tests.worlds.storage.logs import NOW_MS, batch

SMALL = {"internal.segment.bytes": "1024", "file.delete.delay.ms": "0", "retention.ms": "-1"}


async def written(world: ReplicaWorld, batches: int = 6) -> None:
    """Batches of five records each, a second apart, in segments of one or two batches."""
    data = [batch(5, timestamp=NOW_MS + 1_000 * number) for number in range(batches)]
    done = world.produce(1, *data)
    await world.pass_ms(60)
    await done


def asked(world: ReplicaWorld, timestamp: int) -> asyncio.Future[Any]:
    return asyncio.ensure_future(world.ask(1, OFFSET_FOR, -1, timestamp, 0))


@in_world(run_world, config=SMALL)
async def test_the_loop_goes_on_while_a_thread_looks_for_a_time(world: ReplicaWorld) -> None:
    await written(world)
    threads = Threads(world.nodes[1])
    reads = list(world.disks[1].calls)
    by_time, youngest = asked(world, NOW_MS + 2_001), asked(world, MAX_TIMESTAMP)
    await settle()
    assert not by_time.done()
    assert not youngest.done()
    assert world.disks[1].calls == reads
    assert (await asked(world, EARLIEST_TIMESTAMP))[0] == 0
    assert (await asked(world, LATEST_TIMESTAMP))[0] == 30
    await threads.run_one()
    assert by_time.result() == (11, NOW_MS + 2_001, 0)
    await threads.run_one()
    assert youngest.result() == (29, NOW_MS + 5_004, 0)


@in_world(run_world, config=SMALL)
async def test_only_so_many_look_at_once(world: ReplicaWorld) -> None:
    await written(world)
    threads = Threads(world.nodes[1])
    all_asked = [asked(world, NOW_MS + 1_000 * number) for number in range(6)]
    await settle()
    assert len(threads.waiting) == LOOKUPS_AT_ONCE
    for _ in all_asked:
        await threads.run_one()
    assert [one.result()[0] for one in all_asked] == [0, 5, 10, 15, 20, 25]


@in_world(run_world, config=SMALL)
async def test_a_file_that_was_deleted_meanwhile_is_not_missed(world: ReplicaWorld) -> None:
    await written(world)
    log = world.replica(1).log
    threads = Threads(world.nodes[1])
    found = asked(world, NOW_MS)
    await settle()
    log.delete_records_to(20)
    log.retention(NOW_MS, 30)
    checkpoint = log.checkpoints.begin(NOW_MS + 120_000, 30)
    assert checkpoint is not None
    checkpoint.run()
    log.checkpoints.end(checkpoint)
    await threads.run_one()
    assert not found.done()
    await threads.run_one()
    assert found.result()[0] == 20
    assert not log.offline


@in_world(run_world, config=SMALL)
async def test_lookups_that_fail_make_room_for_others(world: ReplicaWorld) -> None:
    await written(world)
    for _ in range(LOOKUPS_AT_ONCE + 1):
        world.disks[1].fail("open", errno.EMFILE)
        with pytest.raises(KafkaStorageError):
            await asyncio.wait_for(asked(world, NOW_MS + 1_000), 10)
    assert (await asyncio.wait_for(asked(world, NOW_MS + 1_000), 10))[0] == 5


@in_world(run_world, config=SMALL)
async def test_offset_lookup_on_a_former_leader_fails_with_not_leader(world: ReplicaWorld) -> None:
    await written(world)
    threads = Threads(world.nodes[1])
    moved, closed = asked(world, NOW_MS), asked(world, NOW_MS)
    await settle()
    await world.elect(2)
    await threads.run_one()
    with pytest.raises(NotLeaderOrFollower):
        moved.result()
    partition = world.replica(1)
    closing = asyncio.ensure_future(world.nodes[1].actor.close_partitions([partition.key], False))
    await settle()
    while threads.waiting:
        await threads.run_one()
    with pytest.raises(NotLeaderOrFollower):
        closed.result()
    await closing
