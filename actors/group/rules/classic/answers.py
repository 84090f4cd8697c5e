"""Builds responses to JoinGroup and SyncGroup for each version."""

from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.group.rules.classic.members import Member
from raylog.actors.group.rules.classic.state import GroupState
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_JOIN_PROTOCOL_MAY_BE_NULL = 7


def refusal(
    call: ClientCall[JoinGroupRequest], code: ErrorCode, member_id: str
) -> JoinGroupResponse:
    """Build the response to a join that failed."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if call.version >= _JOIN_PROTOCOL_MAY_BE_NULL else "",
        leader="",
        skip_assignment=False,
        member_id=member_id,
        members=[],
    )


def refuse_join(
    step: Step, call: ClientCall[JoinGroupRequest], code: ErrorCode, member_id: str = ""
) -> None:
    """Answer a join that failed."""
    step.answer_now(call, refusal(call, code, member_id))


def joined(
    group: GroupState, member_id: str, *, leader: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Build the response with the current generation, without its members.

    `leader` overrides the group's leader.
    """
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.roster.protocol_type,
        protocol_name=group.protocol,
        leader=leader if leader is not None else group.roster.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=[],
    )


def metadata_of_all(group: GroupState) -> list[JoinGroupResponseMember]:
    """Return all members with their metadata for the chosen protocol, for the leader."""
    protocol = group.protocol
    assert protocol is not None
    return [_seen_by_leader(member, protocol) for member in group.roster.members.values()]


def synced(group: GroupState, member: Member) -> SyncGroupResponse:
    """Build the response with the member's assignment."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.roster.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def refuse_sync(step: Step, call: ClientCall[SyncGroupRequest], code: ErrorCode) -> None:
    """Answer a sync that failed."""
    step.answer_now(call, SyncGroupResponse(error_code=code))


def release(
    group: GroupState, step: Step, member_id: str, code: ErrorCode, answered_id: str
) -> None:
    """Answer the waiting requests of a departing member; a join gets `answered_id` as member id."""
    joining = group.roster.joining.pop(member_id, None)
    if joining is not None:
        refuse_join(step, joining, code, answered_id)
    syncing = group.roster.syncing.pop(member_id, None)
    if syncing is not None:
        refuse_sync(step, syncing, code)


def _seen_by_leader(member: Member, protocol: str) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        metadata=member.protocols[protocol],
    )
