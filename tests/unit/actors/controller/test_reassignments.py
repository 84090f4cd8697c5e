"""Reassignments of replicas."""

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.controller.messages import (
    AlterPartitions,
    AlterReassignments,
    IsrChange,
    IsrOutcome,
    ReassignOutcome,
    ReassignPartition,
)
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.metadata.records import NO_LEADER, BrokerFenced, PartitionChanged, Record
from raylog.wire.errors import ErrorCode
from tests.worlds.controller.machine import Controlled


def reassigned(
    world: Controlled, replicas: tuple[int, ...] | None, *, name: str = "t", **options: bool
) -> tuple[list[Record], ReassignOutcome]:
    asked = AlterReassignments([ReassignPartition(name, 0, replicas)], **options)
    decision = world.machine.reassignments.alter(asked)
    (outcome,) = world.carry(decision)
    return decision.records, outcome


def in_sync(
    world: Controlled, topic_id: TopicId, leader: int, *isr: int
) -> tuple[list[Record], IsrOutcome]:
    """The leader has these replicas in sync."""
    opened = {one: f"o{one}" for one in world.state(topic_id).replicas}
    world.carry(Decision([PartitionChanged(topic_id, 0, incarnations=opened)], None))
    state = world.state(topic_id)
    members = tuple((one, f"o{one}") for one in isr)
    change = IsrChange(topic_id, 0, state.leader_epoch, state.partition_epoch, members)
    asked = AlterPartitions(leader, world.epochs[leader], [change])
    decision = world.machine.alter_partitions(asked)
    (outcome,) = world.carry(decision)
    return decision.records, outcome


def test_a_partition_moves_when_all_its_new_replicas_are_in_sync() -> None:
    world = Controlled(brokers=4)
    topic_id = world.topic("t", (0, 1))
    begun, outcome = reassigned(world, (1, 2, 3))
    assert outcome == ReassignOutcome("t", 0)
    assert begun == [
        PartitionChanged(
            topic_id,
            0,
            replicas=(1, 2, 3, 0),
            adding_replicas=(2, 3),
            removing_replicas=(0,),
        )
    ]
    nearly, _ = in_sync(world, topic_id, 0, 0, 1, 2)
    assert nearly == [PartitionChanged(topic_id, 0, isr=(0, 1, 2))]
    done, result = in_sync(world, topic_id, 0, 0, 1, 2, 3)
    assert done == [
        PartitionChanged(
            topic_id,
            0,
            leader=1,
            isr=(1, 2, 3),
            replicas=(1, 2, 3),
            adding_replicas=(),
            removing_replicas=(),
        )
    ]
    assert (result.error, result.leader, result.isr) == (ErrorCode.NEW_LEADER_ELECTED, 1, (1, 2, 3))
    state = world.image.topics[topic_id].partitions[0]
    assert set(state.incarnations) == {1, 2, 3}


def test_a_leader_that_stays_is_told_its_new_epoch() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1))
    reassigned(world, (0, 2))
    done, result = in_sync(world, topic_id, 0, 0, 1, 2)
    assert done == [
        PartitionChanged(
            topic_id,
            0,
            leader=0,
            isr=(0, 2),
            replicas=(0, 2),
            adding_replicas=(),
            removing_replicas=(),
        )
    ]
    assert (result.error, result.leader, result.leader_epoch) == (ErrorCode.NONE, 0, 1)


def test_taking_replicas_away_or_turning_them_round_is_done_at_once() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2))
    assert reassigned(world, (2, 1, 0)) == (
        [PartitionChanged(topic_id, 0, replicas=(2, 1, 0))],
        ReassignOutcome("t", 0),
    )
    assert reassigned(world, (2, 1, 0)) == ([], ReassignOutcome("t", 0))
    assert reassigned(world, (2,)) == (
        [PartitionChanged(topic_id, 0, leader=2, isr=(2,), replicas=(2,))],
        ReassignOutcome("t", 0),
    )


def test_a_reassignment_is_called_off() -> None:
    world = Controlled(brokers=4)
    topic_id = world.topic("t", (0, 1))
    reassigned(world, (2, 3))
    in_sync(world, topic_id, 0, 0, 1, 2)
    assert reassigned(world, None) == (
        [
            PartitionChanged(
                topic_id,
                0,
                leader=0,
                isr=(0, 1),
                replicas=(0, 1),
                adding_replicas=(),
                removing_replicas=(),
            )
        ],
        ReassignOutcome("t", 0),
    )
    assert reassigned(world, None) == (
        [],
        ReassignOutcome(
            "t",
            0,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            "No partition reassignment is in progress.",
        ),
    )


def test_another_target_replaces_the_first() -> None:
    world = Controlled(brokers=4)
    topic_id = world.topic("t", (0, 1))
    reassigned(world, (2, 1))
    assert reassigned(world, (3, 1)) == (
        [
            PartitionChanged(
                topic_id,
                0,
                replicas=(3, 1, 0, 2),
                adding_replicas=(2, 3),
                removing_replicas=(0, 2),
            )
        ],
        ReassignOutcome("t", 0),
    )
    reassigned(world, None)
    assert world.image.topics[topic_id].partitions[0].replicas == (1, 0), "where it began"


def test_a_move_that_is_asked_for_again_goes_on_and_can_be_called_off() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0,))
    first, _ = reassigned(world, (1,))
    assert first == [
        PartitionChanged(topic_id, 0, replicas=(1, 0), adding_replicas=(1,), removing_replicas=(0,))
    ]
    assert reassigned(world, (1,)) == ([], ReassignOutcome("t", 0))
    reassigned(world, None)
    assert world.image.topics[topic_id].partitions[0].replicas == (0,)


def test_a_target_without_what_was_added_is_reached_at_once() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1))
    reassigned(world, (0, 2))
    reassigned(world, (0, 1))
    state = world.image.topics[topic_id].partitions[0]
    assert (state.replicas, state.is_reassigned) == ((0, 1), False)


@pytest.mark.parametrize("unclean", ["true", "false"])
def test_calling_off_may_need_an_unclean_election(unclean: str) -> None:
    world = Controlled(brokers=2)
    configs: dict[str, str | None] = {"unclean.leader.election.enable": unclean}
    topic_id = world.topic("t", (0,), configs=configs)
    world.carry(
        Decision(
            [
                PartitionChanged(
                    topic_id, 0, leader=1, isr=(1,), replicas=(1, 0), adding_replicas=(1,)
                )
            ],
            None,
        )
    )
    records, outcome = reassigned(world, None)
    if unclean == "true":
        assert records == [
            PartitionChanged(topic_id, 0, leader=0, isr=(0,), replicas=(0,), adding_replicas=())
        ]
        return
    assert records == []
    assert outcome.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert outcome.message == (
        "Unable to revert partition assignment for t:0 because it would require an unclean leader "
        "election."
    )


@pytest.mark.parametrize(
    ("eligible", "left"), [((0,), (0,)), ((0, 2), (0,)), ((2,), None), ((), None)]
)
def test_a_move_is_called_off_with_nobody_in_sync_if_one_that_stays_is_eligible(
    eligible: tuple[int, ...], left: tuple[int, ...] | None
) -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1))
    reassigned(world, (1, 2))
    silent = PartitionChanged(topic_id, 0, leader=NO_LEADER, isr=(), elr=eligible)
    world.carry(Decision([BrokerFenced(0, world.epochs[0]), silent], None))
    records, outcome = reassigned(world, None)
    if left is None:
        assert (records, outcome.error) == ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        return
    assert outcome.error is ErrorCode.NONE
    assert world.standing(topic_id) == (NO_LEADER, (), left)
    assert world.state(topic_id).replicas == (1, 0)


def test_a_move_that_has_added_all_there_are_cannot_be_called_off() -> None:
    """Another build may have left it so."""
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0,))
    moved = PartitionChanged(topic_id, 0, replicas=(0, 1), adding_replicas=(0, 1))
    world.carry(Decision([moved], None))
    assert reassigned(world, None) == (
        [],
        ReassignOutcome(
            "t",
            0,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Invalid replica assignment: addingReplicas contains all replicas.",
        ),
    )


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ((), "The manual partition assignment includes an empty replica list."),
        ((0, 0), "The manual partition assignment includes the broker 0 more than once."),
        (
            (0, 9),
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
    ],
)
def test_impossible_assignments_are_refused(replicas: tuple[int, ...], message: str) -> None:
    world = Controlled(brokers=2)
    world.topic("t", (0, 1))
    assert reassigned(world, replicas) == (
        [],
        ReassignOutcome("t", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT, message),
    )


def test_the_number_of_replicas_may_be_kept() -> None:
    world = Controlled(brokers=3)
    world.topic("t", (0, 1))
    assert reassigned(world, (0, 1, 2), allow_replication_factor_change=False) == (
        [],
        ReassignOutcome(
            "t",
            0,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "The replication factor is changed from 2 to 3",
        ),
    )
    records, _ = reassigned(world, (2, 1), allow_replication_factor_change=False)
    assert len(records) == 1
    records, _ = reassigned(world, (1, 0), allow_replication_factor_change=False)
    assert len(records) == 1


def test_unknown_or_duplicate_partitions_are_refused() -> None:
    world = Controlled(brokers=2)
    world.topic("t", (0,))
    _, outcome = reassigned(world, (1,), name="u")
    assert (outcome.error, outcome.message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "Unable to find a topic named u.",
    )
    asked = [ReassignPartition("t", 1, (1,)), *[ReassignPartition("t", 0, (1,))] * 2]
    decision = world.machine.reassignments.alter(AlterReassignments(asked))
    assert [one.error for one in decision.response] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert len(decision.records) == 1


def test_a_partition_without_a_leader_waits_with_its_new_replicas_too() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0,))
    world.pass_time(6_001, 1)
    world.expire()
    reassigned(world, (1,))
    assert world.standing(topic_id) == (NO_LEADER, (), (0,))
    world.beat(0)
    assert world.standing(topic_id) == (0, (0,), ())
    in_sync(world, topic_id, 0, 0, 1)
    assert world.state(topic_id).replicas == (1,)
    assert world.standing(topic_id) == (1, (1,), ())


def test_after_a_reassignment_the_new_list_has_the_order_of_who_leads() -> None:
    world = Controlled(brokers=4)
    topic_id = world.topic("t", (0, 1, 2))
    reassigned(world, (0, 2, 1))
    world.pass_time(6_001, 1, 2, 3)
    world.expire()
    assert world.state(topic_id).leader == 2
