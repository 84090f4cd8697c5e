"""A partition has one owner, unless the target assigns it to several members (broadcast)."""

from __future__ import annotations

from raylog.actors.common_messages import TopicId
from raylog.actors.coordination.rules.step import LogRecord
from raylog.actors.group.rules.consumer.state import GroupState
from raylog.wire.internal.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
    TopicPartitions,
)

TOPIC = TopicId(bytes(range(16)))


def owns(state: GroupState, member_id: str, *partitions: int) -> None:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member_id)
    some = [TopicPartitions(topic_id=TOPIC, partitions=list(partitions))]
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=0,
        state=0,
        assigned_partitions=some if partitions else [],
        partitions_pending_revocation=[],
    )
    state.replay(LogRecord(key, value))


def shall_own(state: GroupState, member_id: str, *partitions: int) -> None:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id=member_id)
    some = [TopicPartition(topic_id=TOPIC, partitions=list(partitions))]
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=some)
    state.replay(LogRecord(key, value))


def test_a_partition_that_its_owner_shall_give_up_is_not_free() -> None:
    state = GroupState()
    owns(state, "a", 0)
    shall_own(state, "a")
    shall_own(state, "b", 0)
    assert not state.is_free(TOPIC, 0)
    owns(state, "a")
    assert state.is_free(TOPIC, 0)


def test_a_partition_that_its_owner_shall_keep_is_free_for_those_who_share_it() -> None:
    state = GroupState()
    owns(state, "a", 0)
    shall_own(state, "a", 0)
    shall_own(state, "b", 0)
    assert state.is_free(TOPIC, 0)
    owns(state, "b", 0)
    shall_own(state, "a")
    assert not state.is_free(TOPIC, 0)
    owns(state, "a")
    assert state.is_free(TOPIC, 0)
