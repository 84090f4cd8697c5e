"""JoinGroup: who may join, and what comes of it.

A new dynamic member is first given an id to come back with (v4, KIP-394). A static member that
comes back without its id replaces its former self (v5, KIP-345), in a stable group without a
rebalance, and the leader among them need not assign anew (v9, KIP-814).
"""

from dataclasses import dataclass

from raylog.actors.coordination.step import Asked, Step
from raylog.actors.group.classic import metadata, rebalance
from raylog.actors.group.classic.answers import joined, metadata_of_all, refuse_join, release
from raylog.actors.group.classic.members import Member
from raylog.actors.group.classic.state import GroupState, State
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.messages.join_group import JoinGroupRequest

_MEMBER_ID_REQUIRED = 4
_MAY_SKIP_ASSIGNMENT = 9
_FIRST_JOIN_MS_MAX = 300_000
"""A new member that waits in its first join cannot be heard; after so long it is out."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a join offers and asks for."""

    protocols: dict[str, bytes]
    session_ms: int
    rebalance_ms: int


def join(group: GroupState, step: Step, asked: Asked[JoinGroupRequest]) -> None:
    """Handle a JoinGroup."""
    request = asked.request
    member_id = request.member_id
    if not _has_room(group, member_id):
        if member_id in group.roster.members or member_id in group.roster.pending:
            group.roster.remove(member_id)
        refuse_join(step, asked, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not _fits(group, request):
        refuse_join(step, asked, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif not member_id:
        _join_unknown(group, step, asked)
    elif member_id in group.roster.pending:
        _join_pending(group, step, asked)
    else:
        _join_known(group, step, asked)


def _has_room(group: GroupState, member_id: str) -> bool:
    """Whether `group.max.size` admits this join.

    While members rejoin, those that wait are counted: where the limit was lowered, the last to
    rejoin are turned away.
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


def _join_unknown(group: GroupState, step: Step, asked: Asked[JoinGroupRequest]) -> None:
    """Someone without a member id: new, or a static member that is back."""
    instance_id = asked.request.group_instance_id
    new_id = f"{asked.client_id if instance_id is None else instance_id}-{step.uuid()}"
    if instance_id is not None and instance_id in group.roster.static_ids:
        _replace_static(group, step, asked, new_id)
    elif instance_id is None and asked.version >= _MEMBER_ID_REQUIRED:
        group.roster.pending.add(new_id)
        step.set_timer(group.group_id, ("session", new_id), asked.request.session_timeout_ms)
        refuse_join(step, asked, ErrorCode.MEMBER_ID_REQUIRED, new_id)
    else:
        _add(group, step, asked, new_id)


def _join_pending(group: GroupState, step: Step, asked: Asked[JoinGroupRequest]) -> None:
    """Someone comes back with the id it was given."""
    if asked.request.group_instance_id is not None:
        # A static member is never given an id to come back with.
        refuse_join(step, asked, ErrorCode.UNKNOWN_MEMBER_ID)
        return
    _add(group, step, asked, asked.request.member_id)


def _join_known(group: GroupState, step: Step, asked: Asked[JoinGroupRequest]) -> None:
    """A member joins again."""
    request, roster = asked.request, group.roster
    try:
        member = roster.member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        refuse_join(step, asked, error.code, request.member_id)
        return
    unchanged = member.supports_exactly(_terms(asked).protocols)
    leads = roster.leader == member.member_id
    if group.state is State.COMPLETING_REBALANCE and unchanged:
        # It may have missed the answer to its first attempt.
        response = joined(group, member.member_id)
        response.members = metadata_of_all(group) if leads else []
        step.answer_now(asked, response)
    elif group.state is State.STABLE and unchanged and not leads:
        step.answer_now(asked, joined(group, member.member_id))
    else:
        # A leader that joins again asks for a rebalance: it may have seen topics change.
        _update(group, step, asked, member)
        rebalance.prepare_or_complete(group, step)


def _add(group: GroupState, step: Step, asked: Asked[JoinGroupRequest], member_id: str) -> None:
    """A new member, which makes the group rebalance."""
    terms = _terms(asked)
    member = Member(
        member_id,
        asked.request.group_instance_id,
        asked.client_id,
        asked.client_host,
        terms.rebalance_ms,
        terms.session_ms,
        terms.protocols,
        is_new=True,
    )
    if group.state is State.PREPARING_REBALANCE and group.previous is State.EMPTY:
        group.newly_joined = True
    group.roster.add(member, asked.request.protocol_type)
    group.roster.joining[member_id] = asked
    group.restart_session(step, member, _FIRST_JOIN_MS_MAX)
    rebalance.prepare_or_complete(group, step)


def _replace_static(
    group: GroupState, step: Step, asked: Asked[JoinGroupRequest], new_id: str
) -> None:
    """A static member is back under a new id; its former self is fenced."""
    roster = group.roster
    instance_id = asked.request.group_instance_id
    assert instance_id is not None
    old_id, old_leader = roster.static_ids[instance_id], roster.leader
    release(group, step, old_id, ErrorCode.FENCED_INSTANCE_ID, old_id)
    old = roster.members[old_id]
    member = roster.rename(old_id, new_id)
    group.end_session(step, old_id)
    _update(group, step, asked, member)
    group.restart_session(step, member)
    if group.state is State.STABLE and roster.vote() == group.protocol:
        _answer_replacement(group, step, member, old_leader)
        step.if_refused(lambda: _take_back(group, old, new_id))
    else:
        # While members sync, the leader may already assign to the old id: join again.
        rebalance.prepare_or_complete(group, step)


def _take_back(group: GroupState, old: Member, new_id: str) -> None:
    """The log has refused a replacement: the former self is a member, unless more happened."""
    roster = group.roster
    if group.state is State.STABLE and roster.static_ids.get(old.instance_id or "") == new_id:
        member = roster.rename(new_id, old.member_id)
        roster.change(member, old.protocols, old.session_timeout_ms, old.rebalance_timeout_ms)


def _answer_replacement(
    group: GroupState, step: Step, member: Member, old_leader: str | None
) -> None:
    """Record the new id; assignment and generation stay.

    Before v9 a leader is told that its former self leads, lest it assigns anew.
    """
    roster = group.roster
    assignments = {known.member_id: known.assignment for known in roster.members.values()}
    metadata.record(group, step, assignments)
    asked = group.roster.joining.pop(member.member_id)
    if asked.version < _MAY_SKIP_ASSIGNMENT:
        step.answer(asked, joined(group, member.member_id, leader=old_leader))
        return
    leads = group.roster.leader == member.member_id
    response = joined(group, member.member_id, skip_assignment=leads)
    response.members = metadata_of_all(group) if leads else []
    step.answer(asked, response)


def _update(group: GroupState, step: Step, asked: Asked[JoinGroupRequest], member: Member) -> None:
    """Take what a member says in a further join, and let it wait.

    An earlier join of it that still waits is told to try again: its client has gone on.
    """
    terms = _terms(asked)
    group.roster.change(member, terms.protocols, terms.session_ms, terms.rebalance_ms)
    earlier = group.roster.joining.get(member.member_id)
    if earlier is not None:
        refuse_join(step, earlier, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    group.roster.joining[member.member_id] = asked


def _terms(asked: Asked[JoinGroupRequest]) -> _Terms:
    request = asked.request
    # v0 has no rebalance timeout; the session's holds for both.
    return _Terms(
        {protocol.name: protocol.metadata for protocol in request.protocols},
        request.session_timeout_ms,
        request.rebalance_timeout_ms if asked.version else request.session_timeout_ms,
    )
