"""What loading the log restores, and what it does not."""

import pytest

from raylog.actors.group.rules.classic import ClassicGroup
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.offsets import GroupMetadataKey
from tests.worlds.group.classic import GROUP, REBALANCE_MS, SESSION_MS, Session, subscription


def test_a_load_brings_back_what_describe_tells_of_a_stable_group() -> None:
    session = Session()
    session.stable(3, protocols=("range", "roundrobin"))
    before = session.describe()
    session.world.crash()
    assert session.describe() == before


def test_sessions_start_again_after_a_load() -> None:
    session = Session()
    (member,) = session.stable()
    session.world.advance(SESSION_MS - 1)
    session.world.crash()
    session.world.advance(SESSION_MS - 1)
    assert session.heartbeat(member) == ErrorCode.NONE
    session.world.advance(SESSION_MS)
    assert session.state == "Empty"


def test_a_load_in_the_middle_of_a_rebalance_brings_back_the_last_settled_generation() -> None:
    session = Session()
    leader, follower = session.stable(2)
    session.join(leader)
    session.join(follower)
    assert (session.state, session.group.generation) == ("CompletingRebalance", 3)
    waiting = session.sync(follower)
    assert session.world.crash() == [waiting.asked]
    assert (session.state, session.group.generation) == ("Stable", 2)
    assert session.heartbeat(follower, generation=3) == ErrorCode.ILLEGAL_GENERATION
    assert session.heartbeat(follower, generation=2) == ErrorCode.NONE


def test_ids_that_were_given_out_are_forgotten_by_a_load() -> None:
    session = Session()
    member_id = session.join().answer.member_id
    session.world.crash()
    assert session.join(member_id).answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_after_a_load_members_are_known_by_the_protocol_in_use_only() -> None:
    session = Session()
    leader, follower = session.stable(2, protocols=("range", "roundrobin"))
    session.world.crash()
    waiting = session.join(follower, protocols=("range", "roundrobin"))
    assert waiting.waits, "its protocols are news to the coordinator"
    session.join(leader, protocols=("range", "roundrobin"))
    assert waiting.answer.protocol_name == "range"


def test_live_members_keep_all_their_protocols_when_a_generation_is_recorded() -> None:
    session = Session()
    _, follower = session.stable(2, protocols=("range", "roundrobin"))
    unchanged = session.join(follower, protocols=("range", "roundrobin"))
    assert unchanged.answer.generation_id == session.group.generation


def test_a_load_brings_back_subscribed_topics() -> None:
    session = Session()
    session.stable(protocols={"range": subscription("t")})
    session.world.crash()
    assert session.group.subscribes("t")
    assert not session.group.subscribes("u")


def test_a_group_above_a_lowered_limit_rebalances_after_the_load() -> None:
    session = Session()
    ids = session.stable(3)
    session.settings = GroupSettings(initial_rebalance_delay_ms=0, size_max=2)
    session.world.crash()
    assert session.state == "PreparingRebalance"
    assert session.heartbeat(ids[0]) == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_old_record_without_rebalance_timeout_takes_the_sessions() -> None:
    session = Session()
    (member,) = session.stable(session_ms=20_000)
    record = session.last_record
    record.members[0].rebalance_timeout = -1
    session.world.crash()
    assert session.group.members[0].rebalance_timeout_ms == 20_000
    assert session.join(member).answer.generation_id == 2


def test_an_old_record_without_a_time_lets_offsets_expire_from_their_commit() -> None:
    session = Session()
    session.leave(*session.stable())
    session.last_record.current_state_timestamp = -1
    session.world.crash()
    assert session.group.offset_expires_after(5) == 5


def test_deleting_appends_a_tombstone_that_ends_the_group() -> None:
    session = Session()
    session.leave(*session.stable())
    assert session.group.is_empty()
    group = session.group
    session.world.run(group.delete)
    assert session.world.log[-1].key == GroupMetadataKey(group=GROUP)
    assert session.world.log[-1].value is None
    assert session.world.groups == {}
    session.world.crash()
    assert session.world.groups == {}
    group.replay(session.world.log[-1])
    assert group.state_name() == "Dead"


def test_conversion_answers_waiting_joins_and_syncs() -> None:
    session = Session()
    (member,) = session.stable()
    joining = session.enter()
    session.world.run(lambda step: session.group.interrupt(step, ErrorCode.REBALANCE_IN_PROGRESS))
    assert joining.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    session.join(member)
    session.join(joining.asked.request.member_id)
    syncing = session.sync(joining.asked.request.member_id)
    session.world.run(lambda step: session.group.interrupt(step, ErrorCode.REBALANCE_IN_PROGRESS))
    assert syncing.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert session.group.unload() == []


def test_a_timer_that_nobody_set_is_our_mistake() -> None:
    group = ClassicGroup(GROUP, GroupSettings())
    session = Session()
    with pytest.raises(AssertionError, match="no timer"):
        session.world.run(lambda step: group.timer(step, ("unheard-of",)))


def test_timers_of_a_settled_group_are_its_sessions_alone() -> None:
    session = Session()
    ids = session.stable(2)
    assert set(session.world.timers) == {(GROUP, ("session", member_id)) for member_id in ids}
    session.leave(*ids)
    session.world.advance(REBALANCE_MS)
    assert session.world.timers == {}


def test_a_group_that_becomes_another_kind_leaves_no_timer() -> None:
    session = Session()
    session.stable(2)
    session.join()
    assert len(session.world.timers) == 3, "two sessions, and an id that was given out"
    session.world.run(session.group.delete)
    assert session.world.timers == {}


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
