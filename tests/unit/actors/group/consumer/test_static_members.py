"""Static members of KIP-848 groups: temporary leaves, returns, replacements (KIP-345)."""

from __future__ import annotations

import pytest

from raylog.wire.errors import ErrorCode
from tests.worlds.group.consumer import ConsumerWorld


@pytest.fixture
def world() -> ConsumerWorld:
    """One static member `a`, instance `i`, that owns all."""
    world = ConsumerWorld(t=2)
    world.join("a", "t", instance_id="i")
    return world


def test_an_instance_must_leave_before_another_comes_for_it(world: ConsumerWorld) -> None:
    for member_id in ("b", "a"):
        error = world.refused(
            member_id,
            0,
            instance_id="i",
            rebalance_timeout_ms=1,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        assert error.code is ErrorCode.UNRELEASED_INSTANCE_ID
        assert error.message == (
            f"Static member {member_id} with instance id i cannot join the group "
            "because the instance id is owned by a member."
        )


@pytest.mark.parametrize("epoch", [2, -1, -2])
def test_another_member_of_the_instance_is_fenced(world: ConsumerWorld, epoch: int) -> None:
    error = world.refused("b", epoch, instance_id="i")
    assert error.code is ErrorCode.FENCED_INSTANCE_ID
    assert error.message == "Static member b with instance id i was fenced by member a."
    error = world.refused("a", epoch, instance_id="j")
    assert error.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert error.message == "Instance id j is unknown."


def test_static_member_returns_with_a_new_id_without_a_rebalance(world: ConsumerWorld) -> None:
    left = world.beat("a", -2, instance_id="i")
    assert (left.member_id, left.member_epoch) == ("a", -2)
    assert world.group.state_name() == "Reconciling"
    assert world.refused("a", 2, instance_id="i").code is ErrorCode.FENCED_MEMBER_EPOCH
    back = world.join("b", "t", instance_id="i")
    assert (back.member_epoch, world.owned(back)) == (2, {"t": [0, 1]})
    assert world.group.state.group_epoch == 2
    assert world.group.state_name() == "Stable"
    assert world.refused("a", 2, instance_id="i").code is ErrorCode.FENCED_INSTANCE_ID
    assert world.refused("a", 2).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_returns_with_its_own_id(world: ConsumerWorld) -> None:
    world.beat("a", -2, instance_id="i")
    back = world.join("a", "t", instance_id="i")
    assert (back.member_epoch, world.owned(back)) == (2, {"t": [0, 1]})


def test_absent_static_member_is_removed_when_its_session_ends(world: ConsumerWorld) -> None:
    world.beat("a", -2, instance_id="i")
    world.world.advance(44_999)
    assert not world.group.is_empty()
    world.world.advance(1)
    assert world.group.is_empty()


def test_partitions_being_revoked_are_free_once_the_static_member_left(
    world: ConsumerWorld,
) -> None:
    world.join("b", "t")
    world.beat("a", 2, instance_id="i")
    assert world.beat("b", 3).assignment is None
    world.beat("a", -2, instance_id="i")
    assert world.owned(world.beat("b", 3)) == {"t": [1]}
    back = world.join("c", "t", instance_id="i")
    assert (back.member_epoch, world.owned(back)) == (3, {"t": [0]})
    assert world.group.state_name() == "Stable"
    assert ("g", ("rebalance", "c")) not in world.world.timers


def test_another_subscription_on_return_rebalances(world: ConsumerWorld) -> None:
    world.beat("a", -2, instance_id="i")
    back = world.join("b", "t", "other", instance_id="i", rack_id="r")
    assert back.member_epoch == 3
    member = world.describe().members[0]
    assert (member.instance_id, member.rack_id) == ("i", "r")
    assert member.subscribed_topic_names == ["other", "t"]


def test_leaving_for_good(world: ConsumerWorld) -> None:
    world.beat("a", -1, instance_id="i")
    assert world.group.is_empty()
    assert world.join("b", "t", instance_id="i").member_epoch == 4


def test_takeover_survives_a_crash(world: ConsumerWorld) -> None:
    world.beat("a", -2, instance_id="i")
    world.join("b", "t", instance_id="i")
    before = world.group.state
    world.world.crash()
    assert world.group.state == before
    assert world.beat("b", 2, instance_id="i").member_epoch == 2


def test_absence_of_a_static_member_may_exceed_the_rebalance_timeout(world: ConsumerWorld) -> None:
    world.join("b", "t")
    world.beat("a", 2, instance_id="i")
    assert ("g", ("rebalance", "a")) in world.world.timers
    world.beat("a", -2, instance_id="i")
    world.world.advance(44_000)
    world.beat("b", 3)
    assert "a" in world.group.state.profiles


def test_the_epoch_before_that_of_who_stays_away_is_recorded_as_by_kafka(
    world: ConsumerWorld,
) -> None:
    world.join("b", "t")
    world.beat("a", 2, {"t": [0]}, instance_id="i")
    before = world.group.state.holding("a")
    assert before.previous_epoch != before.epoch
    world.beat("a", -2, instance_id="i")
    assert world.group.state.holding("a").previous_epoch == before.previous_epoch
