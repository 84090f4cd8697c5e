"""The assignments that users of Kafka know from its documentation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic
from raylog.assignors.checking import check
from raylog.assignors.cooperative_sticky import CooperativeStickyAssignor
from raylog.assignors.range import RangeAssignor
from raylog.assignors.roundrobin import RoundRobinAssignor
from raylog.assignors.sticky import StickyAssignor
from raylog.assignors.uniform import UniformAssignor
from tests.support.assigning import having, members, short, topics

TWO_OF_THREE = topics(t0=3, t1=3)
ONE_TWO_THREE = topics(t0=1, t1=2, t2=3)
UNEQUAL = [
    Member("C0", frozenset({"t0"})),
    Member("C1", frozenset({"t0", "t1"})),
    Member("C2", frozenset({"t0", "t1", "t2"})),
]
ALL = [
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
    UniformAssignor,
]
STICKY = [StickyAssignor, CooperativeStickyAssignor, UniformAssignor]


def sizes(assignment: Mapping[str, MemberAssignment]) -> list[int]:
    return [sum(map(len, each.partitions.values())) for each in assignment.values()]


def test_range_with_two_members_and_two_topics_of_three_partitions() -> None:
    found = RangeAssignor().assign(members(2, TWO_OF_THREE), TWO_OF_THREE)
    assert short(found) == {"C0": "t0p0 t0p1 t1p0 t1p1", "C1": "t0p2 t1p2"}


def test_roundrobin_with_the_same_group() -> None:
    found = RoundRobinAssignor().assign(members(2, TWO_OF_THREE), TWO_OF_THREE)
    assert short(found) == {"C0": "t0p0 t0p2 t1p1", "C1": "t0p1 t1p0 t1p2"}


def test_roundrobin_with_unequal_subscriptions() -> None:
    found = RoundRobinAssignor().assign(UNEQUAL, ONE_TWO_THREE)
    assert short(found) == {"C0": "t0p0", "C1": "t1p0", "C2": "t1p1 t2p0 t2p1 t2p2"}


@pytest.mark.parametrize("assignor", STICKY)
def test_sticky_with_unequal_subscriptions(assignor: type[Assignor]) -> None:
    found = assignor().assign(UNEQUAL, ONE_TWO_THREE)
    assert short(found) == {"C0": "t0p0", "C1": "t1p0 t1p1", "C2": "t2p0 t2p1 t2p2"}


@pytest.mark.parametrize("assignor", STICKY)
def test_sticky_is_even_first_and_then_moves_little(assignor: type[Assignor]) -> None:
    subscribed = topics(t0=9)
    three = members(3, subscribed)
    before = assignor().assign(three, subscribed)
    left = assignor().assign(having(three[:2], before), subscribed)
    for member_id in ("C0", "C1"):
        assert set(before[member_id].partitions["t0"]) < set(left[member_id].partitions["t0"])
    assert sorted(sizes(left)) == [4, 5]


@pytest.mark.parametrize("assignor", STICKY)
def test_where_evenness_and_stickiness_conflict_evenness_wins(assignor: type[Assignor]) -> None:
    subscribed = topics(t0=6)
    two = having(members(2, subscribed), {"C0": MemberAssignment({"t0": [0, 1, 2, 3, 4, 5]})})
    found = assignor().assign(two, subscribed)
    assert sizes(found) == [3, 3]
    assert set(found["C0"].partitions["t0"]) <= {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("assignor", ALL)
def test_seven_partitions_while_a_group_grows_to_eight(assignor: type[Assignor]) -> None:
    subscribed = topics(t0=7)
    shares = {
        count: sorted(sizes(assignor().assign(members(count, subscribed), subscribed)))
        for count in (1, 2, 3, 8)
    }
    assert shares == {1: [7], 2: [3, 4], 3: [2, 2, 3], 8: [0, 1, 1, 1, 1, 1, 1, 1]}


@pytest.mark.parametrize("assignor", ALL)
def test_two_groups_of_four_and_two_on_four_partitions_do_not_see_each_other(
    assignor: type[Assignor],
) -> None:
    subscribed = topics(t0=4)
    one = assignor()
    a = one.assign(members(4, subscribed), subscribed)
    b = one.assign(members(2, subscribed), subscribed)
    assert sizes(a) == [1, 1, 1, 1]
    assert sizes(b) == [2, 2]
    assert one.assign(members(4, subscribed), subscribed) == a


class ByWeight(Assignor):
    """A custom assignor: each partition goes to the member with the least load for its weight."""

    name = "by-weight"

    def __init__(self, weight: int = 1) -> None:
        self.weight = weight
        self.calls: list[tuple[MemberAssignment, int]] = []

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        return f"weight={self.weight};topics={','.join(sorted(topics))}".encode()

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        weights = {
            member.member_id: int(member.user_data.split(b";")[0].removeprefix(b"weight="))
            for member in members
        }
        found = {
            member.member_id: MemberAssignment(user_data=b"for " + member.member_id.encode())
            for member in members
        }
        for topic in topics.values():
            for partition in range(topic.partitions):
                taker = min(
                    (member for member in members if topic.name in member.topics),
                    key=lambda m: sizes({"": found[m.member_id]})[0] / weights[m.member_id],
                )
                found[taker.member_id].partitions.setdefault(topic.name, []).append(partition)
        return found

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        self.calls.append((assignment, generation))


class ToAll(Assignor):
    """A custom assignor: every partition goes to every member."""

    name = "to-all"
    shares_partitions = True

    def assign(
        self, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        return {
            member.member_id: MemberAssignment(
                {name: list(range(topics[name].partitions)) for name in sorted(member.topics)}
            )
            for member in members
        }


def test_a_custom_assignor_gets_and_gives_user_data_and_is_called_back() -> None:
    subscribed = topics(t0=6)
    small, large = ByWeight(1), ByWeight(2)
    joining = [
        replace(member, user_data=one.subscription_user_data(subscribed))
        for member, one in zip(members(2, subscribed), (small, large), strict=True)
    ]
    assert joining[1].user_data == b"weight=2;topics=t0"
    found = small.assign(joining, subscribed)
    assert sizes(found) == [2, 4]
    assert found["C1"].user_data == b"for C1"
    large.on_assignment(found["C1"], 7)
    assert large.calls == [(found["C1"], 7)]


def test_a_custom_assignor_may_give_every_partition_to_every_member() -> None:
    subscribed = topics(t0=2)
    found = ToAll().assign(members(2, subscribed), subscribed)
    assert short(found) == {"C0": "t0p0 t0p1", "C1": "t0p0 t0p1"}
    check("to-all", found, {"C0", "C1"}, subscribed, shares_partitions=True)


@pytest.mark.parametrize("assignor", ALL)
def test_consumers_in_one_group_are_a_queue_each_in_its_own_group_publish_subscribe(
    assignor: type[Assignor],
) -> None:
    """Each partition, so each record, goes to one of a group; in groups of one, to all."""
    subscribed = topics(t0=4)
    one_group = assignor().assign(members(4, subscribed), subscribed)
    assert sizes(one_group) == [1, 1, 1, 1]
    assert len(set(short(one_group).values())) == 4
    for alone in members(4, subscribed):
        assert sizes(assignor().assign([alone], subscribed)) == [4]
