"""LeaveGroup: single members, batches, and each state."""

import pytest

from raylog.actors.decisions import MEMBER
from raylog.actors.group.rules.classic import ClassicGroup
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.worlds.group.classic import GROUP, Session


@pytest.mark.parametrize("version", range(3))
def test_up_to_v2_the_one_members_error_is_the_answers(version: int) -> None:
    session = Session()
    (member,) = session.stable()
    asks = [
        session.world.ask(
            ClassicGroup.leave, LeaveGroupRequest(group_id=GROUP, member_id=who), version
        )
        for who in ("stranger", member)
    ]
    assert [ask.answer.error_code for ask in asks] == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert session.state == "Empty"


@pytest.mark.parametrize("version", range(3, 6))
def test_from_v3_each_member_has_its_own_error(version: int) -> None:
    session = Session()
    first, second = session.stable(2)
    request = LeaveGroupRequest(
        group_id=GROUP,
        members=[
            MemberIdentity(member_id=first),
            MemberIdentity(member_id="stranger"),
            MemberIdentity(member_id=second, group_instance_id="i"),
            MemberIdentity(member_id=first),
        ],
    )
    answer = session.world.ask(ClassicGroup.leave, request, version).answer
    assert answer.error_code == ErrorCode.NONE
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in answer.members] == [
        (first, None, 0),
        ("stranger", None, 25),
        (second, "i", 25),
        (first, None, 25),
    ]
    assert [m.member_id for m in session.group.members] == [second]


def test_nobody_leaving_changes_nothing() -> None:
    session = Session()
    session.stable()
    assert session.leave() == []
    assert session.leave("stranger") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert session.state == "Stable"


def test_an_id_that_was_given_out_is_given_back() -> None:
    session = Session()
    member_id = session.join().answer.member_id
    assert session.leave(member_id) == [ErrorCode.NONE]
    assert session.leave(member_id) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_an_id_given_back_may_complete_a_rebalance() -> None:
    session = Session()
    (member,) = session.stable()
    member_id = session.join().answer.member_id
    waiting = session.join(member)
    assert waiting.waits
    session.leave(member_id)
    assert waiting.answer.generation_id == 2


def test_leaving_while_waiting_in_a_join_answers_the_join() -> None:
    session = Session()
    first, second = session.stable(2)
    waiting = session.join(first)
    session.leave(first)
    assert (waiting.answer.error_code, waiting.answer.member_id) == (25, "")
    assert session.join(second).answer.leader == second


def test_leaving_while_members_sync_makes_them_join_again() -> None:
    session = Session()
    leader, follower = session.enter(), session.enter()
    session.world.advance(0)
    waiting = session.sync(follower.answer.member_id)
    session.leave(leader.answer.member_id)
    assert waiting.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert session.group.leader == follower.answer.member_id


def test_why_a_member_left_is_reported_once() -> None:
    session = Session()
    first, second = session.stable(2, session_ms=10_000)
    generation = session.group.generation
    session.leave(first)
    session.world.advance(60_000)
    decisions = [(one.kind, one.subject, one.text) for one in session.world.decided]
    assert decisions[0] == (
        MEMBER,
        GROUP,
        f"member {first} leaves group {GROUP}: it was asked to; 1 left, generation {generation}",
    )
    assert len(decisions) == 2
    assert decisions[1][2].startswith(f"member {second} leaves group {GROUP}: it ")


def test_null_instance_id_does_not_match_the_empty_instance_id() -> None:
    session = Session()
    join = session.join(instance="")
    session.world.advance(0)
    session.settle([join.answer.member_id])
    assert session.leave(("", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert session.state == "Stable"
    assert session.leave(("", "")) == [ErrorCode.NONE]
    assert session.state == "Empty"


def test_if_the_leader_leaves_any_other_leads() -> None:
    session = Session()
    first, second, third = session.stable(3)
    assert session.group.leader == first
    session.leave(first)
    rejoined = [session.join(second), session.join(third)]
    assert {ask.answer.leader for ask in rejoined} <= {second, third}
    assert len({ask.answer.leader for ask in rejoined}) == 1


def test_rebalance_is_triggered_by_a_member_that_leaves() -> None:
    session = Session()
    first, second = session.stable(2)
    assert session.leave(second) == [ErrorCode.NONE]
    assert session.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
