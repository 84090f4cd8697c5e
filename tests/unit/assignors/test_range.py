"""The range assignor with racks (KIP-881) and static members (KIP-345)."""

from __future__ import annotations

from raylog.assignors.api import Member, Topic
from raylog.assignors.range import RangeAssignor
from tests.support.assigning import short


def racks(*each: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(one) for one in each)


def test_members_get_what_has_a_replica_in_their_rack_within_their_span() -> None:
    topic = Topic("t", 4, racks("a", "b", "a", "b"))
    members = [Member("m0", frozenset("t"), rack="b"), Member("m1", frozenset("t"), rack="a")]
    found = RangeAssignor().assign(members, {"t": topic})
    assert short(found) == {"m0": "tp1 tp3", "m1": "tp0 tp2"}


def test_racks_that_are_everywhere_change_nothing() -> None:
    topic = Topic("t", 2, racks("ab", "ab"))
    members = [Member("m0", frozenset("t"), rack="b"), Member("m1", frozenset("t"), rack="a")]
    assert short(RangeAssignor().assign(members, {"t": topic})) == {"m0": "tp0", "m1": "tp1"}


def test_topics_that_are_divided_alike_stay_so() -> None:
    topics = {
        "t": Topic("t", 2, racks("a", "b")),
        "u": Topic("u", 2, racks("a", "b")),
    }
    both = frozenset("tu")
    members = [Member("m0", both, rack="b"), Member("m1", both, rack="a")]
    found = RangeAssignor().assign(members, topics)
    assert short(found) == {"m0": "tp1 up1", "m1": "tp0 up0"}


def test_static_members_come_first_and_by_their_instance_id() -> None:
    topic = Topic("t", 3)
    members = [
        Member("a", frozenset("t")),
        Member("b", frozenset("t"), instance_id="2"),
        Member("c", frozenset("t"), instance_id="1"),
    ]
    found = RangeAssignor().assign(members, {"t": topic})
    assert short(found) == {"a": "tp2", "b": "tp1", "c": "tp0"}
