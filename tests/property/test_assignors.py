"""The guarantees of every assignor, and the sticky ones against a brute-force optimum."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic
from raylog.assignors.cooperative import first_round
from raylog.assignors.cooperative_sticky import CooperativeStickyAssignor
from raylog.assignors.range import RangeAssignor
from raylog.assignors.roundrobin import RoundRobinAssignor
from raylog.assignors.sticky import StickyAssignor
from raylog.assignors.uniform import UniformAssignor
from tests.support.assigning import having

Assignment = dict[str, MemberAssignment]
EVEN = [StickyAssignor, CooperativeStickyAssignor, UniformAssignor]
ALL = [RangeAssignor, RoundRobinAssignor, *EVEN]
RACKS = ["a", "b", "c"]


class Group(NamedTuple):
    members: list[Member]
    topics: dict[str, Topic]


@st.composite
def groups(
    draw: st.DrawFn, *, members_max: int = 6, partitions_max: int = 40, racks: bool = False
) -> Group:
    names = [f"t{index}" for index in range(draw(st.integers(1, 4)))]
    topics = {}
    left = partitions_max
    for name in names:
        count = draw(st.integers(0, min(left, 12)))
        left -= count
        where = st.frozensets(st.sampled_from(RACKS), min_size=1)
        replicas = [draw(where) for _ in range(count)] if racks else []
        if count:
            topics[name] = Topic(name, count, tuple(replicas))
    ids = draw(st.lists(st.integers(0, 99), min_size=1, max_size=members_max, unique=True))
    subscriptions = st.just(frozenset(names)) | st.frozensets(st.sampled_from(names))
    members = [
        Member(
            f"m{number:02}",
            draw(subscriptions),
            rack=draw(st.sampled_from([*RACKS, "z", None])) if racks else None,
        )
        for number in sorted(ids)
    ]
    return Group(members, topics)


@st.composite
def successors(draw: st.DrawFn, group: Group) -> Group:
    """The group after members and partitions were added and removed."""
    kept = [member for member in group.members if draw(st.integers(0, 3))]
    names = sorted({*group.topics, *(name for member in group.members for name in member.topics)})
    news = draw(st.integers(0 if kept else 1, 2))
    subscriptions = st.just(frozenset(names)) | st.frozensets(st.sampled_from(names or ["t0"]))
    joined = [Member(f"n{index}", draw(subscriptions)) for index in range(news)]
    topics = {}
    for name, topic in group.topics.items():
        count = max(0, topic.partitions + draw(st.sampled_from([0, 0, 0, 1, -topic.partitions])))
        if count:
            topics[name] = Topic(name, count)
    return Group(kept + joined, topics)


def loads(assignment: Assignment) -> list[int]:
    """The number of partitions of each member, largest first."""
    counts = (sum(map(len, each.partitions.values())) for each in assignment.values())
    return sorted(counts, reverse=True)


def moves(before: list[Member], assignment: Assignment) -> int:
    """The number of partitions that moved away from members which are still there."""
    return sum(
        number not in assignment[member.member_id].partitions.get(topic, ())
        for member in before
        for topic, numbers in member.owned.items()
        for number in numbers
    )


def far(group: Group, assignment: Assignment) -> int:
    """The number of partitions without a replica in their member's rack.

    Topics whose partitions are all in the same racks, or in racks without members, count as 0.
    """
    racks = {member.member_id: member.rack for member in group.members}
    distinguished = {name for name in group.topics if _racks_distinguish(group, name)}
    return sum(
        racks[member_id] is not None and racks[member_id] not in group.topics[topic].racks[number]
        for member_id, each in assignment.items()
        for topic, numbers in each.partitions.items()
        for number in numbers
        if topic in distinguished
    )


def _racks_distinguish(group: Group, name: str) -> bool:
    """Whether a topic has partitions in different racks, some of them with subscribers."""
    topic = group.topics[name]
    known = {member.rack for member in group.members if name in member.topics}
    return bool(known & frozenset().union(*topic.racks)) and len(set(topic.racks)) > 1


def all_divisions(group: Group) -> list[Assignment]:
    """All possible assignments of the partitions."""
    partitions = [
        (topic.name, number)
        for topic in group.topics.values()
        for number in range(topic.partitions)
    ]
    takers = [[m.member_id for m in group.members if topic in m.topics] for topic, _ in partitions]
    taken = [(partition, ids) for partition, ids in zip(partitions, takers, strict=True) if ids]
    divisions = []
    for chosen in product(*(ids for _, ids in taken)):
        division: Assignment = {member.member_id: MemberAssignment() for member in group.members}
        for ((topic, number), _), member_id in zip(taken, chosen, strict=True):
            division[member_id].partitions.setdefault(topic, []).append(number)
        divisions.append(division)
    return divisions


@pytest.mark.parametrize("assignor", ALL)
@given(data=st.data())
def test_every_partition_of_a_subscribed_topic_has_exactly_one_owner(
    assignor: type[Assignor], data: st.DataObject
) -> None:
    group = data.draw(groups(racks=data.draw(st.booleans())))
    found = assignor().assign(group.members, group.topics)
    subscribed = {name for member in group.members for name in member.topics}
    wanted = Counter(
        (topic.name, number)
        for topic in group.topics.values()
        if topic.name in subscribed
        for number in range(topic.partitions)
    )
    given_out = Counter(
        (topic, number)
        for each in found.values()
        for topic, numbers in each.partitions.items()
        for number in numbers
    )
    assert given_out == wanted
    topics_of = {member.member_id: member.topics for member in group.members}
    assert set(found) == set(topics_of)
    assert all(set(each.partitions) <= topics_of[one] for one, each in found.items())


@pytest.mark.parametrize("assignor", ALL)
@given(data=st.data())
def test_the_order_of_the_arguments_does_not_matter(
    assignor: type[Assignor], data: st.DataObject
) -> None:
    group = data.draw(groups(racks=True))
    shuffled = data.draw(st.permutations(group.members))
    topics = dict(data.draw(st.permutations(sorted(group.topics.items()))))
    once = assignor().assign(group.members, group.topics)
    again = assignor().assign(shuffled, topics)
    assert list(once.items()) == list(again.items())


@given(group=groups())
def test_range_spans_of_a_topic_differ_by_one_at_most(group: Group) -> None:
    found = RangeAssignor().assign(group.members, group.topics)
    for name in group.topics:
        subscribed = [member.member_id for member in group.members if name in member.topics]
        spans = [found[member_id].partitions.get(name, []) for member_id in subscribed]
        sizes = [len(span) for span in spans]
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1
        assert all(span == list(range(span[0], span[-1] + 1)) for span in spans if span)


@pytest.mark.parametrize("assignor", [RoundRobinAssignor, *EVEN])
@given(count=st.integers(1, 9), data=st.data())
def test_equal_subscriptions_give_shares_that_differ_by_one_at_most(
    assignor: type[Assignor], count: int, data: st.DataObject
) -> None:
    topics = data.draw(groups()).topics
    members = [Member(f"m{index}", frozenset(topics)) for index in range(count)]
    shares = loads(assignor().assign(members, topics))
    assert shares[0] - shares[-1] <= 1


@pytest.mark.parametrize("assignor", EVEN)
@given(data=st.data())
def test_even_and_then_fewest_moves_as_brute_force_finds(
    assignor: type[Assignor], data: st.DataObject
) -> None:
    first = data.draw(groups(members_max=3, partitions_max=6))
    before = assignor().assign(first.members, first.topics)
    group = data.draw(successors(first))
    if len(group.members) > 3:
        group = Group(group.members[:3], group.topics)
    members = having(group.members, before)
    found = assignor().assign(members, group.topics)
    best = min((loads(each), moves(members, each)) for each in all_divisions(group))
    assert (loads(found), moves(members, found)) == best


@pytest.mark.parametrize("assignor", EVEN)
@given(data=st.data())
def test_any_starting_point_is_left_by_fewest_moves(
    assignor: type[Assignor], data: st.DataObject
) -> None:
    group = data.draw(groups(members_max=4, partitions_max=5))
    divisions = all_divisions(group)
    members = having(group.members, data.draw(st.sampled_from(divisions)))
    found = assignor().assign(members, group.topics)
    best = min((loads(each), moves(members, each)) for each in divisions)
    assert (loads(found), moves(members, found)) == best


@pytest.mark.parametrize("assignor", [StickyAssignor, CooperativeStickyAssignor])
@given(data=st.data())
def test_racks_come_after_evenness_and_before_moves(
    assignor: type[Assignor], data: st.DataObject
) -> None:
    group = data.draw(groups(members_max=3, partitions_max=6, racks=True))
    divisions = all_divisions(group)
    members = having(group.members, data.draw(st.sampled_from(divisions)))
    found = assignor().assign(members, group.topics)
    best = min((loads(each), far(group, each)) for each in divisions)
    assert loads(found) == best[0]
    assert far(group, found) == best[1]


@given(data=st.data())
def test_two_cooperative_rounds_reach_the_target_and_never_give_a_partition_to_two(
    data: st.DataObject,
) -> None:
    assignor = CooperativeStickyAssignor()
    first = data.draw(groups())
    before = assignor.assign(first.members, first.topics)
    group = data.draw(successors(first))
    members = having(group.members, before)
    target = assignor.assign(members, group.topics)
    one = first_round(members, target)
    for member in members:
        for other in members:
            if member is not other:
                for topic, numbers in one[member.member_id].partitions.items():
                    assert not set(numbers) & set(other.owned.get(topic, ()))
    members = having(group.members, one, generation=2)
    again = assignor.assign(members, group.topics)
    assert first_round(members, again) == again
    assert loads(again) == loads(target)


@st.composite
def claims(draw: st.DrawFn, group: Group) -> tuple[list[Member], list[int]]:
    """Members that claim any partitions, as of any generation; and these generations."""
    members, generations = [], []
    for member in group.members:
        owned = {
            name: tuple(sorted(draw(st.frozensets(st.integers(0, topic.partitions - 1)))))
            for name, topic in group.topics.items()
        }
        generation = draw(st.integers(1, 3))
        generations.append(generation)
        if draw(st.booleans()):
            members.append(replace(member, owned=owned, generation=generation))
        else:  # before KIP-792
            members.append(replace(member, owned=owned, user_data=generation.to_bytes(4, "big")))
    return members, generations


@given(data=st.data())
def test_whatever_is_claimed_no_partition_is_given_out_before_its_latest_owners_revoked_it(
    data: st.DataObject,
) -> None:
    assignor = CooperativeStickyAssignor()
    group = data.draw(groups())
    members, generations = data.draw(claims(group))
    target = assignor.assign(members, group.topics)
    one = first_round(members, target)
    claimed = [
        (topic, number, generation, member.member_id)
        for member, generation in zip(members, generations, strict=True)
        for topic, numbers in member.owned.items()
        for number in numbers
    ]
    latest: dict[tuple[str, int], int] = {}
    for topic, number, generation, _ in claimed:
        latest[topic, number] = max(generation, latest.get((topic, number), 0))
    for topic, number, generation, owner in claimed:
        if generation == latest[topic, number]:
            others = (each for member_id, each in one.items() if member_id != owner)
            assert not any(number in each.partitions.get(topic, ()) for each in others)
    then = having(group.members, one, generation=4)
    again = assignor.assign(then, group.topics)
    assert first_round(then, again) == again
    assert loads(again) == loads(target)
