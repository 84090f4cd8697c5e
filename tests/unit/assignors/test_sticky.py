"""How the sticky assignors learn previous owners, and the first of two cooperative rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raylog.assignors.api import Member, MemberAssignment
from raylog.assignors.cooperative import first_round
from raylog.assignors.cooperative_sticky import CooperativeStickyAssignor
from raylog.assignors.sticky import StickyAssignor
from raylog.assignors.uniform import UniformAssignor
from tests.support.assigning import having, members, short, topics

# What a Java member of generation 5 with t0-1, t0-2 and t1-0 sends.
VERSION_1 = bytes.fromhex(
    "000000020002743000000002000000010000000200027431000000010000000000000005"
)
VERSION_0 = VERSION_1[:-4]


def test_sticky_tells_in_kafkas_form_what_it_had() -> None:
    assignor = StickyAssignor()
    assert assignor.subscription_user_data(["t0"]) == b""
    assignor.on_assignment(MemberAssignment({"t0": [1, 2], "t1": [0]}), 5)
    assert assignor.subscription_user_data(["t0"]) == VERSION_1


@pytest.mark.parametrize("user_data", [VERSION_0, VERSION_1])
def test_sticky_believes_user_data_not_the_subscription(user_data: bytes) -> None:
    subscribed = topics(t0=4, t1=2)
    one, other = members(2, subscribed)
    found = StickyAssignor().assign(
        [one, replace(other, user_data=user_data, owned={"t0": (0,)}, generation=9)], subscribed
    )
    assert short(found)["C1"] == "t0p1 t0p2 t1p0"


def test_sticky_passes_over_user_data_that_it_cannot_read() -> None:
    subscribed = topics(t0=2)
    one, other = members(2, subscribed)
    found = StickyAssignor().assign([one, replace(other, user_data=b"\xff\xff")], subscribed)
    assert short(found) == {"C0": "t0p0", "C1": "t0p1"}


@pytest.mark.parametrize(
    ("generations", "expected"),
    [((3, 4), {"C0": "t0p0", "C1": "t0p1"}), ((4, 3), {"C0": "t0p1", "C1": "t0p0"})],
)
def test_the_later_generation_is_right_about_who_has_a_partition(
    generations: tuple[int, int], expected: dict[str, str]
) -> None:
    subscribed = topics(t0=2)
    claiming = [
        replace(member, owned={"t0": (1,)}, generation=generation)
        for member, generation in zip(members(2, subscribed), generations, strict=True)
    ]
    assert short(CooperativeStickyAssignor().assign(claiming, subscribed)) == expected


def test_two_claims_of_one_generation_are_both_void() -> None:
    subscribed = topics(t0=2)
    claiming = [
        replace(member, owned={"t0": (1,)}, generation=4) for member in members(2, subscribed)
    ]
    found = CooperativeStickyAssignor().assign(claiming, subscribed)
    assert short(found) == {"C0": "t0p0", "C1": "t0p1"}


def test_cooperative_sticky_tells_its_generation_for_old_subscriptions() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.subscription_user_data([]) == b"\xff\xff\xff\xff"
    assignor.on_assignment(MemberAssignment({"t0": [0]}), 258)
    assert assignor.subscription_user_data([]) == b"\x00\x00\x01\x02"
    subscribed = topics(t0=2)
    claiming = [
        replace(member, owned={"t0": (1,)}, user_data=(3 - index).to_bytes(4, "big"))
        for index, member in enumerate(members(2, subscribed))
    ]
    assert short(assignor.assign(claiming, subscribed)) == {"C0": "t0p1", "C1": "t0p0"}


def test_the_first_cooperative_round_withholds_what_must_be_given_up() -> None:
    subscribed = topics(t0=4)
    two = having(members(2, subscribed), {"C0": MemberAssignment({"t0": [0, 1, 2, 3]})})
    assignor = CooperativeStickyAssignor()
    target = assignor.assign(two, subscribed)
    assert short(target) == {"C0": "t0p0 t0p1", "C1": "t0p2 t0p3"}
    first = first_round(two, target)
    assert short(first) == {"C0": "t0p0 t0p1", "C1": ""}
    then = having(two, first, generation=2)
    assert short(first_round(then, assignor.assign(then, subscribed))) == short(target)


def test_partitions_of_a_member_that_left_are_given_out_in_the_first_round() -> None:
    subscribed = topics(t0=2)
    one = [Member("C1", frozenset({"t0"}), {"t0": (1,)}, generation=1)]
    target = CooperativeStickyAssignor().assign(one, subscribed)
    assert short(first_round(one, target)) == {"C1": "t0p0 t0p1"}


@pytest.mark.parametrize(
    ("generations", "in_user_data", "first"),
    [
        ((5, 3), (False, False), {"C0": "t0p0", "C1": ""}),
        ((5, 5), (False, False), {"C0": "t0p0", "C1": ""}),
        ((3, 5), (False, False), {"C0": "t0p0", "C1": "t0p1"}),
        ((5, 3), (True, True), {"C0": "t0p0", "C1": ""}),
        ((6, 5), (True, False), {"C0": "t0p0", "C1": ""}),
        ((5, 6), (False, True), {"C0": "t0p0", "C1": ""}),  # withheld although C0 is out of date
    ],
)
def test_a_partition_is_withheld_while_another_may_be_its_owner(
    generations: tuple[int, int], in_user_data: tuple[bool, bool], first: dict[str, str]
) -> None:
    """C0 claims everything and C1 claims t0-1, which the target gives to C1."""
    subscribed = topics(t0=2)
    claiming = [
        replace(member, owned={"t0": owned}, **_sent(generation, in_user_data=apart))
        for member, owned, generation, apart in zip(
            members(2, subscribed), ((0, 1), (1,)), generations, in_user_data, strict=True
        )
    ]
    assignor = CooperativeStickyAssignor()
    target = assignor.assign(claiming, subscribed)
    assert short(target) == {"C0": "t0p0", "C1": "t0p1"}
    given = first_round(claiming, target)
    assert short(given) == first
    then = having(claiming, given, generation=7)
    assert short(first_round(then, assignor.assign(then, subscribed))) == short(target)


def _sent(generation: int, *, in_user_data: bool) -> dict[str, Any]:
    """How a member tells its generation, before KIP-792 in the user data."""
    return (
        {"user_data": generation.to_bytes(4, "big")} if in_user_data else {"generation": generation}
    )


def test_a_claim_of_an_earlier_generation_takes_nothing_from_the_owner() -> None:
    subscribed = topics(t0=2)
    one, other = members(2, subscribed)
    claiming = [
        replace(one, owned={"t0": (0,)}, generation=5),
        replace(other, owned={"t0": (0, 1)}, generation=3),
    ]
    target = CooperativeStickyAssignor().assign(claiming, subscribed)
    assert short(first_round(claiming, target)) == {"C0": "t0p0", "C1": "t0p1"}


def test_members_that_share_a_partition_keep_it() -> None:
    """An assignor may both be cooperative and share partitions."""
    subscribed = topics(t0=1)
    target = {name: MemberAssignment({"t0": [0]}) for name in ("C0", "C1", "C2")}
    three = [*having(members(2, subscribed), target), Member("C2", frozenset(subscribed))]
    assert first_round(three, target) == target


def test_a_larger_share_that_a_chain_frees_is_given_to_another() -> None:
    """C0 takes a partition back from where there was room; who had a larger share for it goes on.

    Four members divide 40 partitions of t0 to t3 evenly only if the chain's free share counts.
    """
    subscribed = topics(t0=10, t1=10, t2=10, t3=10)
    had = {
        "C0": ("t2 t3", {"t2": [3, 4], "t3": [0, 1, 2, 3, 4, 5]}),
        "C1": ("t1 t3", {"t1": [0, 1, 2, 3, 4, 5, 6], "t3": [6]}),
        "C2": ("t2 t3", {"t2": [5, 6, 7, 8, 9], "t3": [7, 8, 9]}),
        "C3": ("t0 t1", {"t0": [5, 6, 7, 8, 9], "t1": [7, 8, 9]}),
    }
    group = [Member(name, frozenset(names.split())) for name, (names, _) in had.items()]
    before = {name: MemberAssignment(owned) for name, (_, owned) in had.items()}
    found = UniformAssignor().assign(having(group, before), subscribed)
    shares = [sum(len(some) for some in each.partitions.values()) for each in found.values()]
    assert shares == [10, 10, 10, 10]
