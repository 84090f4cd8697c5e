"""Appends the records of a KIP-848 group to a step."""

from __future__ import annotations

from raylog.actors.coordination.rules.step import Step
from raylog.actors.group.rules.consumer.member import Holding, Partitions, Profile
from raylog.actors.group.rules.consumer.state import GroupState, ResolvedRegex
from raylog.wire.internal.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)


class GroupLog:
    """Appends records of one group to one step."""

    def __init__(self, group_id: str, step: Step) -> None:
        self._group_id = group_id
        self._step = step

    def profile(self, member_id: str, profile: Profile) -> None:
        """Record a member's own data."""
        self._step.append(self._profile_key(member_id), profile.record())

    def holding(self, member_id: str, holding: Holding) -> None:
        """Record what a member owns."""
        self._step.append(self._holding_key(member_id), holding.record())

    def epoch(self, epoch: int, metadata_hash: int) -> None:
        """Record the group's epoch."""
        value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        self._step.append(ConsumerGroupMetadataKey(group_id=self._group_id), value)

    def target(self, member_id: str, partitions: Partitions) -> None:
        """Record what a member should own."""
        value = ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=sorted(some))
                for topic_id, some in partitions.items()
            ]
        )
        self._step.append(self._target_key(member_id), value)

    def target_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """Record the epoch of the target."""
        value = ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        )
        key = ConsumerGroupTargetAssignmentMetadataKey(group_id=self._group_id)
        self._step.append(key, value)

    def regex(self, pattern: str, resolved: ResolvedRegex) -> None:
        """Record the matches of a pattern."""
        value = ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics),
            version=resolved.version,
            timestamp=resolved.timestamp_ms,
        )
        self._step.append(self._regex_key(pattern), value)

    def forget_regex(self, pattern: str) -> None:
        """Delete a pattern that no member uses."""
        self._step.append(self._regex_key(pattern), None)

    def forget_member(self, member_id: str) -> None:
        """Delete a member."""
        self._step.append(self._holding_key(member_id), None)
        self._step.append(self._target_key(member_id), None)
        self._step.append(self._profile_key(member_id), None)

    def forget_group(self, state: GroupState) -> None:
        """Delete the group with everything it had."""
        members = sorted({*state.profiles, *state.holdings, *state.targets})
        for member_id in members:
            self._step.append(self._holding_key(member_id), None)
        for member_id in members:
            self._step.append(self._target_key(member_id), None)
        key = ConsumerGroupTargetAssignmentMetadataKey(group_id=self._group_id)
        self._step.append(key, None)
        for member_id in members:
            self._step.append(self._profile_key(member_id), None)
        for pattern in sorted(state.regexes):
            self.forget_regex(pattern)
        self._step.append(ConsumerGroupMetadataKey(group_id=self._group_id), None)

    def _profile_key(self, member_id: str) -> ConsumerGroupMemberMetadataKey:
        return ConsumerGroupMemberMetadataKey(group_id=self._group_id, member_id=member_id)

    def _holding_key(self, member_id: str) -> ConsumerGroupCurrentMemberAssignmentKey:
        return ConsumerGroupCurrentMemberAssignmentKey(group_id=self._group_id, member_id=member_id)

    def _target_key(self, member_id: str) -> ConsumerGroupTargetAssignmentMemberKey:
        return ConsumerGroupTargetAssignmentMemberKey(group_id=self._group_id, member_id=member_id)

    def _regex_key(self, pattern: str) -> ConsumerGroupRegularExpressionKey:
        return ConsumerGroupRegularExpressionKey(
            group_id=self._group_id, regular_expression=pattern
        )
