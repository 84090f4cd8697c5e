"""A member's way from what it owns to its target, one heartbeat at a time (KIP-848).

    STABLE ── a newer target ──────────────┐
    UNREVOKED_PARTITIONS ── given up ──────┼─→ next: UNREVOKED_PARTITIONS while the target takes
    UNRELEASED_PARTITIONS ── always ───────┘       something away (the epoch stays), else
                                                   UNRELEASED_PARTITIONS while others still own
                                                   some of it, else STABLE (the target's epoch)

A partition that somebody owns and has to give up is never added, so none is owned twice, unless the
target itself gives it to several.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from raylog.actors.group.consumer.member import Epochs, Holding, MemberState, Partitions
from raylog.actors.ports import TopicId
from raylog.wire.errors import FencedMemberEpoch

_NO_EPOCHS: dict[int, int] = {}
_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Towards:
    """What a member is to be brought to, and what it says about itself."""

    epoch: int
    """The target's."""
    partitions: Partitions
    subscribed: Container[TopicId]
    """What is no longer subscribed is taken away before a new target says so."""
    subscription_changed: bool
    owned: Partitions | None
    """What the member reports to own; None: it says nothing."""
    is_free: Callable[[TopicId, int], bool]
    """Whether nobody has to give that partition up first."""


def reconcile(now: Holding, towards: Towards) -> Holding:
    """The member's next step; `now` itself if there is none.

    Raises FencedMemberEpoch if a newer version of the broker left a state that is not known here.
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
    """Whether the member may still own some of `partitions`; it does unless it says otherwise."""
    if owned is None:
        return True
    return any(
        not owned.get(topic_id, _NONE).isdisjoint(epochs) for topic_id, epochs in partitions.items()
    )


def _advance(now: Holding, epoch: int, towards: Towards) -> Holding:
    """Give up what the target lacks first, then take what is free of the rest."""
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
    """Add to `keep` what is free of the target; whether some of it is not."""
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
    """Take away what the member no longer subscribes to, although no newer target is there yet."""
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
