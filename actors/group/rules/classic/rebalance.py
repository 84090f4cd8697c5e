"""The course of a rebalance: it starts, waits, and ends with a new generation.

The first rebalance of an empty group waits for `group.initial.rebalance.delay.ms`. The delay is
extended as long as members join, up to the rebalance timeout. Any other rebalance waits until all
members have rejoined or the rebalance timeout has passed. Then dynamic members that have not
rejoined are removed.
"""

from raylog.actors.coordination.rules.step import Counted, Step
from raylog.actors.decisions import MEMBER, Decided
from raylog.actors.group.rules.classic import metadata
from raylog.actors.group.rules.classic.answers import joined, metadata_of_all, refuse_sync, release
from raylog.actors.group.rules.classic.members import Member
from raylog.actors.group.rules.classic.state import GroupState, State
from raylog.wire.errors import ErrorCode

_JOIN = ("join",)
_SYNC = ("sync",)
_ABSENT_MS = 1_000
"""Shortest time between two checks for static members that are all absent. They may have requested
a rebalance timeout of 0, and stay until their sessions end."""


def prepare_or_complete(group: GroupState, step: Step) -> None:
    """Start a rebalance, or complete the one in progress if possible."""
    if group.state is State.PREPARING_REBALANCE:
        complete_if_joined(group, step)
    else:
        prepare(group, step)


def prepare(group: GroupState, step: Step) -> None:
    """Start a rebalance: members must join again."""
    if group.state is State.COMPLETING_REBALANCE:
        _interrupt_syncs(group, step)
    step.cancel_timer(group.group_id, _SYNC)
    first = group.state is State.EMPTY
    group.move_to(State.PREPARING_REBALANCE, step.now_ms)
    if first:
        delay_ms = group.settings.initial_rebalance_delay_ms
        _delay_first(group, step, delay_ms, group.roster.rebalance_timeout_ms() - delay_ms)
    elif group.roster.all_joined():
        complete(group, step)
    else:
        _wait_for_joins(group, step)


def complete_if_joined(group: GroupState, step: Step) -> None:
    """End the rebalance once all members have joined; the first rebalance waits for its delay."""
    if group.previous is not State.EMPTY and group.roster.all_joined():
        complete(group, step)


def complete_after_loss(group: GroupState, step: Step) -> None:
    """End even a first rebalance if it was only waiting for a member or id that is now gone."""
    if group.state is State.PREPARING_REBALANCE and group.roster.all_joined():
        complete(group, step)


def join_time_passed(group: GroupState, step: Step) -> None:
    """Handle the end of the first rebalance's delay, or of the time limit for rejoining."""
    if group.state is not State.PREPARING_REBALANCE:
        return
    if group.initial_delay is not None and group.newly_joined:
        delay_ms, remaining_ms = group.initial_delay
        if remaining_ms:
            group.newly_joined = False
            next_ms = min(group.settings.initial_rebalance_delay_ms, remaining_ms)
            _delay_first(group, step, next_ms, remaining_ms - delay_ms)
            return
    complete(group, step)


def complete(group: GroupState, step: Step) -> None:
    """End the join phase with a new generation, or with an empty group."""
    roster = group.roster
    group.initial_delay = None
    group.newly_joined = False
    step.cancel_timer(group.group_id, _JOIN)
    for member in list(roster.members.values()):
        if member.member_id not in roster.joining and member.instance_id is None:
            _tell(group, step, member.member_id, "it did not join again in time")
            roster.remove(member.member_id)
            group.end_session(step, member.member_id)
    if not roster.elect_joined_leader() and roster.members:
        # Only absent static members are left; they are removed when their sessions end.
        step.set_timer(group.group_id, _JOIN, max(roster.rebalance_timeout_ms(), _ABSENT_MS))
        return
    group.next_generation()
    step.counted.append(Counted.REBALANCE)
    if not roster.members:
        group.move_to(State.EMPTY, step.now_ms)
        metadata.record(group, step, {})
        return
    group.move_to(State.COMPLETING_REBALANCE, step.now_ms)
    for member in roster.members.values():
        _answer_join(group, step, member)
    step.set_timer(group.group_id, _SYNC, roster.rebalance_timeout_ms())


def refused(group: GroupState, step: Step) -> None:
    """Repair what was done in addition to records that the log has refused.

    Members whose assignment was refused must join again, as in Kafka.
    """
    if group.assignment_was_refused:
        group.assignment_was_refused = False
        if group.state is State.COMPLETING_REBALANCE:
            prepare(group, step)
    restore_timers(group, step)


def restore_timers(group: GroupState, step: Step) -> None:
    """Set the timers that the group lacks, after a load or when a reverted group is restored."""
    timeout_ms = group.roster.rebalance_timeout_ms()
    for member in group.roster.members.values():
        group.ensure_session(step, member)
    if group.state is State.PREPARING_REBALANCE:
        step.ensure_timer(group.group_id, _JOIN, timeout_ms)
    elif group.roster.unsynced:
        step.ensure_timer(group.group_id, _SYNC, timeout_ms)


def cancel_timers(group: GroupState, step: Step) -> None:
    """Cancel all timers of the group."""
    for member_id in (*group.roster.members, *group.roster.pending):
        group.end_session(step, member_id)
    for key in (_JOIN, _SYNC):
        step.cancel_timer(group.group_id, key)


def sync_time_passed(group: GroupState, step: Step) -> None:
    """Remove members that did not request their assignment in time."""
    if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.roster.unsynced:
        return
    for member_id in list(group.roster.unsynced):
        remove(group, step, member_id, "it did not ask for its assignment in time")
    prepare(group, step)


def synced_by(group: GroupState, step: Step, member_id: str) -> None:
    """Record that a member has requested its assignment."""
    group.roster.unsynced.discard(member_id)
    if not group.roster.unsynced:
        step.cancel_timer(group.group_id, _SYNC)


def session_time_passed(group: GroupState, step: Step, member_id: str) -> None:
    """Remove a member after its session timeout, or an assigned id that was never used."""
    roster = group.roster
    if member_id in roster.pending:
        roster.remove(member_id)
        complete_after_loss(group, step)
        return
    member = roster.members.get(member_id)
    if member is None:
        return
    waits = member_id in roster.joining or member_id in roster.syncing
    if waits and not member.is_new:
        return  # its session restarts when the request is answered
    remove(group, step, member_id, f"it was silent for {member.session_timeout_ms} ms")
    if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        prepare(group, step)
    else:
        complete_after_loss(group, step)


def remove(group: GroupState, step: Step, member_id: str, why: str) -> None:
    """Remove a member; if it waits, it is told to join again."""
    _tell(group, step, member_id, why)
    release(group, step, member_id, ErrorCode.UNKNOWN_MEMBER_ID, "")
    group.roster.remove(member_id)
    group.end_session(step, member_id)


def _tell(group: GroupState, step: Step, member_id: str, why: str) -> None:
    """Record in the journal that a member will be removed."""
    left = len(group.roster.members) - (member_id in group.roster.members)
    text = (
        f"member {member_id} leaves group {group.group_id}: {why}; {left} left, "
        f"generation {group.generation}"
    )
    step.decided.append(Decided(MEMBER, text, group.group_id))


def _interrupt_syncs(group: GroupState, step: Step) -> None:
    for member in group.roster.members.values():
        member.assignment = b""
        syncing = group.roster.syncing.pop(member.member_id, None)
        if syncing is not None:
            refuse_sync(step, syncing, ErrorCode.REBALANCE_IN_PROGRESS)
            group.restart_session(step, member)


def _delay_first(group: GroupState, step: Step, delay_ms: int, remaining_ms: int) -> None:
    group.initial_delay = (delay_ms, max(remaining_ms, 0))
    step.set_timer(group.group_id, _JOIN, delay_ms)


def _wait_for_joins(group: GroupState, step: Step) -> None:
    step.set_timer(group.group_id, _JOIN, group.roster.rebalance_timeout_ms())


def _answer_join(group: GroupState, step: Step, member: Member) -> None:
    """Answer a member of the new generation; an absent static member is only expected to sync."""
    roster = group.roster
    member.is_new = False
    roster.unsynced.add(member.member_id)
    group.restart_session(step, member)
    call = roster.joining.pop(member.member_id, None)
    if call is None:
        return
    response = joined(group, member.member_id)
    if member.member_id == roster.leader:
        response.members = metadata_of_all(group)
    step.answer_now(call, response)
