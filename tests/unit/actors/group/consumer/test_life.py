"""Members of a KIP-848 group join, get partitions, hand some over and leave."""

from __future__ import annotations

from tests.worlds.group.consumer import ConsumerWorld


def test_the_first_member_gets_all_at_once() -> None:
    world = ConsumerWorld(t=4)
    answer = world.join("a", "t")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 2, 5_000)
    assert world.owned(answer) == {"t": [0, 1, 2, 3]}
    assert world.group.state_name() == "Stable"
    assert world.beat("a", 2).assignment is None


def test_a_second_member_waits_until_the_first_has_given_up() -> None:
    world = ConsumerWorld(t=4)
    world.join("a", "t")
    joined = world.join("b", "t")
    assert (joined.member_epoch, world.owned(joined)) == (3, {})
    answer = world.beat("a", 2)
    assert (answer.member_epoch, world.owned(answer)) == (2, {"t": [0, 1]})
    assert world.beat("b", 3).assignment is None  # a has not said that it gave them up
    done = world.beat("a", 2, {"t": [0, 1]})
    assert (done.member_epoch, done.assignment) == (3, None)
    assert world.owned(world.beat("b", 3)) == {"t": [2, 3]}
    assert world.group.state_name() == "Stable"


def test_leaving_member_frees_its_partitions_at_once() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", "t")
    world.join("b", "t")
    world.beat("a", 2)
    world.beat("a", 2, {"t": [0]})
    world.beat("b", 3)
    left = world.beat("a", -1)
    assert (left.member_id, left.member_epoch, left.heartbeat_interval_ms) == ("a", -1, 0)
    assert world.owned(world.beat("b", 3)) == {"t": [0, 1]}
    world.beat("b", -1)
    assert world.group.state_name() == "Empty"
    assert world.group.is_empty()


def test_a_silent_member_is_out_after_its_session() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", "t")
    world.world.advance(30_000)
    world.join("b", "t")
    world.world.advance(15_000)
    assert world.group.state_name() == "Assigning"
    assert world.owned(world.beat("b", 3)) == {"t": [0, 1]}


def test_a_load_from_the_log_changes_nothing() -> None:
    world = ConsumerWorld(t=4)
    world.join("a", "t")
    world.join("b", "t")
    world.beat("a", 2)
    before = world.group.state
    world.world.crash()
    assert world.group.state == before
    assert world.beat("a", 2, {"t": [0, 1]}).member_epoch == 3
    assert world.owned(world.beat("b", 3)) == {"t": [2, 3]}
