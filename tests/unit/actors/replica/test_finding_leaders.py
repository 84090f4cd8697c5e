"""Who is looked for at a leader's broker, who is not any more, and what a lost link changes."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from raylog.actors.names import broker_name
from raylog.actors.ports import PartitionKey
from raylog.actors.replica.api import ReplicateAsk
from raylog.actors.replica.divergence import Cut
from raylog.actors.replica.following import Following
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.upkeep import Upkeep
from raylog.actors.runtime.base import PeerTimeout
from tests.support.gateway_world import FakeLink, FakeRuntime, settle
from tests.support.logs import batch
from tests.support.replica_world import CLUSTER, SETTINGS, ReplicaWorld, run_world

LEADER, FOLLOWER = 1, 2


class Located(FakeRuntime):
    """A runtime in which brokers say what `addresses` has; every process answers."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: dict[int, str] = {}
        """By partition; none for those of which nobody knows the leader."""
        self.silent = 0
        """As many questions get no answer."""
        self.asked: list[tuple[str, list[int]]] = []
        """(broker, partitions) of each question."""

    async def call(self, peer: str, method: str, *args: Any, timeout_ms: int) -> Any:
        keys: list[PartitionKey] = args[0]
        self.asked.append((peer, [index for _, index in keys]))
        if self.silent:
            self.silent -= 1
            raise PeerTimeout("no answer")
        return [self.addresses.get(index, "") for _, index in keys]

    def play(self, address: str) -> FakeLink:
        """Have a process at an address."""
        return self.links.setdefault(address, FakeLink())


class _Unthrottled:
    follows = False


class _Stream:
    def __init__(self) -> None:
        self.noted: list[str] = []

    def resume(self, partition: Partition, epoch: int) -> None:
        self.noted.append("resume")

    def resume_later(self, partition: Partition) -> None:
        self.noted.append("resume later")


def made(runtime: FakeRuntime, upkeep: Upkeep | None = None) -> Following:
    fakes: Any = (_Unthrottled(), upkeep)
    process: Any = runtime
    return Following(process, SETTINGS, CLUSTER, FOLLOWER, *fakes)


def named(link: FakeLink) -> list[int]:
    """The partitions that were asked for over a link."""
    asked = [ReplicateAsk(*one.header) for one in link.requests]
    return [change[1] for one in asked for change in one.changes]


def test_who_follows_one_broker_is_looked_for_together_and_each_at_its_own() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = Located()
        runtime.addresses = {0: "one", 1: "two", 2: "one"}
        one, two = runtime.play("one"), runtime.play("two")
        following = made(runtime)
        for index in range(3):
            following.follow(world.replica(FOLLOWER, index), LEADER)
        following.follow(world.replica(FOLLOWER, 3), 3)
        await runtime.advance(0)
        assert runtime.asked == [
            (broker_name(CLUSTER, LEADER), [0, 1, 2]),
            (broker_name(CLUSTER, 3), [3]),
        ]
        assert (named(one), named(two)) == ([0, 2], [1])

    run_world(scenario, partitions=4)


def test_only_who_is_not_found_yet_is_looked_for_again() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = Located()
        runtime.addresses = {0: "process"}
        link = runtime.play("process")
        following = made(runtime)
        for index in range(2):
            following.follow(world.replica(FOLLOWER, index), LEADER)
        await runtime.advance(0)
        assert named(link) == [0]
        runtime.addresses[1] = "process"
        await runtime.advance(20)
        assert [indexes for _, indexes in runtime.asked] == [[0, 1], [1]]
        assert named(link) == [0, 1]
        await runtime.advance(1_000)
        assert len(runtime.asked) == 2

    run_world(scenario, partitions=2)


def test_a_broker_that_does_not_answer_is_asked_again() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = Located()
        runtime.addresses = {0: "process"}
        link = runtime.play("process")
        runtime.silent = 1
        made(runtime).follow(world.replica(FOLLOWER), LEADER)
        await runtime.advance(19)
        assert named(link) == []
        await runtime.advance(1)
        assert named(link) == [0]

    run_world(scenario)


def test_a_process_that_is_gone_keeps_nobody_from_another() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = Located()
        runtime.addresses = {0: "gone", 1: "process"}
        link = runtime.play("process")
        following = made(runtime)
        for index in range(2):
            following.follow(world.replica(FOLLOWER, index), LEADER)
        await runtime.advance(0)
        assert named(link) == [1]
        successor = runtime.play("gone")
        await runtime.advance(20)
        assert named(successor) == [0]

    run_world(scenario, partitions=2)


def test_who_is_being_cut_is_looked_for_when_that_is_over() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = Located()
        runtime.addresses = {0: "process"}
        link = runtime.play("process")
        partition = world.replica(FOLLOWER)
        partition.in_surgery = True
        made(runtime).follow(partition, LEADER)
        await runtime.advance(10)
        assert named(link) == []
        partition.in_surgery = False
        await runtime.advance(20)
        assert named(link) == [0]

    run_world(scenario)


@pytest.mark.parametrize("change", [{"leader": 3}, {"leader": FOLLOWER}, {"leader": -1}])
def test_who_has_another_leader_meanwhile_looks_for_the_old_one_no_more(
    change: dict[str, int],
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = Located()
        made(runtime).follow(world.replica(FOLLOWER), LEADER)
        await runtime.advance(0)
        asked = len(runtime.asked)
        await world.elect(**change)
        await runtime.advance(1_000)
        assert len(runtime.asked) == asked

    run_world(scenario)


def test_who_has_another_leader_while_the_link_is_opened_is_not_asked_for() -> None:
    class Slow(Located):
        async def connect(self, address: str) -> FakeLink:
            await self.sleep(1)
            return await super().connect(address)

    async def scenario(world: ReplicaWorld) -> None:
        runtime = Slow()
        runtime.addresses = {0: "process", 1: "process"}
        link = runtime.play("process")
        following = made(runtime)
        for index in range(2):
            following.follow(world.replica(FOLLOWER, index), LEADER)
        await runtime.advance(500)
        world.change(world.keys[0], leader=3)
        await world.publish()
        await runtime.advance(500)
        assert named(link) == [1]

    run_world(scenario, partitions=2)


def test_a_lost_link_has_its_partitions_looked_for_anew_over_another_one() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = Located()
        runtime.addresses = {0: "process", 1: "process", 2: "other"}
        link, other = runtime.play("process"), runtime.play("other")
        following = made(runtime)
        for index in range(3):
            following.follow(world.replica(FOLLOWER, index), LEADER)
        await runtime.advance(1_000)
        following.leave(world.replica(FOLLOWER, 1))
        runtime.links["process"] = again = FakeLink()
        link.lose()
        assert runtime.asked[1:] == []
        await runtime.advance(19)
        assert runtime.asked[1:] == []
        await runtime.advance(1)
        assert [indexes for _, indexes in runtime.asked[1:]] == [[0]]
        assert (named(again), named(other)) == ([0], [2])
        following.leave(world.replica(FOLLOWER, 0))
        following.follow(world.replica(FOLLOWER, 0), LEADER)
        await runtime.advance(20)
        assert ReplicateAsk(*again.requests[-1].header).forgotten == []
        assert named(again) == [0, 0], "the new link is used on"

    run_world(scenario, partitions=3)


def test_who_is_refused_leaves_the_link_and_the_others_stay() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = Located()
        runtime.addresses = {0: "process", 1: "process"}
        link = runtime.play("process")
        following = made(runtime)
        for index in range(2):
            following.follow(world.replica(FOLLOWER, index), LEADER)
        await runtime.advance(0)
        runtime.addresses = {0: "other"}
        other = runtime.play("other")
        following.refused(world.replica(FOLLOWER, 0))
        await runtime.advance(20)
        assert named(other) == [0]
        link.take().reply([], b"")
        asked = ReplicateAsk(*link.requests[-1].header)
        assert asked.forgotten == [world.keys[0]]
        assert link.is_open

    run_world(scenario, partitions=2)


def test_who_is_refused_and_follows_nobody_any_more_is_not_looked_for() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = Located()
        following = made(runtime)
        partition = world.replica(FOLLOWER)
        await world.elect(FOLLOWER)
        following.refused(partition)
        await runtime.advance(1_000)
        assert runtime.asked == []

    run_world(scenario)


def test_who_is_left_is_looked_for_at_once_the_next_time() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        runtime = Located()
        following = made(runtime)
        partition = world.replica(FOLLOWER)
        for _ in range(3):
            following.refused(partition)
        following.leave(partition)
        following.follow(partition, LEADER)
        await runtime.advance(0)
        assert len(runtime.asked) == 1

    run_world(scenario)


@pytest.mark.parametrize(("code", "is_lost"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_a_cut_that_fails_is_tried_later_and_a_log_that_is_lost_given_up(
    code: int, is_lost: bool
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(LEADER, *[batch() for _ in range(5)])
        await world.pass_ms(100)
        await written
        partition = world.replica(FOLLOWER)
        world.disks[FOLLOWER].fail("pwritev", code)
        stream: Any = _Stream()
        runtime = Located()
        made(runtime).cut(partition, Cut(2), stream)
        await runtime.advance(0)
        await settle()
        assert stream.noted == ["resume later"]
        assert partition.in_surgery == is_lost, "a thread closes what is lost"
        assert partition.machine.log_end_offset == partition.log.log_end_offset
        await world.pass_ms(10)
        assert partition.log.offline == is_lost
        assert world.failed == [(FOLLOWER, world.keys)] * is_lost

    run_world(scenario, brokers=2)


class _Upkeep:
    """Saves log starts when the test says so."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime
        self.begun = 0

    async def checkpoint(self, partition: Partition) -> None:
        self.begun += 1
        await self._runtime.sleep(0.1)
        job = partition.log.begin_checkpoint(self._runtime.now_ms(), partition.high_watermark)
        if job is not None:
            job.run()
            partition.log.end_checkpoint(job)


def test_a_log_start_is_saved_once_however_often_it_is_told_and_again_where_it_moved() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(LEADER, *[batch() for _ in range(5)])
        await world.pass_ms(100)
        await written
        partition = world.replica(FOLLOWER)
        runtime = Located()
        runtime.addresses = {0: "process"}
        link = runtime.play("process")
        upkeep: Any = _Upkeep(runtime)
        following = made(runtime, upkeep)
        following.follow(partition, LEADER)
        await runtime.advance(0)
        stream = following._stream_of[partition]
        partition.log.delete_records_to(2)
        following.starts_later(partition, stream)
        following.starts_later(partition, stream)
        await runtime.advance(50)
        assert upkeep.begun == 1
        assert named(link) == [0]
        await runtime.advance(50)
        assert (upkeep.begun, partition.log.durable_start_offset) == (1, 2)
        assert named(link) == [0, 0]
        partition.log.delete_records_to(4)
        following.starts_later(partition, stream)
        await runtime.advance(100)
        assert (upkeep.begun, partition.log.durable_start_offset) == (2, 4)
        following.leave(partition)
        partition.log.delete_records_to(5)
        following.starts_later(partition, stream)
        await runtime.advance(1_000)
        assert upkeep.begun == 2, "it is not followed any more"

    run_world(scenario, brokers=2)
