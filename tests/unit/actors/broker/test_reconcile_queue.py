"""Many partitions at once: a broker looks at some of them in each turn of the event loop."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from raylog.actors.broker.rules.effects import (
    ClosePartitions,
    Effect,
    EndReplica,
    GoOn,
    KeepStrays,
    OpenPartitions,
    RemoveDirectories,
)
from raylog.actors.broker.rules.reconcile_queue import RECONCILED_AT_ONCE
from raylog.actors.controller.messages import MetadataUpdate
from raylog.actors.metadata.records import (
    BrokerRegistered,
    ConfigChanged,
    PartitionCreated,
    TopicCreated,
    TopicDeleted,
)
from tests.worlds.broker.machine import R0, Broker, T, U
from tests.worlds.metadata import image_of

MANY = 2 * RECONCILED_AT_ONCE + 100
TURNS = [RECONCILED_AT_ONCE, RECONCILED_AT_ONCE, 100]


def turns(broker: Broker, effects: list[Effect]) -> list[list[Effect]]:
    """The effects of an event, turn by turn."""
    found = [effects]
    while GoOn() in found[-1]:
        assert not broker.machine.is_settled
        assert not broker.machine.serves
        found.append(broker.machine.go_on())
    return found


def opens(effects: Sequence[Effect]) -> int:
    return sum(len(one.partitions) for one in effects if isinstance(one, OpenPartitions))


def closes(effects: Sequence[Effect]) -> int:
    return sum(len(one.keys) for one in effects if isinstance(one, ClosePartitions))


def world() -> Broker:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    return broker


def test_the_partitions_of_a_large_topic_are_opened_some_at_a_time() -> None:
    broker = world()
    assert [opens(one) for one in turns(broker, broker.topic(partitions=MANY))] == TURNS
    assert len(broker.machine.partitions) == MANY


def test_partitions_of_a_late_process_are_opened_in_batches() -> None:
    broker = Broker()
    broker.begin()
    (first, *rest) = turns(broker, broker.topic(partitions=MANY))
    assert opens(first) == 0
    assert len(rest) == 2
    assert [opens(one) for one in turns(broker, broker.ready(R0))] == TURNS


def test_partitions_of_a_deleted_topic_are_closed_in_batches() -> None:
    broker = world()
    turns(broker, broker.topic(partitions=MANY))
    assert [closes(one) for one in turns(broker, broker.records(TopicDeleted(T)))] == TURNS
    assert broker.machine.partitions == {}


def test_partition_deleted_before_its_turn_is_not_opened() -> None:
    broker = world()
    effects = broker.topic(partitions=MANY)
    assert opens(effects) == RECONCILED_AT_ONCE
    deleted = broker.records(TopicDeleted(T))
    assert GoOn() not in deleted, "that is under way"
    seen = [deleted, *turns(broker, broker.machine.go_on())]
    assert sum(map(opens, seen)) == 0
    assert sum(map(closes, seen)) == RECONCILED_AT_ONCE
    assert broker.machine.partitions == {}
    assert broker.machine.is_settled


def test_a_later_event_waits_for_those_before_it() -> None:
    broker = world()
    broker.topic(partitions=MANY)
    assert opens(broker.topic("u", U)) == RECONCILED_AT_ONCE
    assert (U, 0) not in broker.machine.partitions
    turns(broker, broker.machine.go_on())
    assert (U, 0) in broker.machine.partitions


def test_seen_deletion_still_removes_files_when_a_snapshot_arrives() -> None:
    broker = world()
    turns(broker, broker.topic(partitions=MANY))
    broker.records(TopicDeleted(T))
    effects = broker.machine.apply(MetadataUpdate(-1, 5_000, []), image_of(5_000, []))
    closing = [one for one in effects if isinstance(one, ClosePartitions)]
    assert sum(len(one.keys) for one in closing) == MANY - RECONCILED_AT_ONCE
    assert not any(one.keep for one in closing)
    assert not [one for one in effects if isinstance(one, KeepStrays | RemoveDirectories)]


@pytest.mark.parametrize("event", ["settings", "registered", "retry", "removed", "lost"])
def test_events_meet_partitions_that_are_gone_and_not_looked_at_yet(event: str) -> None:
    broker = world()
    broker.records(BrokerRegistered(0, 7, "h", 1, None, "d", "i", fenced=False))
    turns(broker, broker.topic(partitions=MANY))
    broker.records(TopicDeleted(T))
    match event:
        case "settings":
            broker.records(ConfigChanged(4, "", "log.retention.ms", "5"))
        case "registered":
            broker.machine.registered()
        case "retry":
            broker.machine.retry()
        case "removed":
            broker.machine.removed([])
        case "lost":
            broker.machine.replica_lost(R0, 1_000)
    turns(broker, broker.machine.go_on())
    assert broker.machine.partitions == {}


def test_no_process_is_given_up_while_it_may_be_needed() -> None:
    broker = Broker(actors_max=2, spares=1)
    broker.begin()
    broker.ready(R0)
    effects = broker.topic(partitions=MANY)
    assert not [one for one in effects if isinstance(one, EndReplica)]


def test_a_start_with_many_partitions_does_not_look_at_all_of_them_at_once() -> None:
    broker = Broker(spares=1)
    parts = [PartitionCreated(T, at, (0,), (0,), 0) for at in range(MANY)]
    broker.records(TopicCreated(T, "t"), *parts)
    begun = turns(broker, broker.begin())
    assert len(begun) == len(TURNS)
    assert len(broker.machine.partitions) == MANY
