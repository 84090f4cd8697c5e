"""The course of rebalances: delays, timeouts, and which members are removed at the end."""

from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from tests.worlds.group.classic import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Session,
    subscription,
)

DELAY_MS = 3_000
DELAYED = GroupSettings(initial_rebalance_delay_ms=DELAY_MS)


def test_the_first_rebalance_waits_for_the_initial_delay() -> None:
    session = Session(DELAYED)
    join = session.enter()
    session.world.advance(DELAY_MS - 1)
    assert join.waits
    session.world.advance(1)
    assert join.answer.generation_id == 1


def test_the_initial_delay_is_extended_while_members_come() -> None:
    session = Session(DELAYED)
    first = session.enter()
    session.world.advance(2_000)
    second = session.enter()
    session.world.advance(3_999)
    assert first.waits
    session.world.advance(1)
    assert [len(first.answer.members), second.answer.generation_id] == [2, 1]


def test_the_initial_delay_is_not_extended_twice_for_one_member() -> None:
    session = Session(DELAYED)
    first = session.enter()
    session.enter()
    session.world.advance(6_000)
    assert not first.waits


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    session = Session(DELAYED)
    first = session.enter(rebalance_ms=7_000)
    for _ in range(6):
        assert first.waits
        session.world.advance(1_000)
        session.enter(rebalance_ms=7_000)
    assert first.waits
    session.world.advance(1_000)
    assert len(first.answer.members) == 7


def test_a_member_that_comes_back_empty_handed_is_not_delayed_a_second_time() -> None:
    session = Session(DELAYED)
    (member,) = session.stable()
    assert session.join(member).answer.generation_id == 2


def test_a_group_whose_first_members_leave_during_the_delay_is_empty_after_it() -> None:
    session = Session(DELAYED)
    join = session.enter()
    session.leave(join.asked.request.member_id)
    assert (join.answer.error_code, join.answer.member_id) == (25, "")
    assert session.state == "PreparingRebalance"
    session.world.advance(DELAY_MS)
    assert session.state == "Empty"
    assert (session.last_record.generation, session.last_record.members) == (1, [])


def test_members_that_do_not_rejoin_in_the_rebalance_timeout_are_out() -> None:
    session = Session()
    first, second, third = session.stable(3, session_ms=REBALANCE_MS * 2)
    waiting = session.join(first)
    session.world.advance(REBALANCE_MS - 1)
    assert waiting.waits
    session.world.advance(1)
    assert [m.member_id for m in waiting.answer.members] == [first]
    assert session.heartbeat(second) == session.heartbeat(third) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_rebalance_timeout_is_the_longest_of_the_members() -> None:
    session = Session()
    first, second = session.stable(2, session_ms=REBALANCE_MS * 3)
    waiting = session.join(first, rebalance_ms=REBALANCE_MS * 2, session_ms=REBALANCE_MS * 3)
    session.world.advance(REBALANCE_MS * 2 - 1)
    assert waiting.waits
    assert session.heartbeat(second) == ErrorCode.REBALANCE_IN_PROGRESS
    session.world.advance(1)
    assert not waiting.waits


def test_a_rebalance_that_all_members_leave_makes_the_group_empty() -> None:
    session = Session()
    ids = session.stable(2)
    assert session.leave(*ids) == [ErrorCode.NONE] * 2
    assert session.state == "Empty"
    record = session.last_record
    assert (record.generation, record.protocol, record.leader) == (3, None, None)
    assert record.protocol_type == "consumer"
    assert record.members == []


def test_static_members_that_are_absent_stay_until_their_session_ends() -> None:
    session = Session()
    join = session.join(instance="a", session_ms=REBALANCE_MS * 3)
    session.world.advance(0)
    member = join.answer.member_id
    session.settle([member])
    newcomer = session.enter()
    session.world.advance(REBALANCE_MS)
    assert newcomer.answer.error_code == ErrorCode.NONE
    assert newcomer.answer.leader == newcomer.answer.member_id, "the absent one leads no more"
    assert {m.member_id for m in newcomer.answer.members} == {
        member,
        newcomer.answer.member_id,
    }


def test_a_rebalance_without_anyone_back_is_put_off_while_static_members_are_absent() -> None:
    session = Session()
    join = session.join(instance="a", session_ms=REBALANCE_MS * 3)
    session.world.advance(0)
    member = join.answer.member_id
    session.settle([member])
    newcomer = session.enter().asked.request.member_id
    session.leave(newcomer)
    session.world.advance(REBALANCE_MS * 2)
    assert session.state == "PreparingRebalance"
    session.world.advance(REBALANCE_MS)
    assert session.state == "Empty"


def test_member_that_does_not_sync_in_time_is_removed() -> None:
    session = Session()
    leader, follower = session.enter(), session.enter()
    session.world.advance(0)
    leader_id, follower_id = leader.answer.member_id, follower.answer.member_id
    session.sync(leader_id, {leader_id: b"a", follower_id: b"b"})
    assert session.state == "Stable"
    for _ in range(REBALANCE_MS // 5_000 - 1):
        session.world.advance(5_000)
        assert session.heartbeat(leader_id) == session.heartbeat(follower_id) == 0
    session.world.advance(5_000)
    assert session.heartbeat(leader_id) == ErrorCode.REBALANCE_IN_PROGRESS
    assert session.heartbeat(follower_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_sync_is_out_and_those_who_did_join_again() -> None:
    session = Session()
    leader, follower = session.enter(), session.enter()
    session.world.advance(0)
    leader_id = leader.answer.member_id
    waiting = session.sync(follower.answer.member_id)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        session.world.advance(5_000)
        assert session.heartbeat(leader_id) == ErrorCode.NONE
    assert waiting.waits, "a waiting member needs no heartbeats"
    session.world.advance(5_000)
    assert waiting.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert session.heartbeat(leader_id) == ErrorCode.UNKNOWN_MEMBER_ID
    rejoined = session.join(follower.answer.member_id).answer
    assert rejoined.leader == follower.answer.member_id


def test_all_having_synced_nobody_is_out_at_the_rebalance_timeout() -> None:
    session = Session()
    ids = session.stable(2, session_ms=REBALANCE_MS * 3)
    session.world.advance(REBALANCE_MS * 2)
    assert session.state == "Stable"
    assert len(session.group.members) == len(ids)


def test_a_member_that_waits_in_a_join_needs_no_heartbeats() -> None:
    session = Session()
    first, second = session.stable(2)
    waiting = session.join(first)
    for _ in range(4):
        session.world.advance(SESSION_MS - 1)
        assert session.heartbeat(second) == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.waits
    session.join(second)
    assert waiting.answer.error_code == ErrorCode.NONE
    session.world.advance(SESSION_MS - 1)
    assert session.heartbeat(first) == ErrorCode.NONE, "its session starts with the answer"


def test_a_session_that_ends_while_members_rejoin_completes_the_rebalance() -> None:
    session = Session()
    first, _ = session.stable(2)
    waiting = session.join(first)
    session.world.advance(SESSION_MS)
    assert [m.member_id for m in waiting.answer.members] == [first]


def test_the_leaders_place_goes_to_who_has_rejoined() -> None:
    session = Session()
    leader, follower = session.stable(2, session_ms=REBALANCE_MS * 2)
    waiting = session.join(follower, protocols={"range": subscription("u")})
    session.world.advance(REBALANCE_MS)
    assert waiting.answer.leader == follower
    assert session.heartbeat(leader) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_end_of_a_rebalance_that_is_over_changes_nothing() -> None:
    session = Session()
    session.stable(2)
    session.world.run(lambda step: session.group.timer(step, ("join",)))
    assert (session.state, session.group.generation) == ("Stable", 2)
    assert len(session.group.members) == 2


def test_unfinished_sync_leaves_members_without_assignment() -> None:
    """That of the generation before is over; from a stable group it is told until the next."""
    session = Session()
    ids = session.stable(2)
    for member_id in ids:
        session.join(member_id)
    assert session.state == "CompletingRebalance"
    session.enter()
    assert session.state == "PreparingRebalance"
    assert [one.member_assignment for one in session.describe().members] == [b""] * 3


def test_the_time_to_sync_ends_with_the_generation() -> None:
    session = Session()
    session.enter()
    session.world.advance(0)
    assert (GROUP, ("sync",)) in session.world.timers
    session.enter()
    assert session.state == "PreparingRebalance"
    assert (GROUP, ("sync",)) not in session.world.timers


def test_rebalance_is_triggered_by_a_member_joining_and_others_learn_it_from_heartbeats() -> None:
    session = Session()
    (member,) = session.stable()
    session.enter()
    assert session.heartbeat(member) == ErrorCode.REBALANCE_IN_PROGRESS


def test_rebalance_is_triggered_by_a_member_that_stops_its_heartbeats() -> None:
    session = Session()
    first, second = session.stable(2)
    session.world.advance(SESSION_MS - 1)
    assert session.heartbeat(first) == ErrorCode.NONE
    session.world.advance(1)
    assert session.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert session.heartbeat(second) == ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_is_triggered_by_a_leader_that_rejoins_since_it_saw_partitions_change() -> None:
    session = Session()
    leader, follower = session.stable(2)
    assert session.join(leader).waits
    assert session.heartbeat(follower) == ErrorCode.REBALANCE_IN_PROGRESS


def test_rebalance_is_triggered_by_a_member_whose_topics_change() -> None:
    session = Session()
    leader, follower = session.stable(2)
    assert session.join(follower, protocols={"range": subscription("t", "u")}).waits
    assert session.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
