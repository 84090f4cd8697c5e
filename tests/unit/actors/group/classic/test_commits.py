"""Which members may commit and fetch offsets, and which topics a group reads."""

import pytest

from raylog.wire.errors import ErrorCode
from tests.worlds.group.classic import SESSION_MS, Session, subscription

SIMPLE = ("", -1)


def test_an_empty_group_takes_commits_without_generation() -> None:
    session = Session()
    session.join()
    assert session.commit(*SIMPLE) == ErrorCode.NONE
    assert session.commit("anyone", -1, instance="i") == ErrorCode.NONE
    assert session.commit("anyone", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    assert session.commit("", 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_stable_group_takes_commits_of_its_generation() -> None:
    session = Session()
    (member,) = session.stable()
    assert session.commit(member, 1) == ErrorCode.NONE
    assert session.commit(*SIMPLE) == ErrorCode.UNKNOWN_MEMBER_ID
    assert session.commit(member, -1) == ErrorCode.ILLEGAL_GENERATION
    assert session.commit(member, 7) == ErrorCode.ILLEGAL_GENERATION
    assert session.commit("stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert session.commit(member, 1, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_still_rejoin_may_commit_what_they_have_done() -> None:
    session = Session()
    (member,) = session.stable()
    session.enter()
    assert session.commit(member, 1) == ErrorCode.NONE
    assert session.commit(member, 0) == ErrorCode.ILLEGAL_GENERATION


def test_before_assignments_are_there_a_commit_is_rebalance_in_progress() -> None:
    session = Session()
    member = session.enter().asked.request.member_id
    session.world.advance(0)
    assert session.commit(member, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert session.commit(*SIMPLE) == ErrorCode.UNKNOWN_MEMBER_ID
    assert session.commit(member, 7) == ErrorCode.ILLEGAL_GENERATION


def test_a_commit_renews_the_session() -> None:
    session = Session()
    (member,) = session.stable()
    session.world.advance(SESSION_MS - 1)
    session.commit(member, 1)
    session.world.advance(SESSION_MS - 1)
    assert session.heartbeat(member) == ErrorCode.NONE


def test_a_refused_commit_does_not_renew_the_session() -> None:
    session = Session()
    (member,) = session.stable()
    session.world.advance(SESSION_MS - 1)
    session.commit(member, 7)
    session.world.advance(1)
    assert session.state == "Empty"


def test_anyone_may_ask_for_offsets() -> None:
    session = Session()
    (member,) = session.stable()
    session.group.check_fetch(None, -1)
    session.group.check_fetch(member, 1)


def test_topics_are_those_of_the_generations_members() -> None:
    session = Session()
    leader = session.enter(protocols={"range": subscription("t")}).asked.request.member_id
    session.enter(protocols={"range": subscription("u")})
    session.world.advance(0)
    assert [session.group.subscribes(topic) for topic in ("t", "u", "v")] == [True, True, False]
    session.join(leader, protocols={"range": subscription("v")})
    assert session.group.subscribes("t")
    assert not session.group.subscribes("v"), "not before the next generation"


@pytest.mark.parametrize("metadata", [b"", b"\xff\xff", b"\x00\x00\x00\x00\x00\x09"])
def test_an_unreadable_subscription_might_be_to_anything(metadata: bytes) -> None:
    session = Session()
    session.stable(protocols={"range": metadata})
    assert session.group.subscribes("anything")


def test_groups_of_another_type_and_empty_ones_subscribe_to_nothing() -> None:
    session = Session()
    (member,) = session.stable()
    session.leave(member)
    assert not session.group.subscribes("t")
    session.stable(protocol_type="connect", protocols={"range": b""})
    assert not session.group.subscribes("t")


def test_offsets_of_an_empty_group_expire_from_the_time_it_became_empty() -> None:
    session = Session()
    (member,) = session.stable()
    assert session.group.offset_expires_after(5) == 5
    session.world.advance(1_000)
    emptied_ms = session.world.now_ms
    session.leave(member)
    session.world.advance(1_000)
    assert session.group.offset_expires_after(5) == emptied_ms


def test_offsets_of_a_group_without_members_ever_expire_from_their_commit() -> None:
    session = Session()
    session.join()
    assert session.group.offset_expires_after(5) == 5


def test_offsets_do_not_expire_during_a_rebalance_nor_where_topics_are_not_known() -> None:
    session = Session()
    session.stable()
    session.enter()
    assert session.group.offset_expires_after(5) is None
    other = Session()
    other.stable(protocol_type="connect")
    assert other.group.offset_expires_after(5) is None
