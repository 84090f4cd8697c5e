"""What a controller decides is told with the numbers that led to it."""

from __future__ import annotations

from raylog.actors.controller.decision import Decision
from raylog.actors.controller.telling import TOLD_MAX, decisions_of
from raylog.actors.journal import ELECTION, FENCING, ISR, UNCLEAN, Decided
from raylog.actors.metadata.records import (
    NO_LEADER,
    BrokerFenced,
    PartitionChanged,
    Record,
    TopicDeleted,
)
from tests.support.controllers import Controlled


def test_elections_and_in_sync_replicas_are_told() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2), (1, 2, 0))
    records: list[Record] = [
        PartitionChanged(topic_id, 0, leader=1, isr=(1, 2)),
        PartitionChanged(topic_id, 1, isr=(1, 2)),
        PartitionChanged(topic_id, 1, isr=(1, 2, 0), adding_replicas=()),
        PartitionChanged(topic_id, 1, leader=NO_LEADER),
        BrokerFenced(0, 17),
    ]
    assert decisions_of(world.image, records) == [
        Decided(
            ELECTION,
            "t-0: broker 1 leads in epoch 1 after broker 0, in sync 1,2 after 0,1,2, "
            "partition epoch 1",
            "t-0",
        ),
        Decided(ISR, "t-1: in sync 1,2 after 0,1,2, leader 1, partition epoch 1", "t-1"),
        Decided(
            ELECTION,
            "t-1: nobody leads in epoch 1 after broker 1, in sync 0,1,2, partition epoch 1",
            "t-1",
        ),
        Decided(FENCING, "broker 0 is fenced, broker epoch 17", "broker 0"),
    ]


def test_an_unclean_election_comes_first() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2))
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,))], None))
    told = decisions_of(world.image, [PartitionChanged(topic_id, 0, leader=1, isr=(1,))])
    assert [one.kind for one in told] == [UNCLEAN, ELECTION]


def test_many_of_one_decision_are_counted() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", *[(0, 1, 2)] * (TOLD_MAX + 7))
    records: list[Record] = [
        PartitionChanged(topic_id, index, leader=1, isr=(1, 2)) for index in range(TOLD_MAX + 7)
    ]
    told = decisions_of(world.image, [*records, BrokerFenced(0, 3)])
    assert len(told) == TOLD_MAX + 2
    assert told[-1] == Decided(ELECTION, "7 more in the same decision")


def test_what_is_gone_is_not_told() -> None:
    world = Controlled(brokers=1)
    topic_id = world.topic("t", (0,))
    gone = PartitionChanged(topic_id, 9, leader=0)
    assert decisions_of(world.image, [gone, TopicDeleted(topic_id)]) == []
