"""JoinGroup: who may join, and what happens then.

A new dynamic member first gets an id with which it must join again (v4, KIP-394). A static member
that comes back without its id replaces its previous instance (v5, KIP-345). In a stable group this
takes no rebalance, and a leader need not assign again (v9, KIP-814).
"""

from dataclasses import dataclass

from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.group.rules.classic import metadata, rebalance
from raylog.actors.group.rules.classic.answers import joined, metadata_of_all, refuse_join, release
from raylog.actors.group.rules.classic.members import Member
from raylog.actors.group.rules.classic.state import GroupState, State
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.messages.join_group import JoinGroupRequest

_MEMBER_ID_REQUIRED = 4
_MAY_SKIP_ASSIGNMENT = 9
_PENDING_MAX = 1_000
"""Limit for ids of a group that were assigned but not used yet; Kafka has none. Clients use theirs
at once, and an id may take 32 KiB until its session times out."""
_FIRST_JOIN_MS_MAX = 300_000
"""A new member sends no heartbeats while it waits in its first join; it is removed after this
time."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """The protocols and timeouts of a join."""

    protocols: dict[str, bytes]
    session_ms: int
    rebalance_ms: int


def join(group: GroupState, step: Step, call: ClientCall[JoinGroupRequest]) -> None:
    """Handle a JoinGroup."""
    request = call.request
    member_id = request.member_id
    if not _has_room(group, member_id):
        if member_id in group.roster.members or member_id in group.roster.pending:
            group.roster.remove(member_id)
        refuse_join(step, call, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not _fits(group, request):
        refuse_join(step, call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif not member_id:
        _join_unknown(group, step, call)
    elif member_id in group.roster.pending:
        _join_pending(group, step, call)
    else:
        _join_known(group, step, call)


def _has_room(group: GroupState, member_id: str) -> bool:
    """Whether `group.max.size` admits this join.

    During a rebalance only the waiting members count. If the limit was lowered, the last members to
    rejoin are refused.
    """
    roster, most = group.roster, group.settings.size_max
    if group.state in (State.EMPTY, State.DEAD):
        return True
    if group.state is State.PREPARING_REBALANCE:
        return member_id in roster.joining or len(roster.joining) < most
    return member_id in roster.members or len(roster.members) < most


def _fits(group: GroupState, request: JoinGroupRequest) -> bool:
    """Whether the member shares the group's protocol type and a protocol with all members."""
    if group.state is State.EMPTY:
        return bool(request.protocol_type and request.protocols)
    names = [protocol.name for protocol in request.protocols]
    return group.roster.protocol_type == request.protocol_type and group.roster.supports(names)


def _join_unknown(group: GroupState, step: Step, call: ClientCall[JoinGroupRequest]) -> None:
    """Handle a join without a member id: a new member, or a static member that has come back."""
    instance_id = call.request.group_instance_id
    new_id = f"{call.client_id if instance_id is None else instance_id}-{step.uuid()}"
    if instance_id is not None and instance_id in group.roster.static_ids:
        _replace_static(group, step, call, new_id)
    elif instance_id is not None or call.version < _MEMBER_ID_REQUIRED:
        _add(group, step, call, new_id)
    elif len(group.roster.pending) >= _PENDING_MAX:
        refuse_join(step, call, ErrorCode.COORDINATOR_NOT_AVAILABLE)  # clients retry
    else:
        group.roster.pending.add(new_id)
        step.set_timer(group.group_id, ("session", new_id), call.request.session_timeout_ms)
        refuse_join(step, call, ErrorCode.MEMBER_ID_REQUIRED, new_id)


def _join_pending(group: GroupState, step: Step, call: ClientCall[JoinGroupRequest]) -> None:
    """Handle a join with an id that was assigned but not used yet."""
    if call.request.group_instance_id is not None:
        # A static member is never given an id to join again with.
        refuse_join(step, call, ErrorCode.UNKNOWN_MEMBER_ID)
        return
    _add(group, step, call, call.request.member_id)


def _join_known(group: GroupState, step: Step, call: ClientCall[JoinGroupRequest]) -> None:
    """Handle a join of a known member."""
    request, roster = call.request, group.roster
    try:
        member = roster.member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        refuse_join(step, call, error.code, request.member_id)
        return
    unchanged = member.supports_exactly(_terms(call).protocols)
    leads = roster.leader == member.member_id
    if group.state is State.COMPLETING_REBALANCE and unchanged:
        # The response to its first attempt may have been lost.
        response = joined(group, member.member_id)
        response.members = metadata_of_all(group) if leads else []
        step.answer_now(call, response)
    elif group.state is State.STABLE and unchanged and not leads:
        step.answer_now(call, joined(group, member.member_id))
    else:
        # A leader that joins again requests a rebalance, as it may have seen topics change.
        _update(group, step, call, member)
        rebalance.prepare_or_complete(group, step)


def _add(group: GroupState, step: Step, call: ClientCall[JoinGroupRequest], member_id: str) -> None:
    """Add a new member, which makes the group rebalance."""
    terms = _terms(call)
    member = Member(
        member_id,
        call.request.group_instance_id,
        call.client_id,
        call.client_host,
        terms.rebalance_ms,
        terms.session_ms,
        terms.protocols,
        is_new=True,
    )
    if group.state is State.PREPARING_REBALANCE and group.previous is State.EMPTY:
        group.newly_joined = True
    group.roster.add(member, call.request.protocol_type)
    group.roster.joining[member_id] = call
    group.restart_session(step, member, _FIRST_JOIN_MS_MAX)
    rebalance.prepare_or_complete(group, step)


def _replace_static(
    group: GroupState, step: Step, call: ClientCall[JoinGroupRequest], new_id: str
) -> None:
    """Replace a static member by its new instance; the previous one is fenced."""
    roster = group.roster
    instance_id = call.request.group_instance_id
    assert instance_id is not None
    old_id, old_leader = roster.static_ids[instance_id], roster.leader
    release(group, step, old_id, ErrorCode.FENCED_INSTANCE_ID, old_id)
    old = roster.members[old_id]
    member = roster.rename(old_id, new_id)
    group.end_session(step, old_id)
    _update(group, step, call, member)
    group.restart_session(step, member)
    if group.state is State.STABLE and roster.vote() == group.protocol:
        _answer_replacement(group, step, member, old_leader)
        step.if_refused(lambda: _take_back(group, old, new_id))
    else:
        # During a sync the leader may already assign to the old id, so all members join again.
        rebalance.prepare_or_complete(group, step)


def _take_back(group: GroupState, old: Member, new_id: str) -> None:
    """Undo a replacement that the log has refused, unless the member has changed since."""
    roster = group.roster
    if group.state is State.STABLE and roster.static_ids.get(old.instance_id or "") == new_id:
        member = roster.rename(new_id, old.member_id)
        roster.change(member, old.protocols, old.session_timeout_ms, old.rebalance_timeout_ms)


def _answer_replacement(
    group: GroupState, step: Step, member: Member, old_leader: str | None
) -> None:
    """Record the new id; assignment and generation stay the same.

    Before v9 a leader is told that its previous instance leads, so that it does not assign again.
    """
    roster = group.roster
    assignments = {known.member_id: known.assignment for known in roster.members.values()}
    metadata.record(group, step, assignments)
    call = group.roster.joining.pop(member.member_id)
    if call.version < _MAY_SKIP_ASSIGNMENT:
        step.answer(call, joined(group, member.member_id, leader=old_leader))
        return
    leads = group.roster.leader == member.member_id
    response = joined(group, member.member_id, skip_assignment=leads)
    response.members = metadata_of_all(group) if leads else []
    step.answer(call, response)


def _update(
    group: GroupState, step: Step, call: ClientCall[JoinGroupRequest], member: Member
) -> None:
    """Update a member from another join, and let it wait.

    An earlier join that still waits is told to retry, because its client has given it up.
    """
    terms = _terms(call)
    group.roster.change(member, terms.protocols, terms.session_ms, terms.rebalance_ms)
    earlier = group.roster.joining.get(member.member_id)
    if earlier is not None:
        refuse_join(step, earlier, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    group.roster.joining[member.member_id] = call


def _terms(call: ClientCall[JoinGroupRequest]) -> _Terms:
    request = call.request
    # v0 has no rebalance timeout; the session timeout is used for both.
    return _Terms(
        {protocol.name: protocol.metadata for protocol in request.protocols},
        request.session_timeout_ms,
        request.rebalance_timeout_ms if call.version else request.session_timeout_ms,
    )
