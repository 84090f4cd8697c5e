"""Leaders and followers together: real code and logs, fake brokers and controller."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest

from raylog.actors.replica.log_manager import CHECKPOINT_TICKS, LOOK_EVERY_MS
from raylog.actors.replica.messages import (
    DELETE_RECORDS,
    LATEST_TIMESTAMP,
    OFFSET_FOR,
    ProduceAnswer,
)
from raylog.storage.checkpoint import Claims
from raylog.wire.errors import ErrorCode, OffsetNotAvailable
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import SETTINGS, ReplicaWorld, answers, run_world
from tests.worlds.storage.logs import append, batch, marker

LAG_MS = SETTINGS.lag_ms_max
MIN_ISR_2 = {"min.insync.replicas": "2"}


@in_world(run_world)
async def test_acks_all_is_answered_when_all_in_sync_hold_it(world: ReplicaWorld) -> None:
    written = world.produce(1, batch(2), batch(3))
    assert not written.done()
    await world.pass_ms(0)
    assert await written == answers(0, 2)
    assert world.ends() == [(5, 5), (5, 0), (5, 0)]
    logs = [world.replica(one).log for one in world.brokers]
    assert all(log.state.recovery_point < log.log_end_offset for log in logs), "in memory"
    await world.pass_ms(60)
    assert world.ends() == [(5, 5)] * 3, "the high watermark follows by itself"
    assert world.raw(1) == world.raw(2) == world.raw(3) != b""


@in_world(run_world, partitions=50)
async def test_an_idle_cluster_is_a_request_a_second_at_most(world: ReplicaWorld) -> None:
    await world.pass_ms(5_000)
    started = world.clock.timers_run
    await world.pass_ms(60_000)
    assert world.clock.timers_run - started < 5 * 60


@in_world(run_world, partitions=20)
async def test_partitions_of_one_process_share_its_session(world: ReplicaWorld) -> None:
    asked = [world.produce(1, partition=index) for index in range(20)]
    await world.pass_ms(0)
    assert [await one for one in asked] == [answers(0)] * 20
    assert len(world.nodes[1].links) == 2 + 20, "two followers, twenty producers"
    assert all(world.ends(index)[0] == (1, 1) for index in range(20))


@in_world(run_world, config=MIN_ISR_2)
async def test_a_leader_that_dies_loses_nothing_it_acknowledged(world: ReplicaWorld) -> None:
    first = world.produce(1, batch(3))
    await world.pass_ms(0)
    second = world.produce(1, batch(2))  # nobody but the leader has it
    await world.kill(1)
    assert await first == answers(0)
    assert await second == [ErrorCode.NETWORK_EXCEPTION]
    await world.elect(2, isr=(2, 3))
    third = world.produce(2, batch(4))
    await world.pass_ms(30)
    assert await third == answers(3)
    await world.start(1)
    await world.pass_ms(100)
    assert world.isr() == (2, 3, 1)
    await world.pass_ms(60)
    assert world.ends() == [(7, 7)] * 3
    assert world.raw(1) == world.raw(2) == world.raw(3)


@in_world(run_world, brokers=2)
async def test_a_fork_of_several_epochs_is_cut_step_by_step(world: ReplicaWorld) -> None:
    """KIP-279: fast leader changes with unclean elections leave two histories."""

    written = world.produce(1, batch(2))
    await world.pass_ms(60)
    await written
    await world.kill(2)
    await world.elect(1, isr=(1,))
    alone = world.produce(1, batch(5), acks=1)
    await world.pass_ms(1)
    await alone
    await world.kill(1)
    for epochs in range(3):
        await world.start(2)
        await world.elect(2, isr=(2,))
        await world.pass_ms(1)
        own = world.produce(2, batch(1 + epochs), acks=1)
        await world.pass_ms(1)
        await own
        await world.kill(2)
    await world.start(2)
    await world.elect(2, isr=(2,))
    await world.start(1)
    await world.pass_ms(500)
    assert world.raw(1) == world.raw(2)
    assert world.replica(1).log.log_end_offset == 2 + 1 + 2 + 3


@in_world(run_world)
async def test_a_leader_without_records_of_its_epoch_goes_back_to_following(
    world: ReplicaWorld,
) -> None:
    written = world.produce(1, batch(2))
    await world.pass_ms(60)
    await written
    for leader in (2, 1, 3, 2, 1):
        await world.elect(leader)
    await world.pass_ms(500)
    written = world.produce(1)
    await world.pass_ms(100)
    assert await written == answers(2)
    assert world.ends() == [(3, 3)] * 3


@in_world(run_world)
async def test_a_follower_that_knows_the_new_epoch_first_waits_for_its_leader(
    world: ReplicaWorld,
) -> None:
    world.change(leader=2)
    await world.publish(1, 3)
    await world.pass_ms(10)
    await world.publish(2)
    written = world.produce(2)
    await world.pass_ms(150)
    assert await written == answers(0)


@in_world(run_world)
async def test_a_follower_of_an_old_epoch_is_fenced_until_it_hears_of_the_new_one(
    world: ReplicaWorld,
) -> None:
    world.change(leader=1)
    await world.publish(1, 2)
    written = world.produce(1)
    await world.pass_ms(200)
    assert not written.done()
    assert world.replica(3).log.log_end_offset == 0
    await world.publish(3)
    await world.pass_ms(1)
    assert await written == answers(0)


@in_world(run_world)
async def test_producer_waiting_at_a_former_leader_gets_not_leader(world: ReplicaWorld) -> None:
    world.change(leader=2)
    await world.publish(2, 3)
    written = world.produce(1)
    await world.pass_ms(10)
    assert not written.done(), "nobody fetches from it in its epoch"
    await world.publish(1)
    assert await written == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    await world.pass_ms(100)
    assert world.ends() == [(0, 0)] * 3


@in_world(run_world)
async def test_readers_that_wait_are_notified_when_another_replica_leads(
    world: ReplicaWorld,
) -> None:
    waiting = asyncio.ensure_future(world.fetch(1, wait=True))
    await world.pass_ms(10)
    assert not waiting.done()
    await world.elect(3)
    await world.pass_ms(1)
    assert waiting.done()
    assert waiting.result().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_world(run_world, settings=replace(SETTINGS, min_bytes=1000))
async def test_a_follower_may_ask_for_more_bytes_than_there_are_yet(world: ReplicaWorld) -> None:
    first = world.produce(1)
    await world.pass_ms(20)
    assert not first.done()
    written = world.produce(1, *[batch() for _ in range(9)])
    await world.pass_ms(1)
    assert await first == answers(0)
    assert await written == answers(*range(1, 10))
    last = world.produce(1)
    await world.pass_ms(5_000)
    assert await last == answers(10), "the wait has an end"


# ---- in-sync replicas --------------------------------------------------------------------


@in_world(run_world)
async def test_a_dead_follower_leaves_and_comes_back(world: ReplicaWorld) -> None:
    await world.kill(3)
    written = world.produce(1)
    await world.pass_ms(LAG_MS - 100)
    assert not written.done()
    await world.pass_ms(LOOK_EVERY_MS + 200)
    assert await written == answers(0)
    assert world.isr() == (1, 2)
    await world.start(3)
    await world.pass_ms(50)
    assert world.isr() == (1, 2, 3)
    assert world.altered == [(1, 2), (1, 2, 3)]


@pytest.mark.parametrize("failures", [1, 2, 3, 4])
@in_world(run_world)
async def test_a_lost_answer_of_the_controller_is_asked_for_again(
    world: ReplicaWorld, *, failures: int
) -> None:
    await world.kill(3)
    written = world.produce(1)
    world.controller_fails = failures
    await world.pass_ms(LAG_MS + LOOK_EVERY_MS + 1_000)
    assert await written == answers(0)
    assert world.altered == [(1, 2)]


@in_world(run_world)
async def test_refused_isr_addition_is_proposed_again_later(world: ReplicaWorld) -> None:
    world.change(isr=(1, 2))
    await world.publish()
    world.refusal = ErrorCode.INELIGIBLE_REPLICA
    await world.pass_ms(3_000)
    assert world.isr() == (1, 2)
    world.refusal = None
    await world.pass_ms(LOOK_EVERY_MS + 100)
    assert world.isr() == (1, 2, 3)


@in_world(run_world, config=MIN_ISR_2)
async def test_acks_all_is_refused_while_too_few_are_in_sync(world: ReplicaWorld) -> None:
    world.change(isr=(1,))
    await world.kill(2)
    await world.kill(3)
    await world.publish()
    refused = world.produce(1)
    taken = world.produce(1, acks=1)
    await world.pass_ms(1)
    assert await refused == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert await taken == answers(0)
    assert world.ends() == [(1, 0)], "what may be lost is not shown (KIP-966)"


@in_world(run_world, config=MIN_ISR_2)
async def test_produce_answers_not_enough_replicas_after_append_when_isr_shrinks(
    world: ReplicaWorld,
) -> None:
    await world.kill(2)
    await world.kill(3)
    written = world.produce(1)
    await world.pass_ms(LAG_MS + 2 * LOOK_EVERY_MS)
    assert await written == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert world.isr() == (1,)


@in_world(run_world)
async def test_a_replica_that_comes_back_shorter_does_not_count_by_what_it_had(
    world: ReplicaWorld,
) -> None:
    """KIP-903: the old process held it all, the new one lost it."""

    await world.kill(3)
    world.change(isr=(1, 2))
    await world.publish()
    first = world.produce(1, batch(3))
    await world.pass_ms(10)
    assert await first == answers(0)
    await world.kill(2)
    world.disks[2] = type(world.disks[2])()
    second = world.produce(1)
    node = await world.start(2)
    assert world.metadata[world.keys[0]].incarnations[2] == node.incarnation
    assert not second.done()
    await world.pass_ms(50)
    assert await second == answers(3)
    assert world.raw(1) == world.raw(2)


# ---- what followers keep -----------------------------------------------------------------


@in_world(run_world)
async def test_duplicates_are_known_after_a_failover(world: ReplicaWorld) -> None:
    first = batch(3, producer_id=7, sequence=0)
    second = batch(2, producer_id=7, sequence=3)
    written = world.produce(1, first, second)
    await world.pass_ms(0)
    assert await written == answers(0, 3)
    await world.kill(1)
    await world.elect(3, isr=(2, 3))
    again = world.produce(3, second, batch(1, producer_id=7, sequence=9))
    await world.pass_ms(50)
    assert await again == [ProduceAnswer(3, -1, 0), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert world.replica(3).log.log_end_offset == 5


@in_world(run_world)
async def test_open_transactions_are_known_after_a_failover(world: ReplicaWorld) -> None:
    open_one = batch(2, producer_id=7, transactional=True)
    written = world.produce(1, open_one, batch(3))
    await world.pass_ms(60)
    assert await written == answers(0, 2)
    await world.elect(2)
    await world.pass_ms(60)
    replica = world.replica(2)
    assert (replica.high_watermark, replica.last_stable_offset) == (5, 0)
    append(replica.log, marker(7, commit=False), epoch=replica.machine.leader_epoch)
    behind = world.produce(2)
    await world.pass_ms(60)
    assert await behind == answers(6)
    for one in (1, 2, 3):
        assert world.replica(one).last_stable_offset == 7
        assert len(world.replica(one).log.reader.aborted_transactions(0, 6)) == 1


@in_world(run_world)
async def test_an_empty_follower_begins_where_the_leader_does(world: ReplicaWorld) -> None:
    await world.kill(3)
    world.change(isr=(1, 2))
    await world.publish()
    written = world.produce(1, batch(5), batch(5))
    await world.pass_ms(60)
    await written
    deleted = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, 7))
    await world.pass_ms(10)
    assert deleted.result() == 7
    await world.start(3)
    await world.pass_ms(500)
    assert world.isr() == (1, 2, 3)
    log = world.replica(3).log
    assert (log.log_start_offset, log.log_end_offset) == (7, 10)
    assert world.raw(3) == world.raw(1)


@in_world(run_world)
async def test_a_follower_of_an_emptied_leader_begins_at_its_end(world: ReplicaWorld) -> None:
    await world.kill(3)
    world.change(isr=(1, 2))
    await world.publish()
    written = world.produce(1, batch(5))
    await world.pass_ms(60)
    await written
    deleted = asyncio.ensure_future(world.ask(1, DELETE_RECORDS, 5))
    await world.pass_ms(10)
    assert deleted.result() == 5
    await world.start(3)
    await world.pass_ms(500)
    assert world.isr() == (1, 2, 3)
    written = world.produce(1)
    await world.pass_ms(60)
    assert await written == [ProduceAnswer(5, -1, 5)]


@in_world(run_world)
async def test_returning_level_follower_learns_the_high_watermark(world: ReplicaWorld) -> None:
    written = world.produce(1)
    await world.pass_ms(0)
    await written
    await world.kill(1)
    await world.elect(2, isr=(2, 3))
    await world.start(1)
    await world.pass_ms(150)
    assert world.isr() == (2, 3, 1)
    assert world.ends() == [(1, 1)] * 3


@in_world(run_world)
async def test_the_high_watermark_is_kept_over_a_restart(world: ReplicaWorld) -> None:
    written = world.produce(1, batch(5))
    await world.pass_ms((CHECKPOINT_TICKS + 1) * LOOK_EVERY_MS)
    await written
    for one in (1, 2, 3):
        await world.kill(one)
    await world.start(2)
    assert world.ends() == [(5, 5)]


@in_world(run_world)
async def test_latest_is_not_reported_before_the_epoch_is_reached(world: ReplicaWorld) -> None:
    """KIP-207: consumers must not see the end of the log go back."""

    written = world.produce(1, batch(5))
    await world.pass_ms(0)
    await written
    await world.kill(1)
    await world.kill(3)
    await world.elect(2, isr=(2, 3))
    with pytest.raises(OffsetNotAvailable):
        await world.ask(2, OFFSET_FOR, -1, LATEST_TIMESTAMP, 0)
    assert (await world.fetch(2)).error_code == 0
    await world.start(3)
    await world.pass_ms(100)
    assert (await world.ask(2, OFFSET_FOR, -1, LATEST_TIMESTAMP, 0))[0] == 5


@in_world(run_world)
async def test_consumers_may_read_from_a_follower_what_it_knows_to_be_committed(
    world: ReplicaWorld,
) -> None:
    """KIP-392."""

    written = world.produce(1, batch(5))
    await world.pass_ms(0)
    await written
    early = await world.fetch(2, any_replica=True)
    assert (early.error_code, early.high_watermark, early.length) == (0, 0, 0)
    await world.pass_ms(60)
    found = await world.fetch(2, any_replica=True)
    assert (found.high_watermark, found.length) == (5, len(world.raw(1)))
    assert (await world.fetch(2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---- damage ------------------------------------------------------------------------------


@in_world(run_world)
async def test_a_batch_damaged_on_the_way_is_fetched_again(
    world: ReplicaWorld, *, caplog: pytest.LogCaptureFixture
) -> None:
    first = world.produce(1)
    await world.pass_ms(60)
    await first
    path = f"/1/t-0/{world.replica(1).log.segments[0]}"
    written = world.produce(1)
    good = world.disks[1].contents(path)
    world.disks[1].corrupt(path, len(world.raw(1)) - 1, b"\x00")
    await world.pass_ms(10)
    assert world.replica(2).log.log_end_offset == 1
    world.disks[1].corrupt(path, 0, good)
    await world.pass_ms(300)
    assert await written == answers(1)
    assert "cannot follow" in caplog.text


@in_world(run_world)
async def test_a_follower_without_space_goes_on_when_there_is_some(world: ReplicaWorld) -> None:
    world.disks[2].fail("pwritev", errno.ENOSPC, times=2)
    written = world.produce(1)
    await world.pass_ms(50)
    assert not written.done()
    await world.pass_ms(500)
    assert await written == answers(0)


@in_world(run_world)
async def test_follower_claims_records_copied_from_a_leader_with_claims(
    world: ReplicaWorld,
) -> None:
    before = world.produce(1, batch(2))
    await world.pass_ms(60)
    assert await before == answers(0)
    world.replica(1).log.state.claims = Claims(0, 4)  # as where an older build had written it
    written = world.produce(1, batch(3))
    await world.pass_ms(60)
    assert await written == answers(2)
    assert [world.replica(follower).log.state.claims for follower in (2, 3)] == [(2, 4), (2, 4)]


@in_world(run_world)
async def test_consumers_read_below_the_high_watermark_only(world: ReplicaWorld) -> None:
    await world.kill(2)
    written = world.produce(1, batch(3))
    await world.pass_ms(100)
    part = await world.fetch(1)
    assert (part.high_watermark, part.length) == (0, 0), "a member of the ISR lacks it"
    await world.start(2)
    await world.pass_ms(500)
    part = await world.fetch(1)
    assert (part.high_watermark, part.length > 0) == (3, True)
    assert await written


@in_world(run_world, brokers=2)
async def test_truncation_never_by_the_high_watermark_which_lags_one_round(
    world: ReplicaWorld,
) -> None:
    """KIP-101, first case: a follower that restarts keeps what it has above its high watermark."""

    await world.pass_ms(100)
    written = world.produce(1, batch(4))
    await world.pass_ms(0)
    assert await written, "acknowledged"
    assert world.replica(2).high_watermark == 0, "and the follower does not know it yet"
    await world.kill(2)
    await world.kill(1)
    await world.start(2)
    await world.elect(2, isr=(2,))
    await world.pass_ms(10)
    assert world.ends()[0] == (4, 4)


@in_world(run_world, brokers=2)
async def test_truncation_by_leader_epoch_ends_a_fork_that_high_watermarks_would_hide(
    world: ReplicaWorld,
) -> None:
    """KIP-101, second case: two replicas with other records at one offset come to have the same."""

    both = world.produce(1, batch(2))
    await world.pass_ms(60)
    await both
    await world.kill(2)
    await world.elect(1, isr=(1,))
    lost = world.produce(1, batch(1, size=50), acks=1)
    await world.pass_ms(1)
    await lost
    await world.kill(1)
    await world.start(2)
    await world.elect(2, isr=(2,))
    kept = world.produce(2, batch(1, size=70), acks=1)
    await world.pass_ms(1)
    await kept
    assert world.replica(2).log.log_end_offset == 3, "as long as the other one"
    await world.start(1)
    await world.pass_ms(500)
    assert world.raw(1) == world.raw(2)


@in_world(run_world)
async def test_reads_are_slices_of_a_segment_and_carry_no_bytes(world: ReplicaWorld) -> None:
    """The gateway sends them out of its map of the file: out of the page cache."""

    written = world.produce(1, batch(3))
    await world.pass_ms(60)
    await written
    part = await world.fetch(1)
    assert part.segment_id.endswith(f"{0:020}.log")
    assert (part.position, part.length) == (0, len(world.raw(1)))
    assert not any(isinstance(field, bytes) and len(field) > 16 for field in part)
