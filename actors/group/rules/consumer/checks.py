"""Checks whether members may join a KIP-848 group, and commit and fetch offsets."""

from __future__ import annotations

from raylog.actors.common_messages import TopicId
from raylog.actors.group.rules.consumer.context import GroupContext
from raylog.actors.group.rules.consumer.member import Holding, Profile
from raylog.actors.group.rules.consumer.requests import unknown_member
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.errors import (
    GroupMaxSizeReached,
    IllegalGeneration,
    StaleMemberEpoch,
    UnsupportedVersion,
)
from raylog.wire.messages.offset_commit import OffsetCommitRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

EPOCHS_IN_COMMITS_SINCE = 9
"""From this version on, OffsetCommit carries member epochs."""
NO_EPOCH = -1
"""The epoch of a request without a member."""


def check_size(group: GroupContext, member_id: str) -> None:
    """Raise GroupMaxSizeReached if there is no room for a new member."""
    members, most = group.state.profiles, group.settings.consumer_size_max
    if len(members) >= most and member_id not in members:
        raise GroupMaxSizeReached(
            f"The consumer group has reached its maximum capacity of {most} members."
        )


def member_profile(group: GroupContext, member_id: str) -> Profile:
    """Return the member with that id; raises UnknownMemberId."""
    profile = group.state.profiles.get(member_id)
    if profile is None:
        raise unknown_member(member_id, group.group_id)
    return profile


def check_commit(
    group: GroupContext, request: OffsetCommitRequest, version: int, image: MetadataImage
) -> None:
    """Refuse a commit of an unknown member, or with another epoch than the member's."""
    said, state = request.generation_id_or_member_epoch, group.state
    if said < 0 and not state.profiles:
        return
    profile = member_profile(group, request.member_id)
    if profile.classic is None and version < EPOCHS_IN_COMMITS_SINCE:
        raise UnsupportedVersion(
            "OffsetCommit version 9 or above must be used by members using "
            "the modern group protocol"
        )
    named = [
        (
            image.topic_ids.get(topic.name) if topic.name else TopicId(bytes(topic.topic_id)),
            [one.partition_index for one in topic.partitions],
        )
        for topic in request.topics
    ]
    _check_commit_epoch(state.holding(request.member_id), profile, said, named)


def check_transactional_commit(
    group: GroupContext, request: TxnOffsetCommitRequest, image: MetadataImage
) -> None:
    """Refuse a commit of an unknown member, or with another epoch than the member's (KIP-447).

    A commit without a member is always accepted, because older versions have no field for it.
    """
    said = request.generation_id
    is_nobody = said == NO_EPOCH and not request.member_id and request.group_instance_id is None
    if is_nobody or (said < 0 and not group.state.profiles):
        return
    profile = member_profile(group, request.member_id)
    named = [
        (image.topic_ids.get(topic.name), [one.partition_index for one in topic.partitions])
        for topic in request.topics
    ]
    try:
        _check_commit_epoch(group.state.holding(request.member_id), profile, said, named)
    except StaleMemberEpoch as failure:
        raise IllegalGeneration(str(failure)) from failure


def _check_commit_epoch(
    holding: Holding, profile: Profile, said: int, topics: list[tuple[TopicId | None, list[int]]]
) -> None:
    """Raise unless the epoch is current, or the member has owned all partitions since it."""
    owned = 0 <= said < holding.epoch and all(
        _owned_since(holding, topic_id, indexes, said) for topic_id, indexes in topics
    )
    if not owned:
        check_epoch(profile, said, holding.epoch)


def _owned_since(
    holding: Holding, topic_id: TopicId | None, indexes: list[int], epoch: int
) -> bool:
    """Whether the member was assigned all these partitions at `epoch` or before."""
    if topic_id is None:
        return False
    assigned, revoking = holding.assigned.get(topic_id, {}), holding.revoking.get(topic_id, {})
    came = [assigned.get(one, revoking.get(one)) for one in indexes]
    return all(since is not None and since <= epoch for since in came)


def check_epoch(profile: Profile, said: int, epoch: int) -> None:
    """Raise the error of the member's protocol unless this is its current epoch."""
    if said == epoch:
        return
    if profile.classic is not None:
        raise IllegalGeneration(
            f"The received generation id {said} does not match the expected member epoch {epoch}."
        )
    raise StaleMemberEpoch(
        f"The received member epoch {said} does not match the expected member epoch {epoch}."
    )
