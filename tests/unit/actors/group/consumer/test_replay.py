"""Records of KIP-848 groups: ordered as in Apache Kafka, and replayed after compaction."""

from __future__ import annotations

from typing import Any

from raylog.actors.coordination.rules.step import LogRecord
from raylog.actors.group.rules.consumer.member import MemberState, Profile, holding_of
from raylog.actors.group.rules.consumer.state import GroupState
from raylog.wire.internal.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    TopicPartitions,
)
from tests.worlds.group.consumer import ConsumerWorld

_SHORT = {
    ConsumerGroupMemberMetadataKey: "member",
    ConsumerGroupMetadataKey: "epoch",
    ConsumerGroupTargetAssignmentMemberKey: "target",
    ConsumerGroupTargetAssignmentMetadataKey: "target epoch",
    ConsumerGroupCurrentMemberAssignmentKey: "owned",
}


def kinds(records: list[LogRecord]) -> list[str]:
    """Kinds of records, of which member, and whether they are tombstones."""
    found = []
    for record in records:
        key: Any = record.key
        name = f"{_SHORT[type(key)]} {getattr(key, 'member_id', '')}".strip()
        found.append(name if record.value is not None else f"no {name}")
    return found


def test_records_of_a_join() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", "t")
    assert kinds(world.world.log) == ["member a", "epoch", "target a", "target epoch", "owned a"]
    world.world.log.clear()
    world.join("b", "t")
    assert kinds(world.world.log) == [
        "member b",
        "epoch",
        "target a",
        "target b",
        "target epoch",
        "owned b",
    ]
    world.world.log.clear()
    world.beat("b", 3)
    world.world.log.clear()
    world.beat("b", 3)
    assert world.world.log == []  # a heartbeat that changes nothing writes nothing


def test_records_of_a_leave() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", "t")
    world.world.log.clear()
    world.beat("a", -1)
    assert kinds(world.world.log) == ["no owned a", "no target a", "no member a", "epoch"]


def test_records_of_a_static_takeover() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", "t", instance_id="i")
    world.beat("a", -2, instance_id="i")
    world.world.log.clear()
    world.join("b", "t", instance_id="i")
    assert kinds(world.world.log) == [
        "no owned a",
        "no target a",
        "no member a",
        "member b",
        "target b",
        "owned b",
        "owned b",
    ]


def test_a_compacted_log_gives_the_same_group() -> None:
    world = ConsumerWorld(t=4, u=2)
    world.join("a", "t")
    world.join("b", "t", "u", subscribed_topic_regex="u")
    world.world.advance(0)
    world.beat("a", 2)
    world.beat("a", 2, {"t": [0, 1]})
    world.join("c", "u")
    world.beat("c", -1)
    world.beat("b", 3)
    newest = {repr(record.key): record for record in world.world.log}
    kept = sorted(newest.values(), key=world.world.log.index)
    for some in (kept, [record for record in kept if record.value is not None]):
        state = GroupState()
        for record in some:
            state.replay(record)
        assert state == world.group.state


def test_tombstones_of_what_is_unknown_are_passed_over() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", "t", subscribed_topic_regex="t")
    world.world.advance(0)
    state = GroupState()
    for record in world.world.log:
        state.replay(LogRecord(record.key, None))
    state.replay(LogRecord(ConsumerGroupPartitionMetadataKey(group_id="g"), None))
    assert state == GroupState()


def test_records_without_assignment_epochs() -> None:
    old = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=4,
        previous_member_epoch=3,
        state=9,
        assigned_partitions=[TopicPartitions(topic_id=bytes(16), partitions=[1, 2])],
        partitions_pending_revocation=[],
    )
    holding = holding_of(old)
    assert holding.assigned == {bytes(16): {1: 4, 2: 4}}
    assert holding.state is MemberState.UNKNOWN


def test_deleting_a_group() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", "t", subscribed_topic_regex="t")
    world.world.advance(0)
    world.world.log.clear()
    world.beat("a", -1)
    world.world.run(world.group.delete)
    assert kinds(world.world.log[-2:]) == ["no target epoch", "no epoch"]
    assert not world.world.groups


def test_an_instance_is_that_of_who_has_taken_it_over() -> None:
    """Compaction may leave the tombstone of the member before behind its successor's record."""
    state = GroupState()
    before, after = (
        ConsumerGroupMemberMetadataKey(group_id="g", member_id=member_id) for member_id in "ab"
    )
    for key in (before, after):
        state.replay(LogRecord(key, Profile(instance_id="i").record()))
    state.replay(LogRecord(before, None))
    assert state.static_ids == {"i": "b"}
