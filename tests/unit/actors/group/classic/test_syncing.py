"""SyncGroup: each wrong state, and the order of checks."""

import pytest

from raylog.wire.errors import ErrorCode
from raylog.wire.internal.offsets import GroupMetadataKey
from tests.worlds.group.classic import GROUP, SESSION_MS, Session, code_of, subscription


def test_a_stable_group_repeats_the_assignment() -> None:
    session = Session()
    _, follower = session.stable(2)
    answer = session.sync(follower).answer
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"A1")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", range(5))
def test_protocol_type_and_name_are_answered_from_v5(version: int) -> None:
    session = Session()
    (member,) = session.stable()
    answer = session.sync(member, version=version).answer
    assert (answer.protocol_type, answer.protocol_name) == (None, None)


@pytest.mark.parametrize("protocol", [("connect", "range"), ("consumer", "roundrobin")])
def test_another_protocol_is_inconsistent(protocol: tuple[str, str]) -> None:
    session = Session()
    (member,) = session.stable()
    assert code_of(session.sync(member, protocol=protocol)) == 23


def test_a_generation_is_checked_before_the_protocol_and_a_member_before_both() -> None:
    session = Session()
    (member,) = session.stable()
    wrong = ("connect", "other")
    assert code_of(session.sync(member, generation=9, protocol=wrong)) == 22
    assert code_of(session.sync("x", generation=9, protocol=wrong)) == 25
    assert code_of(session.sync(member, generation=9, instance="i", protocol=wrong)) == 25


def test_while_members_join_there_is_nothing_to_sync() -> None:
    session = Session()
    (member,) = session.stable()
    session.enter()
    assert code_of(session.sync(member)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_empty_group_knows_no_member() -> None:
    session = Session()
    member_id = session.join().answer.member_id
    assert code_of(session.sync(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_the_leader_leaves_out_are_given_nothing_and_strangers_are_ignored() -> None:
    session = Session()
    leader, follower = session.enter(), session.enter()
    session.world.advance(0)
    waiting = session.sync(follower.answer.member_id)
    session.sync(leader.answer.member_id, {leader.answer.member_id: b"a", "stranger": b"b"})
    assert waiting.answer.assignment == b""
    assert [m.assignment for m in session.last_record.members] == [b"a", b""]


def test_a_member_that_waits_for_the_leader_needs_no_heartbeats() -> None:
    session = Session()
    leader, follower = session.enter(), session.enter()
    session.world.advance(0)
    leader_id = leader.answer.member_id
    waiting = session.sync(follower.answer.member_id)
    for _ in range(3):
        session.world.advance(SESSION_MS - 1)
        session.heartbeat(leader_id)
    session.sync(leader_id, {follower.answer.member_id: b"b"})
    assert waiting.answer.assignment == b"b"
    session.world.advance(SESSION_MS - 1)
    assert session.heartbeat(follower.answer.member_id) == ErrorCode.NONE


def test_a_second_sync_of_a_member_that_waits_takes_the_place_of_the_first() -> None:
    session = Session()
    session.enter()
    follower = session.enter()
    session.world.advance(0)
    first = session.sync(follower.answer.member_id)
    second = session.sync(follower.answer.member_id)
    assert first.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.waits


def test_a_member_that_leaves_while_it_waits_is_notified() -> None:
    session = Session()
    session.enter()
    follower = session.enter()
    session.world.advance(0)
    waiting = session.sync(follower.answer.member_id)
    session.leave(follower.answer.member_id)
    assert waiting.answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_the_leaders_sync_carries_an_assignment() -> None:
    session = Session()
    leader, follower = session.stable(2)
    session.join(leader)
    session.join(follower)
    waiting = session.sync(follower, {leader: b"mine", follower: b"mine"})
    assert waiting.waits
    session.sync(leader, {leader: b"one", follower: b"two"})
    assert waiting.answer.assignment == b"two"


def test_assignment_and_group_metadata_are_recorded_before_anyone_is_answered() -> None:
    session = Session()
    leader, follower = session.stable(2)
    session.join(leader)
    session.join(follower)
    session.sync(follower)
    records = len(session.world.log)
    session.sync(leader, {leader: b"one", follower: b"two"})
    assert len(session.world.log) == records + 1
    record = session.last_record
    assert session.world.log[-1].key == GroupMetadataKey(group=GROUP)
    assert (record.protocol_type, record.generation, record.protocol, record.leader) == (
        "consumer",
        3,
        "range",
        leader,
    )
    assert [(m.member_id, m.subscription, m.assignment) for m in record.members] == [
        (leader, subscription("t"), b"one"),
        (follower, subscription("t"), b"two"),
    ]


def test_assignments_wait_for_their_record() -> None:
    session = Session()
    leader, follower = session.stable(2)
    session.join(leader)
    assert session.join(follower).durable is False, "a join promises nothing about records"
    waiting = session.sync(follower)
    assert session.sync(leader).durable
    assert waiting.durable
    assert session.sync(follower).durable, "the record may still be under way"


def test_an_old_generation_is_illegal_generation() -> None:
    session = Session()
    leader, follower = session.stable(2)
    assert session.heartbeat(follower, generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert code_of(session.sync(leader, generation=1)) == ErrorCode.ILLEGAL_GENERATION
    assert session.commit(leader, 1) == ErrorCode.ILLEGAL_GENERATION
