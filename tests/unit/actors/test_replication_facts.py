"""The facts about brokers, replicas and the controller, one test or more each.

Where else they are tested, with more cases:

| fact                                      | tests                                               |
|-------------------------------------------|-----------------------------------------------------|
| placement                                 | controller/test_placement, test_topics              |
| log ends and high watermarks              | replica/test_machine, test_replication              |
| in sync by time                           | replica/test_machine, controller/test_partitions    |
| a failed leader, reassignment             | controller/test_partitions, test_brokers,           |
|                                           | test_leaders, test_reassignments                    |
| truncation by epoch                       | replica/test_divergence, test_replication, sim      |
| controller, coordinators, not ZooKeeper   | controller/test_actor, test_quorum, group/test_facts|
| a partition's files                       | storage/test_files, test_log                        |
| OFFSET_NOT_AVAILABLE (KIP-207)            | replica/test_replication                            |
| other refusals of writes and offsets      | gateway/test_produce, test_partition_requests       |
"""

from __future__ import annotations

import random

import pytest

from raylog.actors.config import BrokerSettings
from raylog.actors.controller.api import (
    AlterReassignments,
    ElectLeaders,
    ReassignPartition,
)
from raylog.actors.controller.decision import Decision
from raylog.actors.controller.placement import ring_of
from raylog.actors.controller.unclean import unclean_elections
from raylog.actors.metadata.image import BrokerRegistration
from raylog.actors.metadata.records import NO_LEADER, BrokerFenced, PartitionChanged
from raylog.actors.replica.api import LATEST_TIMESTAMP, OFFSET_FOR
from raylog.actors.replica.config import replication_settings
from raylog.actors.replica.leading import Proposal
from raylog.actors.replica.machine import (
    Appended,
    Effect,
    Followed,
    FollowerFetched,
    LeadershipChanged,
    PartitionMachine,
    Propose,
    ReleaseUpTo,
    TimePassed,
)
from raylog.storage.index import decode_head
from raylog.storage.log import Slice
from raylog.wire.errors import OffsetNotAvailable
from raylog.wire.records import iter_batches
from tests.support.controllers import Controlled
from tests.support.disk import FaultyDisk
from tests.support.logs import DIRECTORY, append, batch, open_log
from tests.support.replica_world import ReplicaWorld, run_world
from tests.support.replicas import leadership

ME, LEFT, RIGHT = 1, 2, 3
LAG_MS = 30_000


def leading(end: int = 0) -> PartitionMachine:
    """Of three replicas that are in sync, with the defaults."""
    machine = PartitionMachine(ME, end, lag_ms_max=LAG_MS)
    machine.handle(LeadershipChanged(leadership(ME, 3, 7), end, 0))
    return machine


def fetched(machine: PartitionMachine, broker: int, offset: int, now_ms: int = 0) -> list[Effect]:
    return machine.handle(FollowerFetched(broker, "a", offset, now_ms))


# ---- placement -------------------------------------------------------------------------------


def brokers(count: int) -> list[BrokerRegistration]:
    return [BrokerRegistration(one, 0, (), None, "d", "i", False, "", "") for one in range(count)]


@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_placement_leader_of_partition_i_on_broker_i_mod_n_and_replica_j_on_i_plus_j(
    count: int,
) -> None:
    """With a rotating start: that of the ring."""
    copies = min(3, count)
    ring = ring_of(brokers(count), copies, random.Random(5))
    for partition in range(3 * count):
        expected = tuple((ring.start + partition + j) % count for j in range(copies))
        assert ring.replicas(partition, copies) == expected


def test_placement_more_partitions_than_brokers_share_fewer_leave_brokers_without() -> None:
    ring = ring_of(brokers(4), 1, random.Random(5))
    led = [ring.replicas(partition, 1)[0] for partition in range(8)]
    assert sorted(led) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(set(led[:3])) == 3, "one of four has nothing"


# ---- log ends and high watermarks ------------------------------------------------------------


def test_leo_a_followers_own_moves_when_it_appends_the_leaders_copy_when_its_next_fetch_comes() -> (
    None
):
    follower = PartitionMachine(LEFT, 0)
    follower.handle(LeadershipChanged(leadership(ME, 3), 0, 0))
    follower.handle(Followed(5, 0))
    assert follower.log_end_offset == 5
    leader = leading()
    leader.handle(Appended(5, 0))
    fetched(leader, RIGHT, 5)
    fetched(leader, LEFT, 0)
    assert leader.high_watermark == 0, "what was sent to it does not count"
    assert fetched(leader, LEFT, 5) == [ReleaseUpTo(5)]


def test_hw_of_a_follower_is_the_smaller_of_its_own_end_and_the_leaders_hw_in_the_answer() -> None:
    follower = PartitionMachine(LEFT, 0)
    follower.handle(LeadershipChanged(leadership(ME, 3), 0, 0))
    assert follower.handle(Followed(5, 3)) == [ReleaseUpTo(3)]
    assert follower.handle(Followed(5, 9)) == [ReleaseUpTo(5)]


def test_hw_of_a_leader_is_the_smallest_leo_in_the_isr() -> None:
    leader = leading()
    leader.handle(Appended(9, 0))
    fetched(leader, LEFT, 7)
    assert fetched(leader, RIGHT, 4) == [ReleaseUpTo(4)]
    assert fetched(leader, RIGHT, 9) == [ReleaseUpTo(7)]


def test_hw_consumers_read_below_it_only() -> None:
    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario)


# ---- in sync ---------------------------------------------------------------------------------


def test_isr_is_by_time_and_not_by_number_of_messages() -> None:
    """`replica.lag.time.max.ms`, 30 s by default."""
    assert replication_settings(BrokerSettings({})).lag_ms_max == LAG_MS
    leader = leading()
    fetched(leader, LEFT, 0)
    fetched(leader, RIGHT, 0)
    leader.handle(Appended(10_000_000, 0))
    fetched(leader, LEFT, 10_000_000, 1)
    assert leader.handle(TimePassed(LAG_MS)) == [], "ten million behind, and in sync"
    without = Proposal(3, 7, ((ME, "a"), (LEFT, "a")))
    assert leader.handle(TimePassed(LAG_MS + 1)) == [Propose(without)]


def test_isr_one_message_behind_for_too_long_is_not_in_sync() -> None:
    leader = leading()
    fetched(leader, LEFT, 0)
    fetched(leader, RIGHT, 0)
    leader.handle(Appended(1, 0))
    fetched(leader, LEFT, 1, LAG_MS)
    fetched(leader, RIGHT, 0, LAG_MS)
    without = Proposal(3, 7, ((ME, "a"), (LEFT, "a")))
    assert leader.handle(TimePassed(LAG_MS + 1)) == [Propose(without)]


def test_acks_all_means_every_isr_member_has_it_in_memory() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(1, batch(3))
        await world.pass_ms(0)
        assert written.done()
        assert [end for end, _ in world.ends()] == [3, 3, 3]
        assert not any(world.replica(one).is_flushed for one in world.brokers)

    run_world(scenario)


def test_acks_all_waits_for_the_disk_where_flush_is_configured() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(1, batch(3))
        await world.pass_ms(100)
        assert await written
        assert world.replica(1).is_flushed

    run_world(scenario, config={"flush.messages": "1"})


# ---- a failed leader -------------------------------------------------------------------------


def failed(world: Controlled, broker_id: int) -> list[PartitionChanged]:
    """What one step changes when a broker is silent for a session and the others are not."""
    others = [one for one in world.epochs if one != broker_id]
    world.pass_time(6_000, *others)
    world.now_ms += 1
    records = world.expire()
    assert records[0] == BrokerFenced(broker_id, world.epochs[broker_id])
    return [one for one in records if isinstance(one, PartitionChanged)]


def test_failed_leader_is_replaced_by_the_first_live_isr_member_in_assigned_order() -> None:
    world = Controlled(brokers=4)
    topic_id = world.topic("t", (0, 2, 3, 1), (0, 2, 3, 1), (3, 0, 1, 2))
    world.carry(Decision([PartitionChanged(topic_id, 1, isr=(0, 1, 3))], None))
    first, second, third = failed(world, 0)
    assert (first.leader, second.leader) == (2, 3)
    assert third.leader is None, "another leads it"


def test_failed_leader_with_no_isr_member_alive_is_waited_for() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,))], None))
    (change,) = failed(world, 0)
    assert change.leader == NO_LEADER
    world.pass_time(60_000, 1)
    assert world.image.topics[topic_id].partitions[0].leader == NO_LEADER
    world.beat(0)
    assert world.image.topics[topic_id].partitions[0].leader == 0, "it has come back"


def test_failed_leader_with_no_isr_member_alive_is_replaced_by_any_where_that_is_allowed() -> None:
    """`unclean.leader.election.enable`."""
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2), configs={"unclean.leader.election.enable": "true"})
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,))], None))
    (change,) = failed(world, 0)
    assert (change.leader, change.isr) == (1, (1,))


def test_failed_leader_replaced_uncleanly_is_said_so() -> None:
    world = Controlled(brokers=4)
    topic_id = world.topic("t", (0, 1, 2), (0, 1, 2))
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,))], None))
    unclean = PartitionChanged(topic_id, 0, leader=1, isr=(1,))
    clean = PartitionChanged(topic_id, 1, leader=1, isr=(1, 2))
    gone = PartitionChanged(topic_id, 1, leader=NO_LEADER)
    assert list(unclean_elections(world.image, [clean, gone, unclean])) == [
        "broker 1 leads t-0 and was not in sync: records that only (0,) had are lost"
    ]
    moved = PartitionChanged(
        topic_id, 0, replicas=(3, 0), adding_replicas=(3,), removing_replicas=(0,)
    )
    world.carry(Decision([moved], None))
    done = PartitionChanged(
        topic_id,
        0,
        leader=3,
        isr=(3,),
        replicas=(3,),
        adding_replicas=(),
        removing_replicas=(),
    )
    assert list(unclean_elections(world.image, [done])) == [], "in sync, so the move has ended"


def test_failed_leader_may_be_replaced_uncleanly_by_hand() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,))], None))
    failed(world, 0)
    (outcome,) = world.carry(world.machine.leaders.elect(ElectLeaders(True, [("t", 0)], 0)))
    assert outcome.error == 0
    assert world.image.topics[topic_id].partitions[0].leader == 1


def test_failed_leader_of_many_partitions_moves_in_one_step() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", *[(0, 1, 2)] * 90, *[(0, 2, 1)] * 90)
    changes = failed(world, 0)
    assert [one.leader for one in changes] == [1] * 90 + [2] * 90
    assert {one.topic_id for one in changes} == {topic_id}


def test_failed_leader_on_reassignment_the_new_list_has_the_order() -> None:
    world = Controlled(brokers=4)
    topic_id = world.topic("t", (0, 1, 2))
    moved = AlterReassignments([ReassignPartition("t", 0, (0, 2, 1))])
    world.carry(world.machine.reassignments.alter(moved))
    (change,) = failed(world, 0)
    assert (change.topic_id, change.leader) == (topic_id, 2)


# ---- truncation ------------------------------------------------------------------------------


def test_truncation_never_by_the_high_watermark_which_lags_one_round() -> None:
    """KIP-101, first case: a follower that restarts keeps what it has above its high watermark."""

    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=2)


def test_truncation_by_leader_epoch_ends_a_fork_that_high_watermarks_would_hide() -> None:
    """KIP-101, second case: two replicas with other records at one offset come to have the same."""

    async def scenario(world: ReplicaWorld) -> None:
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

    run_world(scenario, brokers=2)


# ---- the old roles of ZooKeeper --------------------------------------------------------------


def test_zookeepers_registries_and_its_watches_are_the_controllers() -> None:
    """Brokers and topics are in the metadata, which all follow; sessions end by heartbeats."""
    world = Controlled(brokers=2)
    world.topic("t", (0, 1))
    assert set(world.image.brokers) == {0, 1}
    assert set(world.image.topic_ids) == {"t"}
    before = world.image.offset
    failed(world, 0)
    assert world.image.brokers[0].fenced
    assert world.image.offset > before, "what changed are records behind those that all know"


def test_zookeepers_election_of_a_controller_is_an_epoch_that_only_grows() -> None:
    world = Controlled(brokers=1)
    first = world.image.controller_epoch
    world.machine.replay(world.machine.took_over(first + 1, ((0, "d0"),), world.now_ms))
    assert world.image.controller_epoch == first + 1


# ---- a partition's files ---------------------------------------------------------------------


def test_files_segments_are_named_by_base_offset_and_only_appended_to() -> None:
    disk = FaultyDisk()
    log = open_log(disk, segment_bytes=5_000)
    earlier: dict[str, bytes] = {}
    for _ in range(40):
        append(log, batch(5))
        for name in log.segments:
            written = disk.contents(f"{DIRECTORY}/{name}").rstrip(b"\0")
            assert written.startswith(earlier.get(name, b""))
            earlier[name] = written
    assert len(earlier) > 3
    for name, data in earlier.items():
        first, _ = next(iter_batches(data))
        assert name == f"{first.base_offset:020}.log"


def test_files_the_index_from_offset_to_position_is_sparse() -> None:
    disk = FaultyDisk()
    log = open_log(disk, index_interval_bytes=4_096)
    for _ in range(200):
        append(log, batch(1, size=500))
    found = log.read(150, 1, 200)
    assert isinstance(found, Slice)
    assert found.next_offset == 151
    log.close(200)
    head = decode_head(disk.contents(f"{DIRECTORY}/{log.segments[0][:20]}.index"))
    assert head is not None
    assert 0 < head.entries <= log.size // 4_096 + 1


def test_files_reads_are_slices_of_a_segment_and_carry_no_bytes() -> None:
    """The gateway sends them out of its map of the file: out of the page cache."""

    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(1, batch(3))
        await world.pass_ms(60)
        await written
        part = await world.fetch(1)
        assert part.segment_id.endswith(f"{0:020}.log")
        assert (part.position, part.length) == (0, len(world.raw(1)))
        assert not any(isinstance(field, bytes) and len(field) > 16 for field in part)

    run_world(scenario)


# ---- refusals --------------------------------------------------------------------------------


def test_refusal_offset_not_available_before_the_high_watermark_reaches_the_epochs_start() -> None:
    """KIP-207: the end of the log must not seem to go back."""
    leader = leading(end=5)
    before = leader.is_before_epoch_start
    fetched(leader, LEFT, 5)
    assert fetched(leader, RIGHT, 5) == [ReleaseUpTo(5)]
    assert (before, leader.is_before_epoch_start) == (True, False)

    async def scenario(world: ReplicaWorld) -> None:
        written = world.produce(1, batch(5))
        await world.pass_ms(0)
        await written
        await world.kill(1)
        await world.kill(3)
        await world.elect(2, isr=(2, 3))
        with pytest.raises(OffsetNotAvailable):
            await world.ask(2, OFFSET_FOR, -1, LATEST_TIMESTAMP, 0)

    run_world(scenario)
