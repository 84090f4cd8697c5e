"""DeleteRecords waits for the replicas that may become leader next."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.replica.deletions import TIMEOUT_MS
from raylog.actors.replica.messages import DELETE_RECORDS, REPLICATE, ReplicaInterest, ReplicateAsk
from raylog.actors.runtime.deadlines import TICK_MS
from raylog.wire.errors import ErrorCode, NotLeaderOrFollower, OffsetOutOfRange, RequestTimedOut
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import ReplicaWorld, run_world
from tests.worlds.storage.logs import batch


@in_world(run_world)
async def test_deleted_records_are_deleted_by_all_in_sync_before_the_answer(
    world: ReplicaWorld,
) -> None:
    written = world.produce(1, batch(5), batch(5))
    await world.pass_ms(60)
    await written
    deleted = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, 7))
    await world.pass_ms(10)
    assert deleted.result() == 7
    starts = [world.replica(one).log.log_start_offset for one in (1, 2, 3)]
    assert starts == [7, 7, 7]
    durable = [world.replica(one).log.durable_start_offset for one in (1, 2, 3)]
    assert durable == [7, 7, 7], "one that is killed and leads next brings nothing back"


@in_world(run_world)
async def test_uncommitted_records_are_not_deleted(world: ReplicaWorld) -> None:
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    await world.kill(2)
    await world.kill(3)
    await world.produce(1, batch(5), acks=1)
    log = world.replica(1).log
    assert (world.replica(1).high_watermark, log.log_end_offset) == (5, 10)
    for beyond in (6, 10, 11):
        asked = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, beyond))
        await world.pass_ms(1)
        with pytest.raises(OffsetOutOfRange, match=r"the log is \[0, 5\)"):
            asked.result()
    assert log.log_start_offset == 0
    deleting = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, -1))
    await world.pass_ms(10)
    assert log.log_start_offset == 5, "-1 is the high watermark"
    deleting.cancel()


@in_world(run_world)
async def test_a_deletion_waits_for_who_is_in_sync_only(world: ReplicaWorld) -> None:
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    await world.kill(3)
    deleted = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, 5))
    await world.pass_ms(1_000)
    assert not deleted.done()
    world.change(isr=(1, 2))
    await world.publish()
    await world.pass_ms(10)
    assert deleted.result() == 5
    world.change(isr=(1, 2, 3))
    await world.publish()
    late = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, -1))
    await world.pass_ms(TIMEOUT_MS + 2 * TICK_MS)
    with pytest.raises(RequestTimedOut, match="begin at 5 yet"):
        late.result()


@in_world(run_world)
async def test_a_deletion_waits_for_who_may_be_in_sync_already(world: ReplicaWorld) -> None:
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    await world.kill(3)
    world.change(isr=(1, 2))
    await world.publish()
    world.controller_fails = 1_000  # it takes every other proposal, and no answer comes
    await world.start(3)
    await world.pass_ms(500)
    assert world.isr() == (1, 2, 3)
    progress = world.replica(1).machine.progress
    assert progress is not None
    assert progress.isr == (1, 2)
    await world.kill(3)
    deleted = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, 5))
    await world.pass_ms(1_000)
    assert not deleted.done()
    world.change(isr=(1, 2))
    await world.publish()
    await world.pass_ms(10)
    assert deleted.result() == 5


@in_world(run_world)
async def test_a_deletion_waits_no_more_for_one_whose_joining_is_refused(
    world: ReplicaWorld,
) -> None:
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    await world.kill(3)
    world.change(isr=(1, 2))
    await world.publish()
    world.controller_fails, world.refusal = 1_000, ErrorCode.INELIGIBLE_REPLICA
    await world.start(3)
    await world.pass_ms(500)
    await world.kill(3)
    deleted = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, 5))
    await world.pass_ms(1_000)
    assert not deleted.done(), "3 may be in sync"
    world.controller_fails = 0
    await world.pass_ms(2_000)
    assert deleted.result() == 5


@in_world(run_world)
async def test_a_deletion_goes_on_where_the_same_replica_leads_in_the_next_epoch(
    world: ReplicaWorld,
) -> None:
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    await world.kill(3)
    deleted = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, 5))
    await world.pass_ms(100)
    world.change(leader=1)
    await world.publish()
    await world.pass_ms(100)
    assert not deleted.done()
    world.change(isr=(1, 2))
    await world.publish()
    await world.pass_ms(100)
    assert deleted.result() == 5


@in_world(run_world)
async def test_a_deletion_waits_for_whoever_fetches(world: ReplicaWorld) -> None:
    """One that is out of sync may be eligible: if it leads next, it brings nothing back."""

    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    world.change(isr=(1, 2))
    await world.publish()
    link = world.connect(world.nodes[1].address)
    key = world.keys[0]
    interest = ReplicaInterest(*key, 0, 5, 0, 0, "played", 1_000)
    ask = ReplicateAsk(9, 100, 1, 1_000, [interest], [])
    played = asyncio.ensure_future(link.ask(REPLICATE, ask))
    await world.pass_ms(1)
    deleted = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, 5))
    await world.pass_ms(200)
    assert played.done()
    assert not deleted.done()
    changed = ask._replace(changes=[interest._replace(log_start_offset=5)])
    played = asyncio.ensure_future(link.ask(REPLICATE, changed))
    await world.pass_ms(200)
    assert deleted.result() == 5


@in_world(run_world)
async def test_a_deletion_fails_when_the_replica_is_closed_meanwhile(world: ReplicaWorld) -> None:
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    await world.kill(3)
    deleted = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, 5))
    await world.pass_ms(10)
    await world.nodes[1].actor.close_partitions(list(world.keys), False)
    world.change(leader=2, isr=(2,))
    await world.publish(2)  # it forgets the old leader, whose replica of it is closed
    await world.pass_ms(100)
    with pytest.raises(NotLeaderOrFollower, match="is closed here"):
        deleted.result()
