"""Which assignor computes the target, and what happens if it fails or takes long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.actors.group.assigning import AssignmentUnderWay
from raylog.actors.metadata.records import BrokerRegistered
from raylog.assignors.api import Member, MemberAssignment, Topic
from tests.worlds.group.consumer import ConsumerWorld, FewMoves


def test_assignor_with_the_most_votes_is_used() -> None:
    world = ConsumerWorld(t=1)
    world.join("a", "t")
    assert world.describe().assignor_name == "uniform"
    world.join("b", "t", server_assignor="range")
    assert world.describe().assignor_name == "range"
    world.join("c", "t", server_assignor="uniform")
    world.join("d", "t", server_assignor="uniform")
    assert world.describe().assignor_name == "uniform"
    assert world.assigning.names == ["uniform", "range", "uniform", "uniform"]


def test_a_vote_alone_changes_nothing_yet() -> None:
    world = ConsumerWorld(t=1)
    world.join("a", "t")
    world.beat("a", 2, server_assignor="range")
    assert world.group.state.group_epoch == 2
    assert world.describe().assignor_name == "range"


def test_assignor_input_contains_members_topics_and_racks() -> None:
    world = ConsumerWorld(t=2, u=1)
    for broker_id, rack in ((1, "r1"), (2, None)):
        world.world.image.apply(
            BrokerRegistered(broker_id, 1, "h", 1, rack, "d", "i", False, "b", "n")
        )
    world.join("b", "t", rack_id="r1")
    world.join("a", "u", instance_id="i")
    assert world.assigning.members == [
        Member("a", frozenset({"u"}), instance_id="i", generation=2),
        Member("b", frozenset({"t"}), {"t": (0, 1)}, rack="r1", generation=2),
    ]
    assert world.assigning.topics == {
        "t": Topic("t", 2, (frozenset({"r1"}), frozenset({"r1"}))),
        "u": Topic("u", 1, (frozenset({"r1"}),)),
    }


def test_an_assignor_that_fails_leaves_the_old_target() -> None:
    world = ConsumerWorld(t=2)
    world.join("a", "t")
    world.assigning.error = "assignor 'uniform' raised ZeroDivisionError"
    joined = world.join("b", "t")
    assert (joined.member_epoch, world.owned(joined)) == (2, {})
    assert world.group.assignor_error == "assignor 'uniform' raised ZeroDivisionError"
    assert world.describe().error_message == "assignor 'uniform' raised ZeroDivisionError"
    assert world.describe().error_code == 0
    assert world.group.state_name() == "Assigning"
    assert world.beat("a", 2).member_epoch == 2
    assert world.assignments() == {"a": {"t": [0, 1]}, "b": {}}


def test_an_assignor_that_failed_is_tried_again_later_or_for_a_new_epoch() -> None:
    world = ConsumerWorld(t=2)
    world.assigning.error = "no"
    world.join("a", "t")
    world.beat("a", 1)
    assert len(world.assigning.names) == 1
    world.join("b", "t")
    assert len(world.assigning.names) == 2
    world.assigning.error = None
    world.world.advance(9_999)
    assert world.beat("a", 1).member_epoch == 1
    world.world.advance(1)
    assert world.owned(world.beat("a", 1)) == {"t": [0]}
    assert world.group.assignor_error is None


class Elsewhere(FewMoves):
    """An assignor that reports that it is busy until it is done."""

    done = False

    def assign(
        self, group_id: str, name: str, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        found = super().assign(group_id, name, members, topics)
        if not self.done:
            raise AssignmentUnderWay("at work")
        return found


def test_an_assignment_that_is_worked_out_elsewhere() -> None:
    world = ConsumerWorld(t=2)
    world.assigning = Elsewhere()
    world.join("a", "t")
    world.beat("a", 1)
    world.join("b", "t")
    assert len(world.assigning.names) == 1  # it is not asked while it works
    assert world.group.assignor_error is None
    world.assigning.done = True
    world.world.run(world.group.assignment_is_ready)
    assert world.group.state.target_epoch == 3
    assert world.owned(world.beat("a", 1)) == {"t": [0]}
    assert world.owned(world.beat("b", 1)) == {"t": [1]}


def test_a_result_for_members_that_have_changed_is_asked_for_again() -> None:
    world = ConsumerWorld(t=2)
    world.assigning = Elsewhere()
    world.join("a", "t")
    world.join("b", "t")
    world.world.run(world.group.assignment_is_ready)
    assert len(world.assigning.names) == 2
    assert world.group.state.target_epoch == 1


def test_a_result_for_a_group_without_members_is_not_needed() -> None:
    world = ConsumerWorld(t=2)
    world.assigning = Elsewhere()
    world.join("a", "t")
    world.beat("a", -1)
    world.world.run(world.group.assignment_is_ready)
    assert len(world.assigning.names) == 1


def test_an_assignment_that_the_log_did_not_wait_for_is_asked_for_again() -> None:
    """What was under way may be for members that were refused."""
    world = ConsumerWorld(t=2)
    world.assigning = Elsewhere()
    world.join("a", "t")
    asked = len(world.assigning.names)
    world.world.run(world.group.reverted)
    world.beat("a", 1)
    assert len(world.assigning.names) == asked + 1
