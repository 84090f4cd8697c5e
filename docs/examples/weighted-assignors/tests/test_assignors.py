"""An assignor is a plain class: hand it members and topics, look at what it returns."""

from raylog_weighted.broadcast import BroadcastAssignor
from raylog_weighted.capacity import CapacityAssignor, capacity_of

from raylog.assignors.api import Member, Topic

TOPICS = {"t": Topic("t", 6)}


def counts(found):
    return {member: len(each.partitions.get("t", [])) for member, each in found.items()}


def test_shares_follow_capacity():
    members = [
        Member("big", frozenset("t"), user_data=CapacityAssignor(2).subscription_user_data("t")),
        Member("small", frozenset("t")),
    ]
    assert counts(CapacityAssignor().assign(members, TOPICS)) == {"big": 4, "small": 2}


def test_capacity_may_stand_in_the_instance_id():
    assert capacity_of(Member("m", frozenset(), instance_id="box@3")) == 3
    assert capacity_of(Member("m", frozenset(), instance_id="box@many")) == 1
    assert capacity_of(Member("m", frozenset(), user_data=b"0")) == 1


def test_members_keep_what_they_have():
    members = [Member("a", frozenset("t"), {"t": (3, 4, 5)}), Member("b", frozenset("t"))]
    found = CapacityAssignor().assign(members, TOPICS)
    assert found["a"].partitions == {"t": [3, 4, 5]}
    assert found["b"].partitions == {"t": [0, 1, 2]}


def test_broadcast_gives_everything_to_everyone():
    members = [Member("a", frozenset("t")), Member("b", frozenset("t")), Member("c", frozenset())]
    assert counts(BroadcastAssignor().assign(members, TOPICS)) == {"a": 6, "b": 6, "c": 0}
