"""Our assignors compared with Apache Kafka's own classes.

Range and round-robin must always be equal, with racks and static members, in a client and in the
coordinator. The sticky ones and uniform must be equal if all members subscribe to the same topics;
sticky only if nothing is owned. In other cases several assignments are equally good, and ours is
never worse: Kafka's search for different subscriptions gives up earlier, and its sticky assignors
may give members partitions of topics that they do not subscribe to.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from raylog.assignors.api import Assignor, Member, MemberAssignment, Topic
from raylog.assignors.cooperative_sticky import CooperativeStickyAssignor
from raylog.assignors.range import RangeAssignor
from raylog.assignors.roundrobin import RoundRobinAssignor
from raylog.assignors.sticky import StickyAssignor
from raylog.assignors.uniform import UniformAssignor
from tests.conformance.tools import CLIENTS, java_tools
from tests.support.assigning import AssignorOracle, Owned, having

pytestmark = pytest.mark.java
RUNS = 400
RACKS = ("a", "b", "c")


@pytest.fixture(scope="module")
def kafka() -> Iterator[AssignorOracle]:
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed")
    with AssignorOracle(java_tools(CLIENTS)) as oracle:
        yield oracle


def topics_of(chance: random.Random, *, racks: bool) -> dict[str, Topic]:
    found = {}
    for index in range(chance.randint(1, 4)):
        count = chance.randint(1, 8)
        somewhere = [
            frozenset(chance.sample(RACKS, chance.randint(1, len(RACKS)))) for _ in range(count)
        ]
        found[f"t{index}"] = Topic(f"t{index}", count, tuple(somewhere) if racks else ())
    return found


def members_of(
    chance: random.Random, topics: Mapping[str, Topic], *, racks: bool, alike: bool
) -> list[Member]:
    return [
        Member(
            f"m{index}",
            frozenset(name for name in topics if alike or chance.random() < 0.7),
            instance_id=chance.choice([None, None, f"i{chance.randint(0, 9)}{index}"]),
            rack=chance.choice([*RACKS, "z", None]) if racks else None,
        )
        for index in range(chance.randint(1, 6))
    ]


def plain(found: Mapping[str, MemberAssignment]) -> dict[str, Owned]:
    return {member_id: each.partitions for member_id, each in found.items()}


@pytest.mark.parametrize(
    ("assignor", "theirs", "racks"),
    [
        (RangeAssignor, "range", False),
        (RangeAssignor, "range", True),
        (RangeAssignor, "server-range", False),
        (RoundRobinAssignor, "roundrobin", True),
    ],
)
def test_range_and_roundrobin_are_kafkas(
    kafka: AssignorOracle, assignor: type[Assignor], theirs: str, racks: bool
) -> None:
    for seed in range(RUNS):
        chance = random.Random(seed)
        topics = topics_of(chance, racks=racks)
        members = members_of(chance, topics, racks=racks, alike=seed % 2 == 0)
        found = plain(assignor().assign(members, topics))
        assert found == kafka.assign(theirs, members, topics), f"seed {seed}"


@pytest.mark.parametrize("assignor", [StickyAssignor, CooperativeStickyAssignor])
def test_sticky_begins_as_kafkas(kafka: AssignorOracle, assignor: type[Assignor]) -> None:
    for seed in range(RUNS):
        chance = random.Random(seed)
        topics = topics_of(chance, racks=False)
        members = members_of(chance, topics, racks=False, alike=True)
        found = plain(assignor().assign(members, topics))
        assert found == kafka.assign(assignor.name, members, topics), f"seed {seed}"


def test_uniform_is_kafkas_whatever_members_have(kafka: AssignorOracle) -> None:
    for seed in range(RUNS):
        chance = random.Random(seed)
        topics = topics_of(chance, racks=False)
        members = members_of(chance, topics, racks=False, alike=True)
        before = UniformAssignor().assign(members[: chance.randint(1, 6)], topics)
        members = having(members, before)[chance.randint(0, 1) :] or members
        found = plain(UniformAssignor().assign(members, topics))
        assert found == kafka.assign("uniform", members, topics), f"seed {seed}"


def test_sticky_user_data_is_read_by_kafkas_as_ours(kafka: AssignorOracle) -> None:
    """Both keep as much, told the same by user data that ours has written."""
    for seed in range(RUNS):
        chance = random.Random(seed)
        topics = topics_of(chance, racks=False)
        members = members_of(chance, topics, racks=False, alike=True)
        before = StickyAssignor().assign(members, topics)
        left = [informed(member, before[member.member_id]) for member in members[1:]] or members
        ours = plain(StickyAssignor().assign(left, topics))
        theirs = kafka.assign("sticky", left, topics)
        assert kept(before, ours) == kept(before, theirs), f"seed {seed}"


def informed(member: Member, assignment: MemberAssignment) -> Member:
    """The member as it joins again, by its own assignor's user data."""
    assignor = StickyAssignor()
    assignor.on_assignment(assignment, 3)
    return replace(member, user_data=assignor.subscription_user_data(member.topics))


def kept(before: Mapping[str, MemberAssignment], after: Mapping[str, Owned]) -> int:
    """How many partitions are where they were."""
    return sum(
        len(set(numbers) & set(before[member_id].partitions.get(topic, ())))
        for member_id, owned in after.items()
        for topic, numbers in owned.items()
    )
