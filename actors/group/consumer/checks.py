"""Who may join a KIP-848 group, and commit and fetch offsets as a member of it."""

from __future__ import annotations

from raylog.actors.group.consumer.context import GroupContext
from raylog.actors.group.consumer.member import Holding, Profile
from raylog.actors.group.consumer.requests import unknown_member
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.ports import TopicId
from raylog.wire.errors import (
    GroupMaxSizeReached,
    IllegalGeneration,
    StaleMemberEpoch,
    UnsupportedVersion,
)
from raylog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic

EPOCHS_IN_COMMITS_SINCE = 9
"""The version of OffsetCommit that carries member epochs."""


def check_size(group: GroupContext, member_id: str) -> None:
    """Raises GroupMaxSizeReached if a new member finds no room."""
    members, most = group.state.profiles, group.settings.consumer_size_max
    if len(members) >= most and member_id not in members:
        raise GroupMaxSizeReached(
            f"The consumer group has reached its maximum capacity of {most} members."
        )


def member_profile(group: GroupContext, member_id: str) -> Profile:
    """The member of that id; raises UnknownMemberId if there is none."""
    profile = group.state.profiles.get(member_id)
    if profile is None:
        raise unknown_member(member_id, group.group_id)
    return profile


def check_commit(
    group: GroupContext, request: OffsetCommitRequest, version: int, image: MetadataImage
) -> None:
    """Refuse a commit of a member that is none, or not at the epoch it says.

    Someone without an epoch may commit while the group is empty. A member whose epoch has risen
    may still commit at an older one what it has owned since then (KIP-1251).
    """
    said, state = request.generation_id_or_member_epoch, group.state
    if said < 0 and not state.profiles:
        return
    profile = member_profile(group, request.member_id)
    if profile.classic is None and version < EPOCHS_IN_COMMITS_SINCE:
        raise UnsupportedVersion(
            "OffsetCommit version 9 or above must be used by members using "
            "the modern group protocol"
        )
    holding = state.holding(request.member_id)
    if 0 <= said < holding.epoch and all(
        _owned_since(holding, image, topic, said) for topic in request.topics
    ):
        return
    check_epoch(profile, said, holding.epoch)


def _owned_since(
    holding: Holding, image: MetadataImage, topic: OffsetCommitRequestTopic, epoch: int
) -> bool:
    """Whether all these partitions came to the member at `epoch` or before."""
    named = image.topic_ids.get(topic.name) if topic.name else TopicId(bytes(topic.topic_id))
    if named is None:
        return False
    assigned, revoking = holding.assigned.get(named, {}), holding.revoking.get(named, {})
    indexes = [one.partition_index for one in topic.partitions]
    came = [assigned.get(one, revoking.get(one)) for one in indexes]
    return all(since is not None and since <= epoch for since in came)


def check_epoch(profile: Profile, said: int, epoch: int) -> None:
    """Raises unless the member said its current epoch: in words of the protocol it speaks."""
    if said == epoch:
        return
    if profile.classic is not None:
        raise IllegalGeneration(
            f"The received generation id {said} does not match the expected member epoch {epoch}."
        )
    raise StaleMemberEpoch(
        f"The received member epoch {said} does not match the expected member epoch {epoch}."
    )
