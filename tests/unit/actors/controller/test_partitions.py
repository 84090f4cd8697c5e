"""Openings, losses and in-sync replicas of partitions."""

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.controller.messages import (
    AllocateProducerIds,
    AlterPartitions,
    AlterReassignments,
    ElectLeaders,
    IsrChange,
    IsrOutcome,
    OpenedReplica,
    PartitionsOpened,
    ProducerIdBlock,
    ReassignPartition,
    ReplicasLost,
)
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.incarnations import name_of
from raylog.actors.metadata.features import ELIGIBLE_LEADERS
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    NO_LEADER,
    FeatureChanged,
    PartitionChanged,
    ProducerIdsAllocated,
    Record,
)
from raylog.wire.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tests.worlds.controller.machine import Controlled


def opened(world: Controlled, broker_id: int, *replicas: OpenedReplica) -> list[Record]:
    asked = PartitionsOpened(broker_id, world.epochs[broker_id], list(replicas))
    decision = world.machine.partitions_opened(asked)
    world.carry(decision)
    return decision.records


def lost(world: Controlled, broker_id: int, *keys: tuple[TopicId, int]) -> list[Record]:
    asked = ReplicasLost(broker_id, world.epochs[broker_id], list(keys))
    return world.machine.replicas_lost(asked).records


# ---- openings --------------------------------------------------------------------------------


def test_the_first_opening_leaves_the_leader_epoch_alone() -> None:
    world = Controlled()
    topic_id = world.topic("t", (0,))
    assert opened(world, 0, OpenedReplica(topic_id, 0, "a")) == [
        PartitionChanged(topic_id, 0, incarnations={0: "a"})
    ]
    partition = world.image.topics[topic_id].partitions[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)


def test_every_further_opening_of_the_leaders_log_begins_a_leader_epoch() -> None:
    world = Controlled()
    topic_id = world.topic("t", (0,))
    opened(world, 0, OpenedReplica(topic_id, 0, "a"))
    assert opened(world, 0, OpenedReplica(topic_id, 0, "b")) == [
        PartitionChanged(topic_id, 0, leader=0, incarnations={0: "b"})
    ]
    assert world.image.topics[topic_id].partitions[0].leader_epoch == 1


def test_a_repeated_report_changes_nothing() -> None:
    world = Controlled()
    topic_id = world.topic("t", (0,))
    opened(world, 0, OpenedReplica(topic_id, 0, "a"))
    assert opened(world, 0, OpenedReplica(topic_id, 0, "a")) == []


def test_a_report_of_an_earlier_opening_that_comes_late_changes_nothing() -> None:
    world = Controlled()
    topic_id = world.topic("t", (0,))
    later = name_of("replica-2", "broker", 10)
    opened(world, 0, OpenedReplica(topic_id, 0, later))
    assert opened(world, 0, OpenedReplica(topic_id, 0, name_of("replica-1", "broker", 9))) == []
    other = name_of("replica-3", "another", 1)
    assert opened(world, 0, OpenedReplica(topic_id, 0, other)) == [
        PartitionChanged(topic_id, 0, leader=0, incarnations={0: other})
    ]


def test_a_follower_that_opens_its_log_again_must_catch_up_to_be_in_sync() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    opened(world, 1, OpenedReplica(topic_id, 0, "a"))
    assert opened(world, 1, OpenedReplica(topic_id, 0, "b")) == [
        PartitionChanged(topic_id, 0, isr=(0,), incarnations={1: "b"})
    ]
    assert opened(world, 1, OpenedReplica(topic_id, 0, "c")) == [
        PartitionChanged(topic_id, 0, incarnations={1: "c"})
    ]


def test_a_leader_that_opens_its_log_again_hands_over_to_who_is_in_sync() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2))
    opened(world, 0, OpenedReplica(topic_id, 0, "a"))
    assert opened(world, 0, OpenedReplica(topic_id, 0, "b")) == [
        PartitionChanged(topic_id, 0, leader=1, isr=(1, 2), incarnations={0: "b"})
    ]


@pytest.mark.parametrize("known", [False, True])
def test_a_damaged_log_is_neither_in_sync_nor_eligible(known: bool) -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    if known:
        opened(world, 0, OpenedReplica(topic_id, 0, "a"))
    assert opened(world, 0, OpenedReplica(topic_id, 0, "b", whole=False)) == [
        PartitionChanged(topic_id, 0, leader=1, isr=(1,), incarnations={0: "b"}, lacking=(0,))
    ]


@pytest.mark.parametrize("uses_elr", [False, True])
def test_the_last_in_sync_does_not_lead_with_a_damaged_log(uses_elr: bool) -> None:
    world = Controlled(brokers=2)
    world.carry(Decision([FeatureChanged(ELIGIBLE_LEADERS, int(uses_elr), 1)], None))
    topic_id = world.topic("t", (0, 1))
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,))], None))
    opened(world, 0, OpenedReplica(topic_id, 0, "a"))
    assert opened(world, 0, OpenedReplica(topic_id, 0, "b", whole=False)) == [
        PartitionChanged(
            topic_id,
            0,
            leader=NO_LEADER,
            isr=(),
            incarnations={0: "b"},
            last_known_elr=(0,),
            lacking=(0,),
        )
    ]
    assert opened(world, 0, OpenedReplica(topic_id, 0, "c", whole=False)) == [
        PartitionChanged(topic_id, 0, incarnations={0: "c"})
    ]
    world.register(0, incarnation="new")
    world.beat(0)
    state = world.image.topics[topic_id].partitions[0]
    assert (state.leader, state.isr) == (NO_LEADER, ())
    world.carry(world.machine.leaders.elect(ElectLeaders(True, [("t", 0)], 0)))
    state = world.image.topics[topic_id].partitions[0]
    assert (state.leader, state.isr, state.lacking) == (1, (1,), (0,))


def without_records(world: Controlled) -> TopicId:
    """A partition whose last replica in sync, broker 0's, comes back without its records."""
    topic_id = world.topic("t", (0, 1))
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,))], None))
    opened(world, 1, OpenedReplica(topic_id, 0, "f"))
    opened(world, 0, OpenedReplica(topic_id, 0, "a"))
    opened(world, 0, OpenedReplica(topic_id, 0, "b", whole=False))
    return topic_id


def test_the_last_in_sync_leads_again_when_it_has_its_records_back() -> None:
    world = Controlled(brokers=2)
    topic_id = without_records(world)
    assert opened(world, 0, OpenedReplica(topic_id, 0, "c")) == [
        PartitionChanged(
            topic_id, 0, leader=0, isr=(0,), incarnations={0: "c"}, last_known_elr=(), lacking=()
        )
    ]


def test_an_unclean_election_takes_who_lacks_records_only_if_nobody_else_is_there() -> None:
    world = Controlled(brokers=2)
    topic_id = without_records(world)
    world.pass_time(10_000, 0)  # broker 1 is silent, and fenced
    election = ElectLeaders(True, [("t", 0)], 0)
    (alone,) = world.machine.leaders.elect(election).records
    assert isinstance(alone, PartitionChanged)
    assert (alone.leader, alone.lacking) == (0, ())
    world.beat(1)
    (other,) = world.machine.leaders.elect(election).records
    assert isinstance(other, PartitionChanged)
    assert (other.leader, other.lacking) == (1, None)
    world.carry(Decision([other], None))
    state = world.image.topics[topic_id].partitions[0]
    joined = IsrChange(topic_id, 0, state.leader_epoch, state.partition_epoch, ((1, "f"), (0, "b")))
    asked = AlterPartitions(1, world.epochs[1], [joined])
    world.carry(world.machine.alter_partitions(asked))
    state = world.image.topics[topic_id].partitions[0]
    assert (state.isr, state.lacking) == ((1, 0), ())


def test_a_replica_that_is_taken_away_lacks_nothing_any_more() -> None:
    world = Controlled(brokers=3)
    topic_id = without_records(world)
    world.carry(world.machine.leaders.elect(ElectLeaders(True, [("t", 0)], 0)))
    asked = AlterReassignments([ReassignPartition("t", 0, (1,))])
    world.carry(world.machine.reassignments.alter(asked))
    state = world.image.topics[topic_id].partitions[0]
    assert (state.replicas, state.lacking) == ((1,), ())


def test_an_image_of_a_snapshot_knows_who_lacks_records() -> None:
    world = Controlled(brokers=2)
    topic_id = without_records(world)
    image = MetadataImage()
    image.apply_update(-1, world.image.offset, world.image.snapshot())
    assert image == world.image
    assert image.topics[topic_id].partitions[0].lacking == (0,)


def test_a_partition_without_a_leader_is_led_when_one_opens_that_may() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    world.carry(Decision([PartitionChanged(topic_id, 0, leader=NO_LEADER, isr=(), elr=(0,))], None))
    assert opened(world, 0, OpenedReplica(topic_id, 0, "a")) == [
        PartitionChanged(topic_id, 0, leader=0, isr=(0,), incarnations={0: "a"}, elr=())
    ]


def test_a_fenced_broker_opens_without_leading() -> None:
    world = Controlled()
    topic_id = world.topic("t", (0,))
    world.register(0, incarnation="new")
    assert opened(world, 0, OpenedReplica(topic_id, 0, "a")) == [
        PartitionChanged(topic_id, 0, incarnations={0: "a"})
    ]


def test_openings_of_what_is_gone_or_elsewhere_are_passed_over() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (1,))
    nowhere = TopicId(b"x" * 16)
    assert (
        opened(
            world,
            0,
            OpenedReplica(topic_id, 0, "a"),
            OpenedReplica(topic_id, 5, "a"),
            OpenedReplica(nowhere, 0, "a"),
        )
        == []
    )


def test_reports_of_an_earlier_process_are_refused() -> None:
    world = Controlled()
    topic_id = world.topic("t", (0,))
    stale = world.epochs[0]
    world.register(0, incarnation="new")
    with pytest.raises(StaleBrokerEpoch):
        world.machine.partitions_opened(
            PartitionsOpened(0, stale, [OpenedReplica(topic_id, 0, "a")])
        )
    with pytest.raises(StaleBrokerEpoch):
        world.machine.replicas_lost(ReplicasLost(0, stale, [(topic_id, 0)]))
    with pytest.raises(StaleBrokerEpoch):
        world.machine.allocate_producer_ids(AllocateProducerIds(0, stale))
    with pytest.raises(StaleBrokerEpoch):
        world.machine.alter_partitions(AlterPartitions(0, stale, []))


# ---- losses ----------------------------------------------------------------------------------


def test_a_lost_leader_is_replaced_by_the_first_live_replica_in_sync() -> None:
    world = Controlled(brokers=4)
    topic_id = world.topic("t", (0, 2, 1, 3), (1, 0, 2, 3))
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0, 1, 3))], None))
    assert lost(world, 0, (topic_id, 0), (topic_id, 1)) == [
        PartitionChanged(topic_id, 0, leader=1, isr=(1, 3)),
        PartitionChanged(topic_id, 1, isr=(1, 2, 3)),
    ]


def test_the_only_replica_in_sync_stays_so() -> None:
    world = Controlled(brokers=2)
    alone, shared = world.topic("alone", (0,)), world.topic("shared", (0, 1))
    world.carry(Decision([PartitionChanged(shared, 0, isr=(0,))], None))
    assert lost(world, 0, (alone, 0), (shared, 0), (TopicId(b"x" * 16), 0)) == []


def test_a_replica_that_is_not_in_sync_is_no_loss() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,))], None))
    assert lost(world, 1, (topic_id, 0)) == []


# ---- in-sync replicas ------------------------------------------------------------------------


def alteration(world: Controlled, topic: TopicId, **changes: object) -> AlterPartitions:
    broker_id = changes.pop("broker_id", 0)
    assert isinstance(broker_id, int)
    values: dict[str, object] = {
        "topic_id": topic,
        "partition": 0,
        "leader_epoch": 0,
        "partition_epoch": 2,
        "isr": ((0, "a"),),
        **changes,
    }
    change = IsrChange(**values)  # type: ignore[arg-type]  # as the dataclass checks
    return AlterPartitions(broker_id, world.epochs[broker_id], [change])


def altered(world: Controlled, asked: AlterPartitions) -> tuple[list[Record], IsrOutcome]:
    """Carry it out; its records and its outcome."""
    decision = world.machine.alter_partitions(asked)
    (outcome,) = world.carry(decision)
    return decision.records, outcome


@pytest.fixture
def pair() -> tuple[Controlled, TopicId]:
    """A partition on brokers 0 (leader) and 1, opened by both; broker 2 beside them."""
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1))
    opened(world, 0, OpenedReplica(topic_id, 0, "a"))
    opened(world, 1, OpenedReplica(topic_id, 0, "b"))
    return world, topic_id


def test_a_leader_shrinks_and_grows_its_isr(pair: tuple[Controlled, TopicId]) -> None:
    world, topic_id = pair
    key = (topic_id, 0)
    assert altered(world, alteration(world, topic_id)) == (
        [PartitionChanged(*key, isr=(0,))],
        IsrOutcome(*key, leader=0, leader_epoch=0, partition_epoch=3, isr=(0,)),
    )
    both = alteration(world, topic_id, partition_epoch=3, isr=((0, "a"), (1, "b")))
    grown = IsrOutcome(*key, leader=0, leader_epoch=0, partition_epoch=4, isr=(0, 1))
    assert altered(world, both) == ([PartitionChanged(*key, isr=(0, 1))], grown)
    same = alteration(world, topic_id, partition_epoch=4, isr=((0, "a"), (1, "b")))
    assert altered(world, same) == ([], grown)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"leader_epoch": -1}, FencedLeaderEpoch),
        ({"leader_epoch": 1}, NotController),
        ({"partition_epoch": 1}, InvalidUpdateVersion),
        ({"partition_epoch": 3}, NotController),
        ({"isr": ((1, "b"),)}, InvalidRequest),
        ({"isr": ((0, "a"), (2, "c"))}, InvalidRequest),
        ({"isr": ((0, "a"), (1, "older"))}, IneligibleReplica),
        ({"topic_id": TopicId(b"x" * 16)}, UnknownTopicId),
        ({"partition": 1}, UnknownTopicOrPartition),
    ],
)
def test_alterations_that_are_late_or_impossible_are_refused(
    pair: tuple[Controlled, TopicId], changes: dict[str, object], refusal: type[KafkaError]
) -> None:
    world, topic_id = pair
    records, outcome = altered(world, alteration(world, topic_id, **changes))
    assert records == []
    assert outcome.error is refusal.code
    known = (topic_id, 0) == (outcome.topic_id, outcome.partition)
    assert outcome[4:] == ((0, 0, 2, (0, 1)) if known else (-1, -1, -1, ()))


def test_a_refused_alteration_keeps_no_other(pair: tuple[Controlled, TopicId]) -> None:
    world, topic_id = pair
    late = alteration(world, topic_id, partition_epoch=1)
    good = alteration(world, topic_id)
    both = good._replace(changes=[*late.changes, *good.changes])
    decision = world.machine.alter_partitions(both)
    assert decision.records == [PartitionChanged(topic_id, 0, isr=(0,))]
    assert [one.error for one in decision.response] == [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NONE,
    ]


def test_one_request_changes_a_partition_once(pair: tuple[Controlled, TopicId]) -> None:
    world, topic_id = pair
    good = alteration(world, topic_id)
    decision = world.machine.alter_partitions(good._replace(changes=good.changes * 2))
    assert decision.records == [PartitionChanged(topic_id, 0, isr=(0,))]
    assert [one.error for one in decision.response] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]


def test_a_fenced_member_is_ineligible(pair: tuple[Controlled, TopicId]) -> None:
    world, topic_id = pair
    world.pass_time(6_001, 0, 2)
    world.expire()
    asked = alteration(world, topic_id, partition_epoch=3, isr=((0, "a"), (1, "b")))
    _, outcome = altered(world, asked)
    assert outcome.error is ErrorCode.INELIGIBLE_REPLICA
    assert outcome.message == "broker 1 is not live as b"


def test_only_the_leader_alters(pair: tuple[Controlled, TopicId]) -> None:
    world, topic_id = pair
    _, outcome = altered(world, alteration(world, topic_id, broker_id=1, isr=((1, "b"),)))
    assert outcome.error is ErrorCode.FENCED_LEADER_EPOCH


# ---- producer ids ----------------------------------------------------------------------------


def test_blocks_of_producer_ids_never_overlap() -> None:
    world = Controlled(brokers=2)
    epoch = world.epochs[0]
    first = world.machine.allocate_producer_ids(AllocateProducerIds(0, epoch))
    assert first == Decision([ProducerIdsAllocated(0, epoch, 1000)], ProducerIdBlock(0, 1000))
    world.carry(first)
    second = world.machine.allocate_producer_ids(AllocateProducerIds(1, world.epochs[1]))
    assert second.response == ProducerIdBlock(1000, 1000)
