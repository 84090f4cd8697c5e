"""Static members (KIP-345): replaced when they return, fenced when they are replaced."""

import pytest

from raylog.actors.coordination.rules.step import Step, TimerKey
from raylog.wire.errors import ErrorCode
from tests.worlds.group.classic import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Session,
    code_of,
    subscription,
)


def _two(session: Session) -> tuple[str, str]:
    """A stable group of the instances a, who leads, and b."""
    first, second = session.join(instance="a"), session.join(instance="b")
    session.world.advance(0)
    ids = (first.answer.member_id, second.answer.member_id)
    session.settle(list(ids))
    return ids


def test_a_static_member_is_given_an_id_that_starts_with_its_instance_and_joins_at_once() -> None:
    session = Session()
    join = session.join(instance="a")
    assert join.waits
    session.world.advance(0)
    assert join.answer.member_id.startswith("a-")


def test_a_follower_that_comes_back_keeps_its_assignment_without_a_rebalance() -> None:
    session = Session()
    leader, follower = _two(session)
    back = session.join(instance="b", client_id="elsewhere").answer
    assert (back.error_code, back.generation_id, back.leader) == (0, 1, leader)
    assert back.member_id != follower
    assert (back.members, back.skip_assignment) == ([], False)
    assert session.state == "Stable"
    assert session.sync(back.member_id, instance="b").answer.assignment == b"A1"
    assert [m.member_id for m in session.last_record.members] == [leader, back.member_id]
    assert session.last_record.members[1].client_id == "client", "as Kafka keeps it"


def test_a_leader_that_comes_back_skips_the_assignment_from_v9() -> None:
    session = Session()
    _two(session)
    back = session.join(instance="a").answer
    assert back.leader == back.member_id
    assert back.skip_assignment
    assert [m.group_instance_id for m in back.members] == ["a", "b"]
    assert session.last_record.leader == back.member_id


@pytest.mark.parametrize("version", [5, 6, 7, 8])
def test_a_leader_that_comes_back_before_v9_is_told_that_its_former_self_leads(
    version: int,
) -> None:
    session = Session()
    leader, _ = _two(session)
    back = session.join(instance="a", version=version).answer
    assert (back.leader, back.members) == (leader, [])
    assert session.group.leader == back.member_id


def test_the_replaced_member_is_fenced_if_it_names_its_instance_and_else_unknown() -> None:
    session = Session()
    _, old = _two(session)
    session.join(instance="b")
    assert session.heartbeat(old, instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert session.heartbeat(old) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(session.sync(old, instance="b")) == ErrorCode.FENCED_INSTANCE_ID
    assert session.commit(old, 1, instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert session.leave((old, "b")) == [ErrorCode.FENCED_INSTANCE_ID]
    refused = session.join(old, instance="b").answer
    assert (refused.error_code, refused.member_id) == (ErrorCode.FENCED_INSTANCE_ID, old)


def test_a_member_of_no_instance_that_names_one_is_unknown() -> None:
    session = Session()
    (member,) = session.stable()
    assert session.heartbeat(member, instance="a") == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_session_of_the_replaced_member_is_not_counted_any_more() -> None:
    session = Session()
    leader, _ = _two(session)
    session.world.advance(9_999)
    session.heartbeat(leader)
    back = session.join(instance="b").answer.member_id
    session.world.advance(9_999)
    assert session.heartbeat(leader) == session.heartbeat(back) == ErrorCode.NONE


def test_coming_back_with_another_protocol_choice_rebalances() -> None:
    session = Session()
    both = ("range", "roundrobin")
    first = session.join(instance="a", protocols=both)
    session.world.advance(0)
    session.settle([first.answer.member_id])
    back = session.join(instance="a", protocols=both[::-1])
    assert back.answer.generation_id == 2
    assert back.answer.protocol_name == "roundrobin"
    assert session.state == "CompletingRebalance"


def test_coming_back_with_other_topics_does_not_rebalance() -> None:
    session = Session()
    _two(session)
    back = session.join(instance="b", protocols={"range": subscription("u")}).answer
    assert back.generation_id == 1
    assert session.last_record.members[1].subscription == subscription("u")


def test_coming_back_while_members_sync_rebalances_and_fences_who_waits() -> None:
    session = Session()
    first, second = session.join(instance="a"), session.join(instance="b")
    session.world.advance(0)
    waiting = session.sync(second.answer.member_id, instance="b")
    back = session.join(instance="b")
    assert waiting.answer.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert session.state == "PreparingRebalance"
    session.join(first.answer.member_id, instance="a")
    assert back.answer.generation_id == 2


def test_coming_back_while_its_former_self_waits_in_a_join_fences_that() -> None:
    session = Session()
    leader, follower = _two(session)
    waiting = session.join(leader, instance="a")
    back = session.join(instance="a")
    assert (waiting.answer.error_code, waiting.answer.member_id) == (82, leader)
    session.join(follower, instance="b")
    assert back.answer.leader == back.answer.member_id
    assert back.answer.generation_id == 2


def test_an_instance_is_removed_by_its_name() -> None:
    session = Session()
    leader, _ = _two(session)
    assert session.leave(("", "b"), ("", "c"), "") == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [m.member_id for m in session.group.members] == [leader]


def test_static_members_survive_a_crash() -> None:
    session = Session()
    _, old = _two(session)
    session.world.crash()
    back = session.join(instance="b").answer
    assert back.generation_id == 1
    assert session.heartbeat(old, instance="b") == ErrorCode.FENCED_INSTANCE_ID


def test_the_session_of_a_static_member_ends_like_any_other() -> None:
    session = Session()
    leader, _ = _two(session)
    session.world.advance(9_999)
    session.heartbeat(leader)
    session.world.advance(1)
    assert session.state == "PreparingRebalance"
    assert [m.member_id for m in session.group.members] == [leader]


def test_absent_members_without_a_rebalance_timeout_are_not_looked_for_all_the_time() -> None:
    session = Session()
    static = session.join(instance="a", rebalance_ms=0, session_ms=1_800_000)
    dynamic = session.enter()
    session.world.advance(0)
    ids = [static.answer.member_id, dynamic.answer.member_id]
    session.settle(ids)
    session.leave(ids[1])
    looks = 0
    timer = session.group.timer

    def counted(step: Step, key: TimerKey) -> None:
        nonlocal looks
        looks += 1
        assert looks < 100, "a loop that does nothing else"
        timer(step, key)

    session.group.timer = counted  # type: ignore[method-assign]  # to count
    session.world.advance(10_000)
    assert session.state == "PreparingRebalance"
    assert session.group.members[0].member_id == ids[0]


def test_replaced_static_member_leaves_no_timer() -> None:
    """A long session: only the time to sync would end anything."""
    session = Session()
    long_ms = 10 * REBALANCE_MS
    first = session.join(instance="a", session_ms=long_ms)
    second = session.join(instance="b", session_ms=long_ms)
    session.world.advance(0)
    ids = [first.answer.member_id, second.answer.member_id]
    session.sync(ids[0], dict.fromkeys(ids, b"A"), instance="a")
    back = session.join(instance="b", session_ms=long_ms).answer.member_id
    assert (session.state, session.group.generation) == ("Stable", 1)
    session.world.advance(REBALANCE_MS)
    assert (session.state, session.group.generation) == ("Stable", 1), "its sync was not due"
    assert set(session.world.timers) == {(GROUP, ("session", one)) for one in (ids[0], back)}


def test_the_session_of_who_waited_in_a_sync_begins_when_that_is_interrupted() -> None:
    """It is not counted while the member waits, and nothing else ends a static member."""
    session = Session()
    leader, follower = session.join(instance="a"), session.join(instance="b")
    session.world.advance(0)
    ids = (leader.answer.member_id, follower.answer.member_id)
    waiting = session.sync(ids[1], instance="b")
    session.world.advance(SESSION_MS - 1)
    session.heartbeat(ids[0], instance="a")
    session.world.advance(SESSION_MS - 1)
    assert waiting.waits
    again = session.join(ids[0], instance="a", protocols=("range", "roundrobin"))
    assert waiting.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    session.world.advance(SESSION_MS - 1)
    assert again.waits
    session.world.advance(1)
    assert again.answer.generation_id == 2
    assert [m.member_id for m in session.group.members] == [ids[0]]
