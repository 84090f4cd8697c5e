"""Members of a KIP-848 group that still use the classic protocol, during a migration.

The broker assigns their partitions like those of all other members, and answers at once. The
response to a join has the new epoch as its generation, and the next sync returns what the member
owns. The response to a heartbeat tells members to join again whenever they have a step to take: a
new target, partitions to give up, or partitions to add.
"""

from __future__ import annotations

from dataclasses import replace

from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.group.rules.consumer import downgrading, embedded, rebalance
from raylog.actors.group.rules.consumer.checks import check_size
from raylog.actors.group.rules.consumer.context import GroupContext
from raylog.actors.group.rules.consumer.member import (
    ClassicSide,
    Holding,
    MemberState,
    Partitions,
    Profile,
    sorted_names,
)
from raylog.actors.group.rules.consumer.requests import (
    Seat,
    check_instance,
    static_seat,
    unknown_member,
)
from raylog.actors.group.rules.consumer.state import GroupState
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.errors import (
    DecodeError,
    ErrorCode,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from raylog.wire.internal.consumer_protocol import ConsumerProtocolSubscription
from raylog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from raylog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from raylog.wire.uuids import random_uuid, to_base64

_MEMBER_ID_REQUIRED_SINCE = 4
_NULLABLE_PROTOCOL_SINCE = 7
"""Version of JoinGroup."""
_SEVERAL_MEMBERS_SINCE = 3
"""Version of LeaveGroup."""


def join(group: GroupContext, step: Step, call: ClientCall[JoinGroupRequest]) -> None:
    """Handle a JoinGroup; raises the error that refuses it before any record is appended."""
    request = call.request
    _check_protocols(group, request)
    check_size(group, request.member_id)
    member_id = request.member_id or to_base64(random_uuid(step.random))
    returns = bool(request.member_id) or request.group_instance_id is not None
    if not returns and call.version >= _MEMBER_ID_REQUIRED_SINCE:
        step.answer_now(call, _member_id_required(call, member_id))
        return
    seat = _seat(group, request, member_id)
    subscription = _subscription(request)
    profile = _profile(seat.profile, call, subscription)
    owned = embedded.partitions_of(subscription.owned_partitions, step.image)
    if _ends_migration(group, seat):
        step.answer(call, _join_and_downgrade(group, step, member_id, seat, profile, owned))
        return
    rebalance.admit(group, step, member_id, seat, profile, owned)
    group.restart_session(step, member_id)
    group.await_sync(step, member_id)
    step.answer(call, _joined(group, member_id))


def _ends_migration(group: GroupContext, seat: Seat) -> bool:
    """Whether this replaces the last member that uses KIP-848."""
    replaced = seat.replaces
    if replaced is None or group.state.profiles[replaced].classic is not None:
        return False
    return downgrading.is_due(group, [replaced], joining=1)


def _join_and_downgrade(
    group: GroupContext,
    step: Step,
    member_id: str,
    seat: Seat,
    profile: Profile,
    owned: Partitions,
) -> JoinGroupResponse:
    """Make the group classic with this join.

    If that starts a rebalance, because the subscription has changed, the returned generation is not
    valid. As with Kafka, the member's sync fails and it joins the classic group.
    """
    changed = profile.topic_names != seat.profile.topic_names
    if changed:
        rebalance.take_place(group, step, member_id, seat, profile)
    else:
        rebalance.admit(group, step, member_id, seat, profile, owned)
    response = _joined(group, member_id)
    downgrading.downgrade(group, step, (), rebalance=changed)
    return response


def _check_protocols(group: GroupContext, request: JoinGroupRequest) -> None:
    """Check that the member is a consumer and shares an assignor with all classic members."""
    names = {protocol.name for protocol in request.protocols}
    for profile in group.state.profiles.values():
        if profile.classic is not None:
            names &= {name for name, _ in profile.classic.protocols}
    if (
        group.settings.consumer_migration_policy.lower() == "disabled"
        or request.protocol_type != embedded.CONSUMER_PROTOCOL
        or not names
    ):
        raise InconsistentGroupProtocol(
            f"group {group.group_id} takes no classic members of these protocols"
        )


def _member_id_required(call: ClientCall[JoinGroupRequest], member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED,
        protocol_name=None if call.version >= _NULLABLE_PROTOCOL_SINCE else "",
        leader="",
        skip_assignment=False,
        member_id=member_id,
        members=[],
    )


def _seat(group: GroupContext, request: JoinGroupRequest, member_id: str) -> Seat:
    state, instance_id = group.state, request.group_instance_id
    if instance_id is None:
        return Seat(state.profiles.get(member_id, Profile()), state.holding(member_id))
    known_id = state.static_ids.get(instance_id)
    if not request.member_id:
        return static_seat(state, member_id, known_id)
    check_instance(member_id, instance_id, known_id)
    return Seat(state.profiles[member_id], state.holding(member_id))


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """Decode the subscription of the member's first protocol; raises InconsistentGroupProtocol."""
    try:
        return embedded.subscription_of(request.protocols[0].metadata)
    except DecodeError as malformed:
        raise InconsistentGroupProtocol("Malformed embedded consumer protocol.") from malformed


def _profile(
    profile: Profile, call: ClientCall[JoinGroupRequest], subscription: ConsumerProtocolSubscription
) -> Profile:
    request = call.request
    # v0 has no rebalance timeout; the session timeout is used for both.
    rebalance_ms = request.rebalance_timeout_ms if call.version else request.session_timeout_ms
    said = replace(
        profile,
        instance_id=request.group_instance_id or profile.instance_id,
        rack_id=subscription.rack_id or profile.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        topic_names=sorted_names(subscription.topics),
        rebalance_timeout_ms=rebalance_ms,
        classic=ClassicSide(
            request.session_timeout_ms,
            tuple((one.name, bytes(one.metadata)) for one in request.protocols),
        ),
    )
    return profile if said == profile else said


def _joined(group: GroupContext, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.state.holding(member_id).epoch,
        protocol_type=embedded.CONSUMER_PROTOCOL,
        protocol_name=_classic_side(group, member_id).protocols[0][0],
        leader="",
        skip_assignment=False,
        member_id=member_id,
        members=[],
    )


def _classic_side(group: GroupContext, member_id: str) -> ClassicSide:
    classic = group.state.profiles[member_id].classic
    if classic is None:
        raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
    return classic


def sync(group: GroupContext, step: Step, call: ClientCall[SyncGroupRequest]) -> None:
    """Handle a SyncGroup; raises the error that refuses it."""
    request = call.request
    member_id = _member_id(group, request.member_id, request.group_instance_id)
    classic = _classic_side(group, member_id)
    holding = group.state.holding(member_id)
    _check_generation(request.generation_id, holding)
    protocol, subscription = classic.protocols[0]
    for named, current in (
        (request.protocol_type, embedded.CONSUMER_PROTOCOL),
        (request.protocol_name, protocol),
    ):
        if named is not None and named != current:
            raise InconsistentGroupProtocol(f"{named} named where the member uses {current}")
    if _is_behind(group.state, holding) and not _gives_up(holding):
        group.await_rejoin(step, member_id)
        raise RebalanceInProgress(
            f"A new rebalance is triggered in group {group.group_id} and "
            f"member {member_id} should rejoin to catch up."
        )
    group.end_sync(step, member_id)
    group.restart_session(step, member_id)
    response = SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=embedded.assignment_blob(holding.assigned, step.image, subscription),
    )
    step.answer(call, response)


def _is_behind(state: GroupState, holding: Holding) -> bool:
    """Whether there is a newer target than the member's.

    The target for a newer group epoch is computed at the next heartbeat of a KIP-848 member. If
    there is no such member, a classic member must join again for it.
    """
    if holding.epoch < state.target_epoch:
        return True
    waits = holding.epoch < state.group_epoch
    return waits and all(one.classic is not None for one in state.profiles.values())


def _gives_up(holding: Holding) -> bool:
    return holding.state is MemberState.UNREVOKED_PARTITIONS


def _check_generation(said: int, holding: Holding) -> None:
    if said != holding.epoch:
        raise IllegalGeneration(
            f"The received generation id {said} does not match the expected member epoch "
            f"{holding.epoch}."
        )


def heartbeat(group: GroupContext, step: Step, call: ClientCall[HeartbeatRequest]) -> None:
    """Handle a Heartbeat; raises the error that refuses it."""
    request = call.request
    member_id = _member_id(group, request.member_id, request.group_instance_id)
    _classic_side(group, member_id)
    holding = group.state.holding(member_id)
    _check_generation(request.generation_id, holding)
    group.restart_session(step, member_id)
    code = ErrorCode.NONE
    if _has_a_step_to_take(group, member_id, holding, step.image):
        group.await_rejoin(step, member_id)
        code = ErrorCode.REBALANCE_IN_PROGRESS
    step.answer(call, HeartbeatResponse(error_code=code))


def _has_a_step_to_take(
    group: GroupContext, member_id: str, holding: Holding, image: MetadataImage
) -> bool:
    state = group.state
    if _is_behind(state, holding) or _gives_up(holding):
        return True
    if holding.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    missing = (
        (topic_id, partition)
        for topic_id, some in state.target(member_id).items()
        if topic_id in image.topics
        for partition in some - holding.assigned.get(topic_id, {}).keys()
    )
    return all(state.is_free(topic_id, partition) for topic_id, partition in missing)


def _member_id(group: GroupContext, member_id: str, instance_id: str | None) -> str:
    """Return the member that is meant; raises UnknownMemberId or FencedInstanceId."""
    if instance_id is not None:
        check_instance(member_id, instance_id, group.state.static_ids.get(instance_id))
    elif member_id not in group.state.profiles:
        raise unknown_member(member_id, group.group_id)
    return member_id


def leave(group: GroupContext, step: Step, call: ClientCall[LeaveGroupRequest]) -> None:
    """Handle a LeaveGroup; each member, including KIP-848 ones, succeeds or fails independently."""
    request = call.request
    several = call.version >= _SEVERAL_MEMBERS_SINCE
    identities = request.members if several else [MemberIdentity(member_id=request.member_id)]
    leaving: dict[str, None] = {}
    codes = [_leave_one(group, identity, leaving) for identity in identities]
    if leaving:
        rebalance.remove_members(group, step, list(leaving), "it was asked to")
    if not several:
        step.answer(call, LeaveGroupResponse(error_code=codes[0]))
        return
    members = [
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=code,
        )
        for identity, code in zip(identities, codes, strict=True)
    ]
    step.answer(call, LeaveGroupResponse(error_code=ErrorCode.NONE, members=members))


def _leave_one(
    group: GroupContext, identity: MemberIdentity, leaving: dict[str, None]
) -> ErrorCode:
    """Record that a member leaves; administrators name only the instance."""
    try:
        if identity.member_id:
            found = _member_id(group, identity.member_id, identity.group_instance_id)
        else:
            instance_id = identity.group_instance_id or ""
            found = group.state.static_ids.get(instance_id, "")
            check_instance(found, instance_id, found or None)
    except KafkaError as failure:
        return failure.code
    leaving[found] = None
    return ErrorCode.NONE
