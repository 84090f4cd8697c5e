"""SyncGroup: the leader sends the assignment, and every member gets its own part."""

from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.group.rules.classic import metadata, rebalance
from raylog.actors.group.rules.classic.answers import refuse_sync, synced
from raylog.actors.group.rules.classic.members import Member
from raylog.actors.group.rules.classic.state import GroupState, State
from raylog.wire.errors import (
    ErrorCode,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
)
from raylog.wire.messages.sync_group import SyncGroupRequest


def sync(group: GroupState, step: Step, call: ClientCall[SyncGroupRequest]) -> None:
    """Handle a SyncGroup; raises the error that refuses it."""
    request = call.request
    member = _checked(group, request)
    if group.state is State.PREPARING_REBALANCE:
        raise RebalanceInProgress("members are joining")
    rebalance.synced_by(group, step, member.member_id)
    if group.state is State.STABLE:
        step.answer(call, synced(group, member))
        return
    assert group.state is State.COMPLETING_REBALANCE
    earlier = group.roster.syncing.get(member.member_id)
    if earlier is not None:
        refuse_sync(step, earlier, ErrorCode.REBALANCE_IN_PROGRESS)
    group.roster.syncing[member.member_id] = call
    if member.member_id == group.roster.leader:
        _settle(group, step, request)


def _settle(group: GroupState, step: Step, request: SyncGroupRequest) -> None:
    """Record the leader's assignment, and answer all waiting members."""
    metadata.record(group, step, {each.member_id: each.assignment for each in request.assignments})
    for member_id, call in group.roster.syncing.items():
        member = group.roster.members[member_id]
        group.restart_session(step, member)
        step.answer(call, synced(group, member))
    group.roster.syncing.clear()


def _checked(group: GroupState, request: SyncGroupRequest) -> Member:
    member = group.roster.member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise IllegalGeneration(f"generation {request.generation_id} is not {group.generation}")
    for named, current in (
        (request.protocol_type, group.roster.protocol_type),
        (request.protocol_name, group.protocol),
    ):
        if named is not None and current is not None and named != current:
            raise InconsistentGroupProtocol(f"{named} named where the group uses {current}")
    return member
