"""The controller's reports of its decisions include the numbers behind them."""

from __future__ import annotations

from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.decision_lines import LINES_MAX, decisions_of
from raylog.actors.decisions import ELECTION, FENCING, ISR, UNCLEAN, Decided
from raylog.actors.metadata.records import (
    NO_LEADER,
    BrokerFenced,
    PartitionChanged,
    Record,
    TopicDeleted,
)
from tests.worlds.controller.machine import Controlled


def test_elections_and_in_sync_replicas_are_reported() -> None:
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
    lines = decisions_of(world.image, [PartitionChanged(topic_id, 0, leader=1, isr=(1,))])
    assert [one.kind for one in lines] == [UNCLEAN, ELECTION]


def test_many_of_one_decision_are_counted() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", *[(0, 1, 2)] * (LINES_MAX + 7))
    records: list[Record] = [
        PartitionChanged(topic_id, index, leader=1, isr=(1, 2)) for index in range(LINES_MAX + 7)
    ]
    lines = decisions_of(world.image, [*records, BrokerFenced(0, 3)])
    assert len(lines) == LINES_MAX + 2
    assert lines[-1] == Decided(ELECTION, "7 more in the same decision")


def test_deleted_partitions_are_not_reported() -> None:
    world = Controlled(brokers=1)
    topic_id = world.topic("t", (0,))
    gone = PartitionChanged(topic_id, 9, leader=0)
    assert decisions_of(world.image, [gone, TopicDeleted(topic_id)]) == []
