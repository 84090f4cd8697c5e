"""How a process finds leaders, with one link to each process; and how it truncates a log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.replica.messages import ReplicateAsk
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.replica_fetcher_manager import ReplicaFetcherManager
from raylog.actors.replica.rules.divergence import Truncation
from raylog.actors.replica.rules.work import Task
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import SETTINGS, ReplicaWorld, run_world
from tests.worlds.replica.fake_host import RecordingFetcher, Unthrottled
from tests.worlds.runtime import SlowRuntime, settle
from tests.worlds.storage.logs import batch

LEADER, FOLLOWER = 1, 2


class Asking(SlowRuntime):
    """A runtime in which the leader's broker says that one process leads everything."""

    def __init__(self) -> None:
        super().__init__()
        self.located: list[int] = []

    async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
        self.located.append(len(args[0]))
        return ["process"] * len(args[0])


def made(runtime: Asking | None = None) -> tuple[Asking, ReplicaFetcherManager]:
    runtime = runtime or Asking()
    fakes: Any = (Unthrottled(), None)
    return runtime, ReplicaFetcherManager(runtime, SETTINGS, "cluster", FOLLOWER, *fakes)  # type: ignore[arg-type]  # a fake


@in_world(run_world, brokers=2, partitions=2)
async def test_two_that_find_a_process_at_once_share_one_link(world: ReplicaWorld) -> None:
    runtime, following = made()
    for index in range(2):
        following.follow(world.replica(FOLLOWER, index), LEADER)
        await runtime.advance(0)
    assert len(runtime.waiting) == 1
    link = await runtime.connected()
    named = [ReplicateAsk(*one.header).changes for one in link.requests]
    assert sorted(change[1] for changes in named for change in changes) == [0, 1]


@in_world(run_world, brokers=2)
async def test_leaving_before_the_lookup_cancels_it(
    world: ReplicaWorld,
) -> None:
    runtime, following = made()
    partition = world.replica(FOLLOWER)
    following.follow(partition, LEADER)
    following.leave(partition)
    await runtime.advance(0)
    assert runtime.located == []


class _Silent(Asking):
    """A leader's broker that never knows the leading process; records when it was asked, in ms."""

    async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
        self.located.append(int(self.monotonic_ms()))
        return [""] * len(args[0])


@in_world(run_world, brokers=2)
async def test_a_leader_that_is_not_known_is_looked_for_less_and_less_often(
    world: ReplicaWorld,
) -> None:
    runtime = _Silent()
    following = made(runtime)[1]
    began = int(runtime.monotonic_ms())
    following.follow(world.replica(FOLLOWER), LEADER)
    await runtime.advance(400)
    assert [at - began for at in runtime.located] == [0, 20, 60, 140, 240, 340]


@in_world(run_world, brokers=2)
async def test_a_process_that_does_not_serve_is_asked_a_little_later_each_time(
    world: ReplicaWorld,
) -> None:
    runtime, following = made()
    partition = world.replica(FOLLOWER)
    waits = []
    for _ in range(5):
        following.refused(partition)
        runtime.located.clear()
        began = runtime.monotonic_ms()
        while not runtime.located:
            await runtime.advance(1)
        waits.append(runtime.monotonic_ms() - began)
        following._fetcher_of.clear()
    assert waits == [20, 40, 80, 100, 100]
    following.served(partition)
    following.refused(partition)
    runtime.located.clear()
    await runtime.advance(19)
    assert runtime.located == []
    await runtime.advance(1)
    assert runtime.located == [1]


@in_world(run_world, brokers=2, partitions=2)
async def test_lookup_of_a_broker_waits_for_the_longest_backoff(
    world: ReplicaWorld,
) -> None:
    runtime, following = made()
    first, second = (world.replica(FOLLOWER, index) for index in range(2))
    for _ in range(2):
        following.refused(first)
    following.follow(second, LEADER)
    await runtime.advance(39)
    assert runtime.located == []
    await runtime.advance(1)
    assert runtime.located == [2]


@pytest.mark.parametrize("anew", [False, True])
@in_world(run_world, brokers=2)
async def test_a_log_is_cut_when_nothing_else_is_done_with_it(
    world: ReplicaWorld, *, anew: bool
) -> None:
    written = world.produce(LEADER, *[batch() for _ in range(5)])
    await world.pass_ms(100)
    await written
    partition = world.replica(FOLLOWER)
    assert partition.high_watermark == 5
    runtime, following = made()
    finish = _begun(partition)
    stream: Any = RecordingFetcher()
    following.truncate(partition, Truncation(2, anew=anew), stream)
    await runtime.advance(100)
    assert (partition.log.log_end_offset, stream.noted) == (5, [])
    assert partition.work.is_reserved
    finish()
    await runtime.advance(100)
    await settle()
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 2)
    assert stream.noted == ["resume"]
    assert not partition.work.is_reserved


def _begun(partition: Partition) -> Callable[[], None]:
    """A checkpoint that is under way."""
    assert partition.work.begin(Task.CHECKPOINT)
    job = partition.log.checkpoints.begin(0, partition.high_watermark)
    assert job is not None

    def finish() -> None:
        job.run()
        partition.log.checkpoints.end(job)
        partition.work.end(Task.CHECKPOINT)

    return finish


@pytest.mark.parametrize("is_closed", [False, True])
@in_world(run_world, brokers=2)
async def test_leadership_is_taken_over_after_the_truncation_ends(
    world: ReplicaWorld, *, is_closed: bool
) -> None:
    partition = world.replica(FOLLOWER)
    actor = world.nodes[FOLLOWER].actor
    partition.work.reserve(lambda: None)
    world.change(leader=FOLLOWER)
    leading = asyncio.ensure_future(actor.lead_partitions(list(world.metadata.values())))
    await world.pass_ms(50)
    assert not leading.done()
    assert not partition.machine.is_leader
    if is_closed:
        closing = asyncio.ensure_future(actor.close_partitions(world.keys, False))
        await world.pass_ms(50)
        assert not closing.done(), "a thread is at the files"
    partition.work.release()
    await world.pass_ms(10)
    assert leading.done()
    await leading
    assert partition.machine.is_leader != is_closed
    if is_closed:
        await closing


@in_world(run_world, brokers=2, partitions=3)
async def test_leaderships_do_not_wait_for_the_reserved_log_of_another_partition(
    world: ReplicaWorld,
) -> None:
    reserved = world.replica(FOLLOWER, 0)
    reserved.work.reserve(lambda: None)
    world.change(leader=FOLLOWER)
    leading = asyncio.ensure_future(
        world.nodes[FOLLOWER].actor.lead_partitions(list(world.metadata.values()))
    )
    await world.pass_ms(50)
    assert [world.replica(FOLLOWER, n).machine.is_leader for n in range(3)] == [False, True, True]
    reserved.work.release()
    await world.pass_ms(10)
    await leading
    assert reserved.machine.is_leader
