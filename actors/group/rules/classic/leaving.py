"""LeaveGroup: one member up to v2, several from v3 on, static ones by instance id (KIP-345)."""

from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.group.rules.classic import rebalance
from raylog.actors.group.rules.classic.state import GroupState, State
from raylog.wire.errors import ErrorCode, KafkaError, UnknownMemberId
from raylog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_SEVERAL_MEMBERS = 3


def leave(group: GroupState, step: Step, call: ClientCall[LeaveGroupRequest]) -> None:
    """Handle a LeaveGroup; each member succeeds or fails independently."""
    request = call.request
    several = call.version >= _SEVERAL_MEMBERS
    leaving = request.members if several else [MemberIdentity(member_id=request.member_id)]
    codes = [_leave_one(group, step, identity) for identity in leaving]
    if ErrorCode.NONE in codes:
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            rebalance.prepare(group, step)
        elif group.state is State.PREPARING_REBALANCE:
            rebalance.complete_if_joined(group, step)
    if not several:
        step.answer(call, LeaveGroupResponse(error_code=codes[0]))
        return
    step.answer(
        call,
        LeaveGroupResponse(
            error_code=ErrorCode.NONE,
            members=[
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=code,
                )
                for identity, code in zip(leaving, codes, strict=True)
            ],
        ),
    )


def _leave_one(group: GroupState, step: Step, identity: MemberIdentity) -> ErrorCode:
    try:
        member_id = _who(group, identity)
    except KafkaError as error:
        return error.code
    rebalance.remove(group, step, member_id, "it was asked to")
    return ErrorCode.NONE


def _who(group: GroupState, identity: MemberIdentity) -> str:
    """Return the member id or pending id that is meant; administrators name only the instance."""
    roster = group.roster
    if identity.member_id in roster.pending:
        return identity.member_id
    if identity.member_id:
        return roster.member(identity.member_id, identity.group_instance_id).member_id
    member_id = roster.static_ids.get(identity.group_instance_id or "")
    if identity.group_instance_id is None or member_id is None:
        raise UnknownMemberId("neither a member id nor the instance of a member")
    return member_id
