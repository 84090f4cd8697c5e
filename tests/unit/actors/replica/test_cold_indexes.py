"""Indexes of old segments are read by threads before a lookup."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from raylog.actors.replica.log_manager import LOOK_EVERY_MS
from raylog.actors.replica.messages import FETCH, FetchAsk, FetchedPartition, Interest
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, Threads, run_world
from tests.worlds.replica.fake_host import TOPIC_ID
from tests.worlds.runtime import settle
from tests.worlds.storage.logs import batch

SMALL = {"internal.segment.bytes": "1024"}


async def written(world: ReplicaWorld) -> Threads:
    """Several closed segments, of whose indexes none is in memory, and threads that do not run."""
    done = world.produce(1, *[batch(5) for _ in range(8)])
    await world.pass_ms(60)
    await done
    await world.pass_ms(15_000)  # indexes of full segments are on disk
    log = world.replica(1).log
    log.retention(world.clock.now_ms(), 40)
    assert not log.reader.is_indexed(1)
    assert log.reader.is_indexed(39)
    return Threads(world.nodes[1])


def fetched(world: ReplicaWorld, offset: int, *, wait: bool, once: bool) -> asyncio.Future[Any]:
    link = world.connect(world.nodes[1].address)
    interest = Interest(TOPIC_ID, 0, offset, 10_000, -1, -1)
    ask = FetchAsk(1, once, True, 0, 10_000, int(wait), wait, [interest], [])
    asking: asyncio.Future[Any] = asyncio.ensure_future(link.ask(FETCH, ask))
    return asking


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("once", [False, True])
@in_world(run_world, brokers=1, config=SMALL)
async def test_fetch_of_old_records_waits_until_a_thread_has_loaded_the_index(
    world: ReplicaWorld, *, wait: bool, once: bool
) -> None:
    threads = await written(world)
    calls = list(world.disks[1].calls)
    old = fetched(world, 1, wait=wait, once=once)
    also = fetched(world, 1, wait=wait, once=once)
    await settle()
    assert not old.done()
    assert world.disks[1].calls == calls
    (young,) = await fetched(world, 39, wait=wait, once=once)
    assert FetchedPartition(*young).length > 0
    assert len(threads.waiting) == 1
    await threads.run_one()
    for one in (old, also):
        (part,) = one.result()
        assert FetchedPartition(*part).length > 0


@in_world(run_world, brokers=1, config=SMALL)
async def test_an_index_that_is_missing_is_made_by_the_thread(world: ReplicaWorld) -> None:
    threads = await written(world)
    log = world.replica(1).log
    disk = world.disks[1]
    for name in disk.listdir(log.directory):
        if name.endswith(".index"):
            disk.unlink(f"{log.directory}/{name}")
    old = fetched(world, 1, wait=False, once=True)
    await settle()
    await threads.run_one()
    (part,) = old.result()
    assert FetchedPartition(*part).length > 0


@pytest.mark.parametrize("wait", [False, True])
@in_world(run_world, brokers=1, config=SMALL)
async def test_index_load_is_retried_after_running_out_of_descriptors(
    world: ReplicaWorld, *, wait: bool
) -> None:
    threads = await written(world)
    world.disks[1].fail("open", errno.EMFILE)
    old = fetched(world, 1, wait=wait, once=True)
    await settle()
    await threads.run_one()
    assert not world.replica(1).log.offline
    assert not threads.waiting, "it is not tried again at once"
    await world.pass_ms(2 * LOOK_EVERY_MS)
    await threads.run_one()
    (part,) = old.result()
    assert FetchedPartition(*part).length > 0
