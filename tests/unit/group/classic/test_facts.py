"""The facts about the group protocol that the classic machine decides, one test each."""

import re

from raylog.actors.group.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.offsets import GroupMetadataKey
from tests.support.classic_groups import GROUP, SESSION_MS, Session, code_of, subscription

RANGE_FIRST = ("range", "roundrobin")
ROUND_FIRST = ("roundrobin", "range")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def test_first_join_carries_no_member_id_and_is_given_client_id_and_random_uuid() -> None:
    session = Session()
    first = session.join(client_id="billing").answer
    second = session.join(client_id="billing").answer
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert re.fullmatch(f"billing-{_UUID}", first.member_id)
    assert first.member_id != second.member_id


def test_phases_are_join_then_sync_then_heartbeat() -> None:
    session = Session()
    join = session.enter()
    session.world.advance(0)
    assert (join.answer.error_code, join.answer.generation_id) == (ErrorCode.NONE, 1)
    member = join.answer.member_id
    assert session.state == "CompletingRebalance"
    sync = session.sync(member, {member: b"given"})
    assert sync.answer.assignment == b"given"
    assert session.state == "Stable"
    assert session.heartbeat(member) == ErrorCode.NONE


def test_group_leader_is_the_first_to_join() -> None:
    session = Session()
    first, second = session.enter(), session.enter()
    session.world.advance(0)
    assert first.answer.leader == first.answer.member_id
    assert second.answer.leader == first.answer.member_id


def test_if_the_leader_leaves_any_other_leads() -> None:
    session = Session()
    first, second, third = session.stable(3)
    assert session.group.leader == first
    session.leave(first)
    rejoined = [session.join(second), session.join(third)]
    assert {ask.answer.leader for ask in rejoined} <= {second, third}
    assert len({ask.answer.leader for ask in rejoined}) == 1


def test_only_the_leaders_join_answer_lists_the_members_with_their_metadata() -> None:
    session = Session()
    first, second = session.enter(), session.enter(protocols={"range": subscription("u")})
    session.world.advance(0)
    assert [(m.member_id, m.metadata) for m in first.answer.members] == [
        (first.answer.member_id, subscription("t")),
        (second.answer.member_id, subscription("u")),
    ]
    assert second.answer.members == []


def test_protocol_choice_takes_only_what_every_member_supports() -> None:
    session = Session()
    first = session.enter(protocols=("sticky", "range"))
    session.enter(protocols=("roundrobin", "range"))
    session.world.advance(0)
    assert first.answer.protocol_name == "range"


def test_protocol_choice_is_by_most_votes_of_each_members_first_candidate() -> None:
    session = Session()
    joins = [
        session.enter(protocols=RANGE_FIRST),
        session.enter(protocols=ROUND_FIRST),
        session.enter(protocols=("sticky", *ROUND_FIRST)),
    ]
    session.world.advance(0)
    assert {join.answer.protocol_name for join in joins} == {"roundrobin"}


def test_a_member_that_shares_no_protocol_is_inconsistent_group_protocol() -> None:
    session = Session()
    session.stable()
    refused = session.join(protocols=("sticky",)).answer
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert session.state == "Stable"


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


def test_rebalance_is_triggered_by_a_member_that_leaves() -> None:
    session = Session()
    first, second = session.stable(2)
    assert session.leave(second) == [ErrorCode.NONE]
    assert session.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS


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


def test_when_the_coordinator_moves_generation_and_assignment_survive() -> None:
    session = Session()
    leader, follower = session.stable(2)
    session.world.crash()
    assert (session.state, session.group.generation) == ("Stable", 2)
    assert session.heartbeat(follower) == ErrorCode.NONE
    assert session.sync(follower).answer.assignment == b"A1"
    assert session.group.leader == leader


def test_when_the_coordinator_moves_only_a_join_in_progress_is_repeated() -> None:
    session = Session()
    (member,) = session.stable()
    newcomer = session.enter()
    waiting = session.world.crash()
    assert waiting == [newcomer.asked]
    assert session.heartbeat(member) == ErrorCode.NONE
    again = session.enter()
    assert session.join(member).answer.generation_id == 2
    assert again.answer.generation_id == 2


def test_an_old_generation_is_illegal_generation() -> None:
    session = Session()
    leader, follower = session.stable(2)
    assert session.heartbeat(follower, generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert code_of(session.sync(leader, generation=1)) == ErrorCode.ILLEGAL_GENERATION
    assert session.commit(leader, 1) == ErrorCode.ILLEGAL_GENERATION


def test_max_poll_interval_is_the_rebalance_timeout_who_has_not_rejoined_by_then_is_out() -> None:
    session = Session(GroupSettings(initial_rebalance_delay_ms=0))
    slow, quick = session.stable(2, rebalance_ms=30_000, session_ms=40_000)
    changed = {"range": subscription("u")}
    rejoined = session.join(quick, protocols=changed, rebalance_ms=30_000)
    session.world.advance(29_999)
    assert rejoined.waits
    session.world.advance(1)
    assert [m.member_id for m in rejoined.answer.members] == [quick]
    assert session.heartbeat(slow) == ErrorCode.UNKNOWN_MEMBER_ID
