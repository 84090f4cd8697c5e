"""Which leaders are looked up at their brokers, which no longer, and effects of a lost link."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from raylog.actors.common_messages import PartitionKey
from raylog.actors.names import broker_name
from raylog.actors.replica.log_manager import LogManager
from raylog.actors.replica.messages import ReplicateAsk
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.replica_fetcher_manager import ReplicaFetcherManager
from raylog.actors.replica.rules.divergence import Truncation
from raylog.actors.runtime.base import PeerTimeout
from tests.worlds.decorators import in_world
from tests.worlds.replica.actor import CLUSTER, SETTINGS, ReplicaWorld, run_world
from tests.worlds.replica.fake_host import RecordingFetcher, Unthrottled
from tests.worlds.runtime import FakeLink, FakeRuntime, settle
from tests.worlds.storage.logs import batch

LEADER, FOLLOWER = 1, 2


class Located(FakeRuntime):
    """A runtime in which brokers answer from `addresses`, and every process is reachable."""

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


def made(runtime: FakeRuntime, upkeep: LogManager | None = None) -> ReplicaFetcherManager:
    fakes: Any = (Unthrottled(), upkeep)
    process: Any = runtime
    return ReplicaFetcherManager(process, SETTINGS, CLUSTER, FOLLOWER, *fakes)


def named(link: FakeLink) -> list[int]:
    """The partitions that were asked for over a link."""
    asked = [ReplicateAsk(*one.header) for one in link.requests]
    return [change[1] for one in asked for change in one.changes]


@in_world(run_world, partitions=4)
async def test_one_lookup_per_broker_covers_all_partitions_followed_there(
    world: ReplicaWorld,
) -> None:
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


@in_world(run_world, partitions=2)
async def test_only_who_is_not_found_yet_is_looked_for_again(world: ReplicaWorld) -> None:
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


@in_world(run_world)
async def test_a_broker_that_does_not_answer_is_asked_again(world: ReplicaWorld) -> None:
    runtime = Located()
    runtime.addresses = {0: "process"}
    link = runtime.play("process")
    runtime.silent = 1
    made(runtime).follow(world.replica(FOLLOWER), LEADER)
    await runtime.advance(19)
    assert named(link) == []
    await runtime.advance(1)
    assert named(link) == [0]


@in_world(run_world, partitions=2)
async def test_a_process_that_is_gone_keeps_nobody_from_another(world: ReplicaWorld) -> None:
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


@in_world(run_world)
async def test_lookup_waits_until_the_truncation_ends(world: ReplicaWorld) -> None:
    runtime = Located()
    runtime.addresses = {0: "process"}
    link = runtime.play("process")
    partition = world.replica(FOLLOWER)
    partition.work.reserve(lambda: None)
    made(runtime).follow(partition, LEADER)
    await runtime.advance(10)
    assert named(link) == []
    partition.work.release()
    await runtime.advance(20)
    assert named(link) == [0]


@pytest.mark.parametrize("change", [{"leader": 3}, {"leader": FOLLOWER}, {"leader": -1}])
@in_world(run_world)
async def test_leader_change_stops_the_lookup_of_the_old_leader(
    world: ReplicaWorld, *, change: dict[str, int]
) -> None:
    runtime = Located()
    made(runtime).follow(world.replica(FOLLOWER), LEADER)
    await runtime.advance(0)
    asked = len(runtime.asked)
    await world.elect(**change)
    await runtime.advance(1_000)
    assert len(runtime.asked) == asked


def test_leader_change_while_the_link_opens_drops_the_partition() -> None:
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


@in_world(run_world, partitions=3)
async def test_a_lost_link_has_its_partitions_looked_for_anew_over_another_one(
    world: ReplicaWorld,
) -> None:
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


@in_world(run_world, partitions=2)
async def test_refused_partition_leaves_the_link_and_the_others_stay(world: ReplicaWorld) -> None:
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


@in_world(run_world)
async def test_refused_partition_without_a_leader_is_not_looked_up(
    world: ReplicaWorld,
) -> None:
    runtime = Located()
    following = made(runtime)
    partition = world.replica(FOLLOWER)
    await world.elect(FOLLOWER)
    following.refused(partition)
    await runtime.advance(1_000)
    assert runtime.asked == []


@in_world(run_world)
async def test_lookup_after_leaving_starts_without_backoff(world: ReplicaWorld) -> None:
    runtime = Located()
    following = made(runtime)
    partition = world.replica(FOLLOWER)
    for _ in range(3):
        following.refused(partition)
    following.leave(partition)
    following.follow(partition, LEADER)
    await runtime.advance(0)
    assert len(runtime.asked) == 1


@pytest.mark.parametrize(("code", "is_lost"), [(errno.ENOSPC, False), (errno.EIO, True)])
@in_world(run_world, brokers=2)
async def test_a_cut_that_fails_is_tried_later_and_a_log_that_is_lost_given_up(
    world: ReplicaWorld, *, code: int, is_lost: bool
) -> None:
    written = world.produce(LEADER, *[batch() for _ in range(5)])
    await world.pass_ms(100)
    await written
    partition = world.replica(FOLLOWER)
    world.disks[FOLLOWER].fail("pwritev", code)
    stream: Any = RecordingFetcher()
    runtime = Located()
    made(runtime).truncate(partition, Truncation(2), stream)
    await runtime.advance(0)
    await settle()
    assert stream.noted == ["resume later"]
    assert partition.work.is_reserved == is_lost, "a thread closes what is lost"
    assert partition.machine.log_end_offset == partition.log.log_end_offset
    await world.pass_ms(10)
    assert partition.log.offline == is_lost
    assert world.failed == [(FOLLOWER, world.keys)] * is_lost


class _Upkeep:
    """Saves log start offsets on request."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime
        self.begun = 0

    async def checkpoint(self, partition: Partition) -> None:
        self.begun += 1
        await self._runtime.sleep(0.1)
        job = partition.log.checkpoints.begin(self._runtime.now_ms(), partition.high_watermark)
        if job is not None:
            job.run()
            partition.log.checkpoints.end(job)


@in_world(run_world, brokers=2)
async def test_a_log_start_is_saved_once_however_often_it_is_reported_and_again_where_it_moved(
    world: ReplicaWorld,
) -> None:
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
    stream = following._fetcher_of[partition]
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
