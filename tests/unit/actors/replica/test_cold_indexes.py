"""Indexes of old segments are read by threads before anything is looked up in them."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from raylog.actors.replica.api import FETCH, FetchAsk, FetchedPartition, Interest
from raylog.actors.replica.upkeep import UPKEEP_MS
from tests.support.gateway_world import settle
from tests.support.logs import batch
from tests.support.replica_world import ReplicaWorld, Threads, run_world
from tests.support.replicas import TOPIC_ID

SMALL = {"internal.segment.bytes": "1024"}


async def written(world: ReplicaWorld) -> Threads:
    """Several closed segments, of whose indexes none is in memory, and threads that do not run."""
    done = world.produce(1, *[batch(5) for _ in range(8)])
    await world.pass_ms(60)
    await done
    await world.pass_ms(15_000)  # indexes of full segments are on disk
    log = world.replica(1).log
    log.retention(world.clock.now_ms(), 40)
    assert not log.is_indexed(1)
    assert log.is_indexed(39)
    return Threads(world.nodes[1])


def fetched(world: ReplicaWorld, offset: int, *, wait: bool, once: bool) -> asyncio.Future[Any]:
    link = world.connect(world.nodes[1].address)
    interest = Interest(TOPIC_ID, 0, offset, 10_000, -1, -1)
    ask = FetchAsk(1, once, True, 0, 10_000, int(wait), wait, [interest], [])
    asking: asyncio.Future[Any] = asyncio.ensure_future(link.ask(FETCH, ask))
    return asking


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("once", [False, True])
def test_who_reads_old_records_gets_them_when_a_thread_has_the_index(
    wait: bool, once: bool
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1, config=SMALL)


def test_an_index_that_is_missing_is_made_by_the_thread() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1, config=SMALL)


@pytest.mark.parametrize("wait", [False, True])
def test_who_waits_for_an_index_gets_it_though_no_descriptor_was_left_at_first(wait: bool) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        threads = await written(world)
        world.disks[1].fail("open", errno.EMFILE)
        old = fetched(world, 1, wait=wait, once=True)
        await settle()
        await threads.run_one()
        assert not world.replica(1).log.offline
        assert not threads.waiting, "it is not tried again at once"
        await world.pass_ms(2 * UPKEEP_MS)
        await threads.run_one()
        (part,) = old.result()
        assert FetchedPartition(*part).length > 0

    run_world(scenario, brokers=1, config=SMALL)
