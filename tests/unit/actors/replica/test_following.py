"""How a process finds whom it follows, with one link to each process; and how it cuts a log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.replica.api import ReplicateAsk
from raylog.actors.replica.divergence import Cut
from raylog.actors.replica.following import Following
from raylog.actors.replica.partition import Partition
from tests.support.gateway_world import settle
from tests.support.logs import batch
from tests.support.replica_world import SETTINGS, ReplicaWorld, run_world
from tests.support.slow_links import SlowRuntime

LEADER, FOLLOWER = 1, 2


class Asking(SlowRuntime):
    """A runtime in which the leader's broker says that one process leads all."""

    def __init__(self) -> None:
        super().__init__()
        self.located: list[int] = []

    async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
        self.located.append(len(args[0]))
        return ["process"] * len(args[0])


class _Unthrottled:
    follows = False


class _Stream:
    def __init__(self) -> None:
        self.noted: list[str] = []

    def resume(self, partition: Partition, epoch: int) -> None:
        self.noted.append("resume")

    def resume_later(self, partition: Partition) -> None:
        self.noted.append("resume later")


def made(runtime: Asking | None = None) -> tuple[Asking, Following]:
    runtime = runtime or Asking()
    fakes: Any = (_Unthrottled(), None)
    return runtime, Following(runtime, SETTINGS, "cluster", FOLLOWER, *fakes)  # type: ignore[arg-type]  # a fake


def test_two_that_find_a_process_at_once_share_one_link() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime, following = made()
        for index in range(2):
            following.follow(world.replica(FOLLOWER, index), LEADER)
            await runtime.advance(0)
        assert len(runtime.waiting) == 2
        first, second = await runtime.connected(), await runtime.connected()
        assert (first.is_open, second.is_open) == (True, False)
        named = [ReplicateAsk(*one.header).changes for one in first.requests]
        assert sorted(change[1] for changes in named for change in changes) == [0, 1]

    run_world(scenario, brokers=2, partitions=2)


def test_who_is_left_before_his_leader_is_looked_for_is_not_looked_for() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime, following = made()
        partition = world.replica(FOLLOWER)
        following.follow(partition, LEADER)
        following.leave(partition)
        await runtime.advance(0)
        assert runtime.located == []

    run_world(scenario, brokers=2)


class _Silent(Asking):
    """A leader's broker that never knows which process leads; when it was asked, in ms."""

    async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
        self.located.append(int(self.monotonic_ms()))
        return [""] * len(args[0])


def test_a_leader_that_is_not_known_is_looked_for_less_and_less_often() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = _Silent()
        following = made(runtime)[1]
        began = int(runtime.monotonic_ms())
        following.follow(world.replica(FOLLOWER), LEADER)
        await runtime.advance(400)
        assert [at - began for at in runtime.located] == [0, 20, 60, 140, 240, 340]

    run_world(scenario, brokers=2)


def test_a_process_that_does_not_serve_is_asked_a_little_later_each_time() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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
            following._stream_of.clear()
        assert waits == [20, 40, 80, 100, 100]
        following.served(partition)
        following.refused(partition)
        runtime.located.clear()
        await runtime.advance(19)
        assert runtime.located == []
        await runtime.advance(1)
        assert runtime.located == [1]

    run_world(scenario, brokers=2)


def test_those_who_follow_one_broker_are_looked_for_when_the_last_may_be() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime, following = made()
        first, second = (world.replica(FOLLOWER, index) for index in range(2))
        for _ in range(2):
            following.refused(first)
        following.follow(second, LEADER)
        await runtime.advance(39)
        assert runtime.located == []
        await runtime.advance(1)
        assert runtime.located == [2]

    run_world(scenario, brokers=2, partitions=2)


@pytest.mark.parametrize("anew", [False, True])
def test_a_log_is_cut_when_nothing_else_is_done_with_it(anew: bool) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(LEADER, *[batch() for _ in range(5)])
        await world.pass_ms(100)
        await written
        partition = world.replica(FOLLOWER)
        assert partition.high_watermark == 5
        runtime, following = made()
        finish = _begun(partition)
        stream: Any = _Stream()
        following.cut(partition, Cut(2, anew=anew), stream)
        await runtime.advance(100)
        assert (partition.log.log_end_offset, stream.noted) == (5, [])
        assert partition.in_surgery
        finish()
        await runtime.advance(100)
        await settle()
        assert (partition.log.log_end_offset, partition.high_watermark) == (2, 2)
        assert stream.noted == ["resume"]
        assert not partition.in_surgery

    run_world(scenario, brokers=2)


def _begun(partition: Partition) -> Callable[[], None]:
    """A checkpoint that is under way."""
    job = partition.log.begin_checkpoint(0, partition.high_watermark)
    assert job is not None

    def finish() -> None:
        job.run()
        partition.log.end_checkpoint(job)

    return finish


@pytest.mark.parametrize("is_closed", [False, True])
def test_who_leads_is_heard_of_when_the_log_is_cut(is_closed: bool) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = world.replica(FOLLOWER)
        actor = world.nodes[FOLLOWER].actor
        partition.in_surgery = True
        world.change(leader=FOLLOWER)
        told = asyncio.ensure_future(actor.lead_partitions(list(world.metadata.values())))
        await world.pass_ms(50)
        assert not told.done()
        assert not partition.machine.is_leader
        if is_closed:
            closing = asyncio.ensure_future(actor.close_partitions(world.keys, False))
            await world.pass_ms(50)
            assert not closing.done(), "a thread is at the files"
        partition.in_surgery = False
        await world.pass_ms(10)
        assert told.done()
        await told
        assert partition.machine.is_leader != is_closed
        if is_closed:
            await closing

    run_world(scenario, brokers=2)
