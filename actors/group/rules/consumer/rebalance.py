"""The causes of a rebalance in a KIP-848 group, and its steps.

When members, subscriptions or topics change, the group epoch rises. Then a target for it is
computed, and every member moves towards it in its own heartbeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from raylog.actors.coordination.rules.step import Counted, Step
from raylog.actors.decisions import MEMBER, Decided
from raylog.actors.group.assigning import AssignmentUnderWay
from raylog.actors.group.rules.consumer import downgrading, targets, topics
from raylog.actors.group.rules.consumer.context import GroupContext
from raylog.actors.group.rules.consumer.member import MemberState, Partitions, Profile
from raylog.actors.group.rules.consumer.reconcile import Towards, reconcile
from raylog.actors.group.rules.consumer.requests import Seat
from raylog.actors.group.rules.consumer.state import GroupState
from raylog.actors.group.rules.consumer.writing import GroupLog
from raylog.assignors.api import PluginError

_REGEX_INTERVAL_MS = 1_000.0
"""Shortest time between two matches of patterns against all topics."""
_ASSIGNOR_RETRY_MS = 10_000.0
"""Delay before an assignor that failed is called again for the same group epoch."""


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of a request to a member."""

    subscription: bool
    """Its subscription, by name or by pattern."""
    bumps_epoch: bool
    """Whether that is certain to change its topics; those of a new pattern are not known yet."""


def admit(
    group: GroupContext,
    step: Step,
    member_id: str,
    seat: Seat,
    profile: Profile,
    owned: Partitions | None,
) -> None:
    """Record a member's data and all consequences, in Kafka's order."""
    log = GroupLog(group.group_id, step)
    changed = take_place(group, step, member_id, seat, profile)
    _update_epoch(group, step, log, bump=changed.bumps_epoch)
    update_target(group, step, log)
    _move_member(
        group, step, log, member_id, subscription_changed=changed.subscription, owned=owned
    )


def take_place(
    group: GroupContext, step: Step, member_id: str, seat: Seat, profile: Profile
) -> Change:
    """Record a member's data; it may replace a static member."""
    log = GroupLog(group.group_id, step)
    if seat.replaces is not None:
        _replace_member(group, step, log, seat.replaces, member_id, seat)
    return _take_profile(group, step, log, member_id, seat.profile, profile)


def _take_profile(
    group: GroupContext, step: Step, log: GroupLog, member_id: str, old: Profile, new: Profile
) -> Change:
    """Record a member's own data, if it has changed."""
    state = group.state
    if member_id not in state.profiles or new != old:
        log.profile(member_id, new)
    names_changed = new.topic_names != old.topic_names
    if new.topic_regex == old.topic_regex:
        return Change(names_changed, names_changed)
    if old.topic_regex and not state.regex_counts[old.topic_regex]:
        _forget_regex(state, log, old.topic_regex)
    resolved = not new.topic_regex or new.topic_regex in state.regexes
    if not resolved:
        group.resolve_regexes_in(step, 0.0)
    return Change(True, names_changed or resolved)


def _forget_regex(state: GroupState, log: GroupLog, regex: str) -> None:
    """Drop a pattern that no member uses any more."""
    if regex in state.regexes:
        log.forget_regex(regex)


def _replace_member(
    group: GroupContext, step: Step, log: GroupLog, old_id: str, new_id: str, seat: Seat
) -> None:
    """Hand a static member's place to its new member id."""
    target = group.state.target(old_id)
    log.forget_member(old_id)
    group.end_timers(step, old_id)
    log.profile(new_id, seat.profile)
    log.target(new_id, target)
    log.holding(new_id, seat.holding)


def _update_epoch(group: GroupContext, step: Step, log: GroupLog, *, bump: bool) -> None:
    """Raise the group epoch if requested, or if the subscribed topics have changed."""
    if not bump and not group.metadata_is_stale:
        return
    state = group.state
    found = topics.metadata_hash(step.image, state.subscribed())
    group.metadata_is_stale = False
    if bump or found != state.metadata_hash:
        log.epoch(state.group_epoch + 1, found)


def update_target(group: GroupContext, step: Step, log: GroupLog) -> None:
    """Compute the target for the group epoch, unless the last target is too recent.

    If the assignor fails, the old target stays, and the error is remembered.
    """
    state = group.state
    if state.group_epoch <= state.target_epoch or not _may_compute(group, step):
        return
    epoch = state.group_epoch
    name = targets.chosen_assignor(state, group.settings.consumer_assignors)
    try:
        computed = targets.compute(group.group_id, state, step.image, group.assigning, name)
    except AssignmentUnderWay:
        group.assignment_is_under_way = True
        return
    except PluginError as failure:
        group.assignor_error, group.failed_epoch = str(failure), epoch
        group.retry_at_ms = step.monotonic_ms + _ASSIGNOR_RETRY_MS
        return
    group.assignor_error = None
    step.counted.append(Counted.REBALANCE)
    targets.write(log, state, computed, epoch, step.now_ms)


def assignment_is_ready(group: GroupContext, step: Step) -> None:
    """Use the result of an assignor, unless members or topics have changed since."""
    group.assignment_is_under_way = False
    if group.state.profiles:
        update_target(group, step, GroupLog(group.group_id, step))


def _may_compute(group: GroupContext, step: Step) -> bool:
    if group.assignment_is_under_way:
        return False
    age_ms = step.now_ms - group.state.target_timestamp_ms
    interval_ms = group.settings.assignment_interval_ms_of(step.image, group.group_id)
    if 0 <= age_ms < interval_ms:
        return False
    failed_before = group.assignor_error is not None
    same_again = failed_before and group.failed_epoch == group.state.group_epoch
    return not same_again or step.monotonic_ms >= group.retry_at_ms


def _move_member(
    group: GroupContext,
    step: Step,
    log: GroupLog,
    member_id: str,
    *,
    subscription_changed: bool,
    owned: Partitions | None,
) -> None:
    """Move a member one step closer to its target."""
    state = group.state
    now = state.holding(member_id)
    if not subscription_changed and now.is_reconciled_to(state.target_epoch):
        return
    subscribed = state.topics_of(state.profiles[member_id])
    towards = Towards(
        epoch=state.target_epoch,
        partitions=state.target(member_id),
        subscribed={
            step.image.topic_ids[name] for name in subscribed if name in step.image.topic_ids
        },
        subscription_changed=subscription_changed,
        owned=owned,
        is_free=state.is_free,
    )
    moved = reconcile(now, towards)
    if moved == now:
        return
    log.holding(member_id, moved)
    if moved.state is MemberState.UNREVOKED_PARTITIONS:
        group.allow_revocation(step, member_id)
    else:
        group.end_revocation(step, member_id)


def remove_members(group: GroupContext, step: Step, member_ids: Sequence[str], why: str) -> None:
    """Remove members that leave or are fenced: their partitions are free, and the epoch rises.

    If only classic members are left, the group becomes classic instead.
    """
    state = group.state
    left = len(state.profiles) - len(member_ids)
    text = (
        f"member {', '.join(member_ids)} leaves group {group.group_id}: {why}; {left} left, "
        f"group epoch {state.group_epoch}"
    )
    step.decided.append(Decided(MEMBER, text, group.group_id))
    if downgrading.is_due(group, member_ids):
        downgrading.downgrade(group, step, member_ids, rebalance=True)
        return
    log = GroupLog(group.group_id, step)
    for member_id in member_ids:
        regex = state.profiles[member_id].topic_regex
        log.forget_member(member_id)
        group.end_timers(step, member_id)
        if regex and not state.regex_counts[regex]:
            _forget_regex(state, log, regex)
    found = topics.metadata_hash(step.image, state.subscribed())
    log.epoch(state.group_epoch + 1, found)


def session_time_passed(group: GroupContext, step: Step, member_id: str) -> None:
    """Remove a member that has exceeded its session timeout."""
    if member_id in group.state.profiles:
        remove_members(group, step, [member_id], "its session timed out")


def revocation_time_passed(group: GroupContext, step: Step, member_id: str) -> None:
    """Remove a member that has not given up partitions within its rebalance timeout."""
    if group.state.holding(member_id).state is MemberState.UNREVOKED_PARTITIONS:
        remove_members(group, step, [member_id], "it did not give partitions up in time")


def classic_time_passed(group: GroupContext, step: Step, member_id: str) -> None:
    """Remove a classic member that did not join again, or did not request its assignment."""
    group.rejoining.discard(member_id)
    if member_id in group.state.profiles:
        remove_members(group, step, [member_id], "it did not join again in time")


def start_timers(group: GroupContext, step: Step) -> None:
    """Start the sessions and revocation times of all members after a load."""
    _ensure_timers(group, step)
    group.metadata_is_stale = True
    if group.state.regex_counts:
        group.resolve_regexes_in(step, 0.0)


def _ensure_timers(group: GroupContext, step: Step) -> None:
    state = group.state
    for member_id, profile in state.profiles.items():
        session_ms = group.session_timeout_ms(step, profile)
        step.ensure_timer(group.group_id, ("session", member_id), session_ms)
        if state.holding(member_id).state is MemberState.UNREVOKED_PARTITIONS:
            key = ("rebalance", member_id)
            step.ensure_timer(group.group_id, key, profile.rebalance_timeout_ms)


def refused(group: GroupContext, step: Step) -> None:
    """Repair what was done in addition to records that the log has refused.

    Members that were restored get timers, and lost results are computed again.
    """
    _ensure_timers(group, step)
    group.metadata_is_stale = True
    group.assignment_is_under_way = False
    group.downgrade = None
    group.regexes_are_due = False
    group.regexes_left, group.regexes_offset, group.regex_under_way = [], -1, None
    if group.state.regex_counts:
        group.resolve_regexes_in(step, _REGEX_INTERVAL_MS)


def metadata_changed(group: GroupContext, step: Step, names: AbstractSet[str]) -> None:
    """Mark the hash and the patterns as outdated, if the changed topics may matter."""
    if _subscribes_any(group.state, names):
        group.metadata_is_stale = True
    if group.state.regex_counts:
        last_ms = group.regexes_resolved_ms
        since_ms = _REGEX_INTERVAL_MS if last_ms is None else step.monotonic_ms - last_ms
        group.resolve_regexes_in(step, max(0.0, _REGEX_INTERVAL_MS - since_ms))


def subscribes(state: GroupState, topic: str) -> bool:
    """Whether a member subscribes to the topic, by name or by a resolved pattern."""
    return topic in state.topic_counts or any(
        topic in resolved.topics for resolved in state.regexes.values()
    )


def _subscribes_any(state: GroupState, names: AbstractSet[str]) -> bool:
    """Whether a member subscribes to one of these topics, of which there may be many."""
    return not names.isdisjoint(state.topic_counts) or any(
        not names.isdisjoint(resolved.topics) for resolved in state.regexes.values()
    )


def resolve_regexes(group: GroupContext, step: Step) -> None:
    """Match patterns against all topics; raise the epoch if that changes anything.

    Each pattern takes one or more turns: compiling a pattern of a few bytes can take 25 ms, and
    matching it with the names of 100,000 topics can take minutes. While the metadata does not
    change, only new patterns are resolved.
    """
    group.regexes_are_due = False
    group.regexes_resolved_ms = step.monotonic_ms
    state, left = group.state, group.regexes_left
    matching = group.regex_under_way
    if matching is None and not left:
        group.regexes_begun = step.image.offset
        left += _unresolved(group, step)
    if matching is None and left:
        matching = topics.Matching(left.pop(), step.image)
    group.regex_under_way = None
    if matching is not None and matching.pattern in state.regex_counts and not matching.take_turn():
        group.regex_under_way = matching
        group.resolve_regexes_in(step, 0.0)
        return
    log = GroupLog(group.group_id, step)
    bump = matching is not None and _resolve_regex(state, step, log, matching)
    if bump or not left:
        found = topics.metadata_hash(step.image, state.subscribed())
        if bump or found != state.metadata_hash:
            log.epoch(state.group_epoch + 1, found)
    if left:
        group.resolve_regexes_in(step, 0.0)
        return
    group.regexes_offset = group.regexes_begun
    if _unresolved(group, step):  # patterns or topics have been added in the meantime
        group.resolve_regexes_in(step, _REGEX_INTERVAL_MS)


def _unresolved(group: GroupContext, step: Step) -> list[str]:
    """Return the patterns without a current result, in reverse order."""
    state = group.state
    known = state.regexes if step.image.offset == group.regexes_offset else ()
    return sorted((one for one in state.regex_counts if one not in known), reverse=True)


def _resolve_regex(state: GroupState, step: Step, log: GroupLog, matching: topics.Matching) -> bool:
    """Set the result of a pattern that is still used; return whether the epoch must rise."""
    regex = matching.pattern
    if regex not in state.regex_counts:
        return False
    old = state.regexes.get(regex)
    new = matching.resolved(step.now_ms)
    if old is not None and old.topics == new.topics:
        return False
    log.regex(regex, new)
    return bool(new.topics) or old is not None
