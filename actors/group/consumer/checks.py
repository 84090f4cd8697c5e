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
from raylog.wire.messages.offset_commit import OffsetCommitRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

EPOCHS_IN_COMMITS_SINCE = 9
"""The version of OffsetCommit that carries member epochs."""
NO_EPOCH = -1
"""What someone says who is no member."""


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
    """Refuse a commit of a member that is none, or not at the epoch it says (KIP-447).

    Someone who names no member may commit at any time; the request need not have a place for it.
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
    """Raises unless the member said its epoch, or one since which it owns all partitions."""
    owned = 0 <= said < holding.epoch and all(
        _owned_since(holding, topic_id, indexes, said) for topic_id, indexes in topics
    )
    if not owned:
        check_epoch(profile, said, holding.epoch)


def _owned_since(
    holding: Holding, topic_id: TopicId | None, indexes: list[int], epoch: int
) -> bool:
    """Whether all these partitions came to the member at `epoch` or before."""
    if topic_id is None:
        return False
    assigned, revoking = holding.assigned.get(topic_id, {}), holding.revoking.get(topic_id, {})
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
