"""Moves a member from what it owns to its target, one heartbeat at a time (KIP-848).

    STABLE ── a newer target ──────────────┐
    UNREVOKED_PARTITIONS ── given up ──────┼─→ next: UNREVOKED_PARTITIONS while the target takes
    UNRELEASED_PARTITIONS ── always ───────┘       something away (the epoch stays), else
                                                   UNRELEASED_PARTITIONS while others still own
                                                   some of it, else STABLE (the target's epoch)

A partition that another member must give up first is never added. So none is owned twice, unless
the target itself gives it to several.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from raylog.actors.common_messages import TopicId
from raylog.actors.group.rules.consumer.member import Epochs, Holding, MemberState, Partitions
from raylog.wire.errors import FencedMemberEpoch

_NO_EPOCHS: dict[int, int] = {}
_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Towards:
    """The target of a member, and what the member reports."""

    epoch: int
    """The target's epoch."""
    partitions: Partitions
    subscribed: Container[TopicId]
    """Topics that are no longer subscribed are revoked even before a new target."""
    subscription_changed: bool
    owned: Partitions | None
    """The partitions that the member reports as owned; None if it does not report them."""
    is_free: Callable[[TopicId, int], bool]
    """Whether no member has to give up that partition first."""


def reconcile(now: Holding, towards: Towards) -> Holding:
    """Return the member's next state, or `now` itself if nothing changes.

    Raises FencedMemberEpoch if a newer build has left a state that this build does not know.
    """
    match now.state:
        case MemberState.STABLE:
            if now.epoch != towards.epoch:
                return _advance(now, now.epoch, towards)
        case MemberState.UNREVOKED_PARTITIONS:
            if not _owns_any(towards.owned, now.revoking):
                return _advance(now, now.epoch, towards)
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(now, now.epoch, towards)
        case MemberState.UNKNOWN:
            if towards.owned is None or towards.owned:
                raise FencedMemberEpoch(
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin."
                )
            return _advance(now, towards.epoch, towards)
    return _drop_unsubscribed(now, towards) if towards.subscription_changed else now


def _owns_any(owned: Partitions | None, partitions: Epochs) -> bool:
    """Whether the member may still own some of `partitions`: yes, unless it reports otherwise."""
    if owned is None:
        return True
    return any(
        not owned.get(topic_id, _NONE).isdisjoint(epochs) for topic_id, epochs in partitions.items()
    )


def _advance(now: Holding, epoch: int, towards: Towards) -> Holding:
    """First give up what the target lacks, then add those of the rest that are free."""
    keep: dict[TopicId, dict[int, int]] = {}
    revoke: dict[TopicId, dict[int, int]] = {}
    for topic_id, epochs in now.assigned.items():
        target = _target(topic_id, towards)
        _put(keep, topic_id, {one: came for one, came in epochs.items() if one in target})
        _put(revoke, topic_id, {one: came for one, came in epochs.items() if one not in target})
    if revoke and _owns_any(towards.owned, revoke):
        return Holding(epoch, now.epoch, MemberState.UNREVOKED_PARTITIONS, keep, revoke)
    waiting = _take_free(keep, towards)
    state = MemberState.UNRELEASED_PARTITIONS if waiting else MemberState.STABLE
    return Holding(towards.epoch, now.epoch, state, keep, {})


def _target(topic_id: TopicId, towards: Towards) -> frozenset[int]:
    if topic_id not in towards.subscribed:
        return _NONE
    return towards.partitions.get(topic_id, _NONE)


def _take_free(keep: dict[TopicId, dict[int, int]], towards: Towards) -> bool:
    """Add to `keep` the free partitions of the target; return whether some are not free."""
    waiting = False
    for topic_id in towards.partitions:
        kept = keep.get(topic_id, _NO_EPOCHS)
        wanted = sorted(one for one in _target(topic_id, towards) if one not in kept)
        free = [one for one in wanted if towards.is_free(topic_id, one)]
        waiting = waiting or len(free) < len(wanted)
        if free:
            added = dict(kept)
            added.update(dict.fromkeys(free, towards.epoch))
            keep[topic_id] = dict(sorted(added.items()))
    return waiting


def _drop_unsubscribed(now: Holding, towards: Towards) -> Holding:
    """Revoke topics that the member no longer subscribes to, before there is a newer target."""
    keep = {one: epochs for one, epochs in now.assigned.items() if one in towards.subscribed}
    if len(keep) == len(now.assigned):
        return now
    dropped = {one: epochs for one, epochs in now.assigned.items() if one not in keep}
    revoke: dict[TopicId, dict[int, int]] = {one: dict(some) for one, some in now.revoking.items()}
    for topic_id, epochs in dropped.items():
        revoke.setdefault(topic_id, {}).update(epochs)
    if _owns_any(towards.owned, revoke):
        return replace(now, state=MemberState.UNREVOKED_PARTITIONS, assigned=keep, revoking=revoke)
    return replace(now, assigned=keep)


def _put(into: dict[TopicId, dict[int, int]], topic_id: TopicId, epochs: dict[int, int]) -> None:
    if epochs:
        into[topic_id] = epochs
