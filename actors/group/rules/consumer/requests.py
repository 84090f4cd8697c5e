"""Validates a ConsumerGroupHeartbeat, and applies it to a member's profile (KIP-848).

An omitted field (None or -1) is unchanged. A request that omits nothing is a full request, from a
member that starts afresh. Its response has the assignment even if that is unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raylog.actors.common_messages import TopicId
from raylog.actors.coordination.rules.step import ClientCall
from raylog.actors.group.rules.consumer.member import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Holding,
    Partitions,
    Profile,
    sorted_names,
)
from raylog.actors.group.rules.consumer.state import GroupState
from raylog.wire.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

CLIENT_MEMBER_IDS_SINCE = 1
"""From this version on, members choose their own ids (KIP-1082)."""
_UNCHANGED = -1


@dataclass(frozen=True, slots=True)
class Seat:
    """The place in the group that a request is for."""

    profile: Profile
    holding: Holding
    replaces: str | None = None
    """The member that had this static member's place under another id."""


def check_fields(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]
) -> None:
    """Raise InvalidRequest or UnsupportedAssignor if the request is invalid on its own."""
    epoch = request.member_epoch
    needs_id = version >= CLIENT_MEMBER_IDS_SINCE or epoch > 0 or epoch == LEAVE_EPOCH
    if needs_id and not request.member_id:
        raise InvalidRequest("MemberId can't be empty.")
    _check_not_empty(request.group_id, "GroupId")
    _check_not_empty(request.instance_id, "InstanceId")
    _check_not_empty(request.rack_id, "RackId")
    if epoch == 0:
        _check_first(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise InvalidRequest("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}."
        )


def _check_not_empty(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise InvalidRequest(f"{name} can't be empty.")


def _check_first(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == _UNCHANGED:
        raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise InvalidRequest(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )


def owned_of(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """Return the partitions that the member reports as owned, or None if it reports nothing."""
    if request.topic_partitions is None:
        return None
    return {
        TopicId(bytes(one.topic_id)): frozenset(one.partitions) for one in request.topic_partitions
    }


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member omits nothing, and so requests its complete assignment."""
    subscribes = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == 0 or (
        request.rebalance_timeout_ms != _UNCHANGED
        and subscribes
        and request.topic_partitions is not None
    )


def find_seat(
    state: GroupState, group_id: str, member_id: str, request: ConsumerGroupHeartbeatRequest
) -> Seat:
    """Find the place of the member that joins, rejoins or stays.

    Raises UnknownMemberId, FencedMemberEpoch, FencedInstanceId or UnreleasedInstanceId.
    """
    joins = request.member_epoch == 0
    if request.instance_id is None:
        profile = state.profiles.get(member_id)
        if profile is None:
            if not joins:
                raise unknown_member(member_id, group_id)
            return Seat(Profile(), Holding())
    else:
        known_id = state.static_ids.get(request.instance_id)
        if joins:
            _check_released(state, member_id, request.instance_id, known_id)
            return static_seat(state, member_id, known_id)
        check_instance(member_id, request.instance_id, known_id)
        profile = state.profiles[member_id]
    holding = state.holding(member_id)
    _check_epoch(request, holding)
    return Seat(profile, holding)


def _check_released(
    state: GroupState, member_id: str, instance_id: str, known_id: str | None
) -> None:
    """Refuse to take over an instance id from a KIP-848 member that has not left."""
    if known_id is None or state.profiles[known_id].classic is not None:
        return
    if state.holding(known_id).epoch != STATIC_LEAVE_EPOCH:
        raise UnreleasedInstanceId(
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {known_id} member."
        )


def static_seat(state: GroupState, member_id: str, known_id: str | None) -> Seat:
    """Return the place of a static member that joins, or that replaces `known_id` (KIP-345)."""
    if known_id is None:
        return Seat(state.profiles.get(member_id, Profile()), state.holding(member_id))
    holding = state.holding(known_id)
    taken_over = Holding(0, 0, holding.state, holding.assigned, holding.revoking)
    return Seat(state.profiles[known_id], taken_over, replaces=known_id)


def check_instance(member_id: str, instance_id: str, known_id: str | None) -> None:
    """Raise unless `member_id` has that instance id."""
    if known_id is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if known_id != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} "
            f"was fenced by member {known_id}."
        )


def unknown_member(member_id: str, group_id: str) -> UnknownMemberId:
    """Build the error for an unknown member."""
    return UnknownMemberId(f"Member {member_id} is not a member of group {group_id}.")


def _check_epoch(request: ConsumerGroupHeartbeatRequest, holding: Holding) -> None:
    """Refuse other epochs than the current and the previous one, whose response may be lost."""
    said = request.member_epoch
    if said in (0, holding.epoch):
        return
    if said < holding.epoch and said == holding.previous_epoch:
        owned = owned_of(request)
        if owned is not None and _is_within(owned, holding):
            return
    size = "greater" if said > holding.epoch else "smaller"
    raise FencedMemberEpoch(
        f"The consumer group member has a {size} member epoch ({said}) than the one known by the "
        f"group coordinator ({holding.epoch}). The member must abandon all its partitions "
        "and rejoin."
    )


def _is_within(owned: Partitions, holding: Holding) -> bool:
    return all(
        partitions <= holding.assigned.get(topic_id, {}).keys()
        for topic_id, partitions in owned.items()
    )


def changed_profile(profile: Profile, call: ClientCall[ConsumerGroupHeartbeatRequest]) -> Profile:
    """Return the member's profile after this request, or `profile` itself if nothing changed."""
    request = call.request
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    said = Profile(
        instance_id=profile.instance_id if request.instance_id is None else request.instance_id,
        rack_id=profile.rack_id if request.rack_id is None else request.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        topic_names=profile.topic_names if names is None else sorted_names(names),
        topic_regex=profile.topic_regex if regex is None else regex,
        rebalance_timeout_ms=profile.rebalance_timeout_ms
        if request.rebalance_timeout_ms == _UNCHANGED
        else request.rebalance_timeout_ms,
        server_assignor=profile.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
        classic=None,
    )
    return profile if said == profile else said
