"""Describes a KIP-848 group for ConsumerGroupDescribe and ListGroups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from raylog.actors.common_messages import TopicId
from raylog.actors.group.rules.consumer import targets
from raylog.actors.group.rules.consumer.context import GroupContext
from raylog.actors.group.rules.consumer.member import Holding, Partitions, Profile
from raylog.actors.group.rules.consumer.state import GroupState
from raylog.actors.group.rules.gradual import GradualResponse
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"


def state_name(state: GroupState) -> str:
    """Return the name of the group's state."""
    if not state.profiles:
        return EMPTY
    if state.group_epoch > state.target_epoch:
        return ASSIGNING
    for member_id in state.profiles:
        if not state.holding(member_id).is_reconciled_to(state.target_epoch):
            return RECONCILING
    return STABLE


def described(group: GroupContext, image: MetadataImage) -> GradualResponse[DescribedGroup]:
    """Describe the group with its members.

    The message, which is empty in Kafka unless there is an error code, says why an assignor failed.
    """
    state = group.state
    found = DescribedGroup(
        error_code=0,
        error_message=group.assignor_error,
        group_id=group.group_id,
        group_state=state_name(state),
        group_epoch=state.group_epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=targets.chosen_assignor(state, group.settings.consumer_assignors),
    )
    now = [
        (member_id, profile, state.holding(member_id), state.target(member_id))
        for member_id, profile in state.profiles.items()
    ]
    return GradualResponse(found, _members(now, image, found.members))


def _members(
    now: Iterable[tuple[str, Profile, Holding, Partitions]],
    image: MetadataImage,
    into: list[Member],
) -> Iterator[int]:
    for member_id, profile, holding, target in now:
        member = _member(member_id, profile, holding, target, image)
        into.append(member)
        yield 1 + _count(member.assignment) + _count(member.target_assignment)


def _count(assignment: Assignment) -> int:
    return sum(1 + len(one.partitions) for one in assignment.topic_partitions)


def _member(
    member_id: str, profile: Profile, holding: Holding, target: Partitions, image: MetadataImage
) -> Member:
    return Member(
        member_id=member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=holding.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=list(profile.topic_names),
        subscribed_topic_regex=profile.topic_regex,
        assignment=_assignment(_held(holding), image),
        target_assignment=_assignment(target, image),
        member_type=_CONSUMER_MEMBER if profile.classic is None else _CLASSIC_MEMBER,
    )


def _held(holding: Holding) -> dict[TopicId, set[int]]:
    """Return the partitions that no other member may own yet, including those being revoked."""
    held = {topic_id: set(epochs) for topic_id, epochs in holding.assigned.items()}
    for topic_id, epochs in holding.revoking.items():
        held.setdefault(topic_id, set()).update(epochs)
    return held


def _assignment(partitions: Mapping[TopicId, Iterable[int]], image: MetadataImage) -> Assignment:
    """Convert an assignment; deleted topics are left out because they have no name."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id,
                topic_name=image.topics[topic_id].name,
                partitions=sorted(some),
            )
            for topic_id, some in partitions.items()
            if topic_id in image.topics
        ]
    )
