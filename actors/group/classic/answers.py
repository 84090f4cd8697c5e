"""Answers to JoinGroup and SyncGroup in the form that each version asks for."""

from raylog.actors.coordination.step import Asked, Step
from raylog.actors.group.classic.members import Member
from raylog.actors.group.classic.state import GroupState
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_JOIN_PROTOCOL_MAY_BE_NULL = 7


def refusal(asked: Asked[JoinGroupRequest], code: ErrorCode, member_id: str) -> JoinGroupResponse:
    """A join that failed."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if asked.version >= _JOIN_PROTOCOL_MAY_BE_NULL else "",
        leader="",
        skip_assignment=False,
        member_id=member_id,
        members=[],
    )


def refuse_join(
    step: Step, asked: Asked[JoinGroupRequest], code: ErrorCode, member_id: str = ""
) -> None:
    """Answer a join that failed."""
    step.answer_now(asked, refusal(asked, code, member_id))


def joined(
    group: GroupState, member_id: str, *, leader: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The current generation, without members; `leader` if another than the group's is told."""
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
    """Every member with its metadata for the chosen protocol: what the leader is told."""
    protocol = group.protocol
    assert protocol is not None
    return [_seen_by_leader(member, protocol) for member in group.roster.members.values()]


def synced(group: GroupState, member: Member) -> SyncGroupResponse:
    """The member's assignment."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.roster.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def refuse_sync(step: Step, asked: Asked[SyncGroupRequest], code: ErrorCode) -> None:
    """Answer a sync that failed."""
    step.answer_now(asked, SyncGroupResponse(error_code=code))


def release(group: GroupState, step: Step, member_id: str, code: ErrorCode, told_id: str) -> None:
    """Answer what a member that is going away waits for; `told_id` is the member id it hears."""
    joining = group.roster.joining.pop(member_id, None)
    if joining is not None:
        refuse_join(step, joining, code, told_id)
    syncing = group.roster.syncing.pop(member_id, None)
    if syncing is not None:
        refuse_sync(step, syncing, code)


def _seen_by_leader(member: Member, protocol: str) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        metadata=member.protocols[protocol],
    )
