"""Leaders and followers together: real processes' code and logs, brokers and controller played."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.replica.api import (
    ACKS_ALL,
    DELETE_RECORDS,
    LATEST_TIMESTAMP,
    OFFSET_FOR,
    UNTIL_COMMITTED,
    ProduceAnswer,
)
from raylog.actors.replica.upkeep import CHECKPOINT_TICKS, UPKEEP_MS
from raylog.storage.checkpoint import Claims
from raylog.wire.errors import ErrorCode, OffsetNotAvailable
from tests.support.logs import append, batch, marker
from tests.support.replica_world import (
    SETTINGS,
    ReplicaWorld,
    Threads,
    run_world,
)

LAG_MS = SETTINGS.lag_ms_max
MIN_ISR_2 = {"min.insync.replicas": "2"}


def answers(*base_offsets: int) -> list[ProduceAnswer]:
    return [ProduceAnswer(one, -1, 0) for one in base_offsets]


def test_acks_all_is_answered_when_all_in_sync_hold_it() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(1, batch(2), batch(3))
        assert not written.done()
        await world.pass_ms(0)
        assert await written == answers(0, 2)
        assert world.ends() == [(5, 5), (5, 0), (5, 0)]
        await world.pass_ms(60)
        assert world.ends() == [(5, 5)] * 3, "the high watermark follows by itself"
        assert world.raw(1) == world.raw(2) == world.raw(3) != b""

    run_world(scenario)


def test_an_idle_cluster_is_a_request_a_second_at_most() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.pass_ms(5_000)
        started = world.clock.timers_run
        await world.pass_ms(60_000)
        assert world.clock.timers_run - started < 5 * 60

    run_world(scenario, partitions=50)


def test_partitions_of_one_process_share_its_session() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        asked = [world.produce(1, partition=index) for index in range(20)]
        await world.pass_ms(0)
        assert [await one for one in asked] == [answers(0)] * 20
        assert len(world.nodes[1].links) == 2 + 20, "two followers, twenty producers"
        assert all(world.ends(index)[0] == (1, 1) for index in range(20))

    run_world(scenario, partitions=20)


def test_a_leader_that_dies_loses_nothing_it_acknowledged() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, config=MIN_ISR_2)


def test_a_fork_of_several_epochs_is_cut_step_by_step() -> None:
    """KIP-279: fast leader changes with unclean elections leave two histories."""

    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=2)


def test_a_leader_without_records_of_its_epoch_goes_back_to_following() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario)


def test_a_follower_that_knows_the_new_epoch_first_waits_for_its_leader() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.change(leader=2)
        await world.publish(1, 3)
        await world.pass_ms(10)
        await world.publish(2)
        written = world.produce(2)
        await world.pass_ms(150)
        assert await written == answers(0)

    run_world(scenario)


def test_a_follower_of_an_old_epoch_is_fenced_until_it_hears_of_the_new_one() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.change(leader=1)
        await world.publish(1, 2)
        written = world.produce(1)
        await world.pass_ms(200)
        assert not written.done()
        assert world.replica(3).log.log_end_offset == 0
        await world.publish(3)
        await world.pass_ms(1)
        assert await written == answers(0)

    run_world(scenario)


def test_who_waits_at_a_leader_that_is_none_any_more_is_told() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.change(leader=2)
        await world.publish(2, 3)
        written = world.produce(1)
        await world.pass_ms(10)
        assert not written.done(), "nobody fetches from it in its epoch"
        await world.publish(1)
        assert await written == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await world.pass_ms(100)
        assert world.ends() == [(0, 0)] * 3

    run_world(scenario)


def test_readers_that_wait_are_told_when_another_replica_leads() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        waiting = asyncio.ensure_future(world.fetch(1, wait=True))
        await world.pass_ms(10)
        assert not waiting.done()
        await world.elect(3)
        await world.pass_ms(1)
        assert waiting.done()
        assert waiting.result().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run_world(scenario)


def test_a_follower_may_ask_for_more_bytes_than_there_are_yet() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, settings=replace(SETTINGS, min_bytes=1_000))


# ---- in-sync replicas --------------------------------------------------------------------


def test_a_dead_follower_leaves_and_comes_back() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(3)
        written = world.produce(1)
        await world.pass_ms(LAG_MS - 100)
        assert not written.done()
        await world.pass_ms(UPKEEP_MS + 200)
        assert await written == answers(0)
        assert world.isr() == (1, 2)
        await world.start(3)
        await world.pass_ms(50)
        assert world.isr() == (1, 2, 3)
        assert world.altered == [(1, 2), (1, 2, 3)]

    run_world(scenario)


@pytest.mark.parametrize("failures", [1, 2, 3, 4])
def test_a_lost_answer_of_the_controller_is_asked_for_again(failures: int) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(3)
        written = world.produce(1)
        world.controller_fails = failures
        await world.pass_ms(LAG_MS + UPKEEP_MS + 1_000)
        assert await written == answers(0)
        assert world.altered == [(1, 2)]

    run_world(scenario)


def test_who_is_refused_is_proposed_again_later() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.change(isr=(1, 2))
        await world.publish()
        world.refusal = ErrorCode.INELIGIBLE_REPLICA
        await world.pass_ms(3_000)
        assert world.isr() == (1, 2)
        world.refusal = None
        await world.pass_ms(UPKEEP_MS + 100)
        assert world.isr() == (1, 2, 3)

    run_world(scenario)


def test_acks_all_is_refused_while_too_few_are_in_sync() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, config=MIN_ISR_2)


def test_who_waits_while_too_many_leave_is_told_that_it_is_written() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await world.kill(2)
        await world.kill(3)
        written = world.produce(1)
        await world.pass_ms(LAG_MS + 2 * UPKEEP_MS)
        assert await written == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
        assert world.isr() == (1,)

    run_world(scenario, config=MIN_ISR_2)


def test_a_replica_that_comes_back_shorter_does_not_count_by_what_it_had() -> None:
    """KIP-903: the old process held it all, the new one lost it."""

    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario)


# ---- what followers keep -----------------------------------------------------------------


def test_duplicates_are_known_after_a_failover() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario)


def test_open_transactions_are_known_after_a_failover() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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
            assert len(world.replica(one).log.aborted_transactions(0, 6)) == 1

    run_world(scenario)


def test_an_empty_follower_begins_where_the_leader_does() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario)


def test_a_follower_of_an_emptied_leader_begins_at_its_end() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario)


def test_who_comes_back_level_learns_the_high_watermark() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(1)
        await world.pass_ms(0)
        await written
        await world.kill(1)
        await world.elect(2, isr=(2, 3))
        await world.start(1)
        await world.pass_ms(150)
        assert world.isr() == (2, 3, 1)
        assert world.ends() == [(1, 1)] * 3

    run_world(scenario)


def test_the_high_watermark_is_kept_over_a_restart() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(1, batch(5))
        await world.pass_ms((CHECKPOINT_TICKS + 1) * UPKEEP_MS)
        await written
        for one in (1, 2, 3):
            await world.kill(one)
        await world.start(2)
        assert world.ends() == [(5, 5)]

    run_world(scenario)


def test_latest_is_not_told_before_the_epoch_is_reached() -> None:
    """KIP-207: consumers must not see the end of the log go back."""

    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario)


def test_consumers_may_read_from_a_follower_what_it_knows_to_be_committed() -> None:
    """KIP-392."""

    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(1, batch(5))
        await world.pass_ms(0)
        await written
        early = await world.fetch(2, any_replica=True)
        assert (early.error_code, early.high_watermark, early.length) == (0, 0, 0)
        await world.pass_ms(60)
        found = await world.fetch(2, any_replica=True)
        assert (found.high_watermark, found.length) == (5, len(world.raw(1)))
        assert (await world.fetch(2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run_world(scenario)


# ---- damage ------------------------------------------------------------------------------


def test_a_batch_damaged_on_the_way_is_fetched_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario)


def test_a_follower_without_space_goes_on_when_there_is_some() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.disks[2].fail("pwritev", errno.ENOSPC, times=2)
        written = world.produce(1)
        await world.pass_ms(50)
        assert not written.done()
        await world.pass_ms(500)
        assert await written == answers(0)

    run_world(scenario)


@pytest.mark.parametrize("acks", [ACKS_ALL, UNTIL_COMMITTED])
def test_acks_all_waits_for_the_flush_too(acks: int) -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, config={"flush.messages": "1"})


@pytest.mark.parametrize("acks", [1, ACKS_ALL, UNTIL_COMMITTED])
def test_what_is_written_while_a_flush_runs_waits_for_the_next_one(acks: int) -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=1, config={"flush.messages": "1"})


def test_acks_1_waits_for_the_flush_and_not_for_followers() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, config={"flush.messages": "1"})


def test_what_is_copied_from_a_leader_with_claims_is_claimed() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        before = world.produce(1, batch(2))
        await world.pass_ms(60)
        assert await before == answers(0)
        world.replica(1).log.claims = Claims(0, 4)  # as where an older build had written it
        written = world.produce(1, batch(3))
        await world.pass_ms(60)
        assert await written == answers(2)
        assert [world.replica(follower).log.claims for follower in (2, 3)] == [(2, 4), (2, 4)]

    run_world(scenario)
