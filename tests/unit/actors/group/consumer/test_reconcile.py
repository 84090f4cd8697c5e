"""Single steps of a member towards its target assignment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.group.rules.consumer.member import Holding, MemberState
from raylog.actors.group.rules.consumer.reconcile import Towards, reconcile
from raylog.wire.errors import FencedMemberEpoch

T = TopicId(b"t" * 16)
U = TopicId(b"u" * 16)
STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS


def towards(epoch: int, target: Mapping[TopicId, set[int]], **fields: Any) -> Towards:
    """A target; all topics are subscribed to and all partitions free unless `fields` differ."""
    defaults: dict[str, Any] = {
        "subscribed": {T, U},
        "subscription_changed": False,
        "owned": None,
        "is_free": lambda _topic, _partition: True,
    }
    partitions = {topic: frozenset(some) for topic, some in target.items()}
    return Towards(epoch, partitions, **{**defaults, **fields})


def test_stable_at_the_target_stays() -> None:
    now = Holding(2, 1, STABLE, {T: {0: 2}})
    assert reconcile(now, towards(2, {T: {0}})) is now


def test_free_partitions_are_assigned_at_once() -> None:
    moved = reconcile(Holding(), towards(2, {T: {1, 0}, U: {3}}))
    assert moved == Holding(2, 0, STABLE, {T: {0: 2, 1: 2}, U: {3: 2}})
    assert list(moved.assigned[T]) == [0, 1]


def test_partition_owned_by_another_member_waits_unreleased() -> None:
    moved = reconcile(Holding(), towards(2, {T: {0, 1}}, is_free=lambda _, one: one == 1))
    assert moved == Holding(2, 0, UNRELEASED, {T: {1: 2}})
    again = reconcile(moved, towards(2, {T: {0, 1}}))
    assert again == Holding(2, 2, STABLE, {T: {0: 2, 1: 2}})


def test_something_is_to_be_given_up_first() -> None:
    now = Holding(2, 1, STABLE, {T: {0: 1, 1: 2}})
    moved = reconcile(now, towards(3, {T: {0}, U: {0}}))
    assert moved == Holding(2, 2, UNREVOKED, {T: {0: 1}}, {T: {1: 2}})


@pytest.mark.parametrize("owned", [None, {T: frozenset({0, 1})}])
def test_unrevoked_partition_blocks_the_next_epoch(owned: Any) -> None:
    now = Holding(2, 2, UNREVOKED, {T: {0: 1}}, {T: {1: 2}})
    assert reconcile(now, towards(3, {T: {0}}, owned=owned)) is now


def test_revocation_completes_the_move_to_the_next_epoch() -> None:
    now = Holding(2, 2, UNREVOKED, {T: {0: 1}}, {T: {1: 2}})
    moved = reconcile(now, towards(3, {T: {0}, U: {5}}, owned={T: frozenset({0})}))
    assert moved == Holding(3, 2, STABLE, {T: {0: 1}, U: {5: 3}})


def test_a_newer_target_takes_more_away() -> None:
    now = Holding(2, 2, UNREVOKED, {T: {0: 1, 2: 1}}, {T: {1: 2}})
    moved = reconcile(now, towards(4, {T: {2}}, owned={T: frozenset({0, 2})}))
    assert moved == Holding(2, 2, UNREVOKED, {T: {2: 1}}, {T: {0: 1}})


def test_partition_that_the_member_does_not_own_needs_no_revocation() -> None:
    now = Holding(2, 1, STABLE, {T: {0: 1, 1: 2}})
    moved = reconcile(now, towards(3, {T: {0}}, owned={}))
    assert moved == Holding(3, 2, STABLE, {T: {0: 1}})


def test_an_unsubscribed_topic_is_not_taken_even_if_the_target_has_it() -> None:
    moved = reconcile(Holding(1, 0), towards(2, {T: {0}, U: {0}}, subscribed={T}))
    assert moved == Holding(2, 1, STABLE, {T: {0: 2}})


def test_an_unsubscribed_topic_goes_before_the_target_says_so() -> None:
    now = Holding(2, 1, STABLE, {T: {0: 2}, U: {0: 2}})
    asked = towards(2, {T: {0}, U: {0}}, subscribed={T}, subscription_changed=True)
    assert reconcile(now, asked) == Holding(2, 1, UNREVOKED, {T: {0: 2}}, {U: {0: 2}})
    gone = towards(
        2, {T: {0}, U: {0}}, subscribed={T}, subscription_changed=True, owned={T: frozenset({0})}
    )
    assert reconcile(now, gone) == Holding(2, 1, STABLE, {T: {0: 2}})


def test_unsubscribed_while_giving_up() -> None:
    now = Holding(2, 2, UNREVOKED, {T: {0: 1}, U: {0: 1}}, {U: {1: 1}})
    asked = towards(3, {T: {0}}, subscribed={T}, subscription_changed=True)
    expected = Holding(2, 2, UNREVOKED, {T: {0: 1}}, {U: {0: 1, 1: 1}})
    assert reconcile(now, asked) == expected


def test_a_state_of_a_newer_broker() -> None:
    now = Holding(2, 1, MemberState.UNKNOWN, {T: {0: 2}})
    with pytest.raises(FencedMemberEpoch, match="unknown state"):
        reconcile(now, towards(3, {T: {0}}))
    moved = reconcile(now, towards(3, {T: {0}}, owned={}))
    assert moved == Holding(3, 2, STABLE, {T: {0: 2}})
