"""JoinGroup: who is admitted, what each version returns, and each wrong state."""

from typing import Any
from uuid import UUID

import pytest

from raylog.actors.group.rules.classic import joining
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.offsets import GroupMetadataValue
from tests.worlds.group.classic import (
    NEW,
    REBALANCE_MS,
    SESSION_MS,
    Session,
    code_of,
    subscription,
)


def test_a_group_is_recorded_as_empty_when_it_is_first_heard_of() -> None:
    session = Session()
    session.join()
    assert session.state == "Empty"
    assert session.last_record == GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=session.world.now_ms,
    )
    assert session.world.log[-1].value_version == 3


@pytest.mark.parametrize("version", range(4))
def test_before_v4_a_new_member_joins_at_once(version: int) -> None:
    session = Session()
    join = session.join(version=version)
    assert join.waits
    session.world.advance(0)
    assert join.answer.error_code == ErrorCode.NONE
    assert join.answer.leader == join.answer.member_id


@pytest.mark.parametrize("version", range(4, 10))
def test_from_v4_a_new_member_has_to_come_back_with_its_id(version: int) -> None:
    session = Session()
    answer = session.join(version=version).answer
    assert (answer.error_code, answer.generation_id, answer.leader) == (79, -1, "")
    assert answer.protocol_name == (None if version >= 7 else "")
    join = session.join(answer.member_id, version=version)
    session.world.advance(0)
    assert join.answer.member_id == answer.member_id
    assert join.answer.protocol_name == "range"
    assert join.answer.protocol_type == ("consumer" if version >= 7 else None)


def test_ids_of_members_end_in_random_uuids_as_they_are_usually_written() -> None:
    session = Session()
    ids = [session.join(client_id="billing").answer.member_id for _ in range(20)]
    assert len({*ids}) == 20
    for member_id in ids:
        found = UUID(member_id[-36:])
        assert (str(found), found.version) == (member_id[-36:], 4)
        assert member_id[:-36] == "billing-"


def test_an_id_that_nobody_comes_back_with_is_forgotten_after_its_session_timeout() -> None:
    session = Session()
    member_id = session.join().answer.member_id
    session.world.advance(SESSION_MS)
    assert code_of(session.join(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_gives_out_so_many_ids_until_they_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An id may take 32 KiB for half an hour. A client that is told to try again does so."""
    monkeypatch.setattr(joining, "_PENDING_MAX", 2)
    session = Session()
    first, _ = (session.join().answer.member_id for _ in range(2))
    assert code_of(session.join()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert session.join(instance="static").waits, "static members get none"
    assert session.join(first).waits
    assert code_of(session.join()) == ErrorCode.MEMBER_ID_REQUIRED
    session.world.advance(SESSION_MS)
    assert code_of(session.join()) == ErrorCode.MEMBER_ID_REQUIRED


def test_an_outstanding_id_holds_up_the_rebalance_until_it_is_used() -> None:
    session = Session()
    (member,) = session.stable()
    member_id = session.join().answer.member_id
    rejoined = session.join(member)
    assert rejoined.waits
    session.join(member_id)
    assert len(rejoined.answer.members) == 2


def test_an_outstanding_id_holds_up_the_rebalance_until_it_times_out() -> None:
    session = Session()
    (member,) = session.stable()
    session.join()
    rejoined = session.join(member)
    session.world.advance(SESSION_MS)
    assert len(rejoined.answer.members) == 1


def test_an_outstanding_id_is_unknown_with_an_instance() -> None:
    session = Session()
    member_id = session.join().answer.member_id
    refused = session.join(member_id, instance="i").answer
    assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_a_member_id_that_was_never_given_is_unknown() -> None:
    session = Session()
    session.join()
    refused = session.join("stranger").answer
    assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
    session.stable()
    assert code_of(session.join("stranger")) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "terms", [{"protocols": ()}, {"protocol_type": ""}, {"protocols": (), "version": 2}]
)
def test_an_empty_group_takes_nobody_without_type_or_protocols(terms: dict[str, Any]) -> None:
    session = Session()
    refused = session.join(**terms).answer
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused.member_id == ""
    assert session.state == "Empty", "it is made all the same"


def test_another_protocol_type_is_inconsistent_even_for_a_member() -> None:
    session = Session()
    (member,) = session.stable()
    assert code_of(session.join(protocol_type="connect")) == 23
    refused = session.join(member, protocol_type="connect").answer
    assert (refused.error_code, refused.member_id) == (23, member)


def test_an_empty_group_may_change_its_protocol_type() -> None:
    session = Session()
    (member,) = session.stable()
    session.leave(member)
    assert session.group.protocol_type == "consumer"
    session.stable(protocol_type="connect")
    assert session.group.protocol_type == "connect"


def test_v0_has_the_session_timeout_for_both() -> None:
    session = Session()
    join = session.join(version=0, session_ms=7_000)
    session.world.advance(0)
    session.sync(join.answer.member_id, version=0)
    (recorded,) = session.last_record.members
    assert (recorded.session_timeout, recorded.rebalance_timeout) == (7_000, 7_000)


def test_joining_again_while_completing_repeats_the_answer_if_nothing_changed() -> None:
    session = Session()
    leader, follower = session.enter(), session.enter()
    session.world.advance(0)
    assert session.join(leader.answer.member_id).answer == leader.answer
    assert session.join(follower.answer.member_id).answer == follower.answer
    assert session.state == "CompletingRebalance"


def test_joining_again_while_completing_with_new_metadata_rebalances() -> None:
    session = Session()
    leader, follower = session.enter(), session.enter()
    session.world.advance(0)
    waiting = session.sync(follower.answer.member_id)
    session.join(leader.answer.member_id, protocols={"range": subscription("u")})
    assert session.state == "PreparingRebalance"
    assert waiting.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_of_a_stable_group_that_joins_unchanged_is_told_the_generation() -> None:
    session = Session()
    leader, follower = session.stable(2)
    answer = session.join(follower).answer
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 2, leader)
    assert answer.members == []
    assert session.state == "Stable"


def test_the_order_of_protocols_matters_to_whether_a_member_changed() -> None:
    session = Session()
    _, follower = session.stable(2, protocols=("range", "roundrobin"))
    assert session.join(follower, protocols=("roundrobin", "range")).waits


def test_a_second_join_of_a_member_that_waits_takes_the_place_of_the_first() -> None:
    session = Session()
    first, _ = session.stable(2)
    waits = session.join(first)
    again = session.join(first)
    assert waits.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert again.waits


def test_group_max_size_turns_new_members_away() -> None:
    session = Session(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    ids = session.stable(2)
    refused = session.join().answer
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    rejoined = [session.join(member_id) for member_id in ids]
    assert [code_of(ask) for ask in rejoined] == [ErrorCode.NONE, ErrorCode.NONE]


def test_group_max_size_counts_who_waits_while_members_rejoin() -> None:
    session = Session(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    first, second = session.stable(2)
    answer = session.join(version=3)
    assert answer.answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    session.leave(second)
    session.join(version=3)
    session.join(first)
    assert session.state == "CompletingRebalance"
    assert len(session.group.members) == 2


def test_a_lowered_group_max_size_turns_the_last_to_rejoin_away() -> None:
    session = Session()
    ids = session.stable(3)
    session.settings = GroupSettings(initial_rebalance_delay_ms=0, size_max=2)
    session.world.crash()
    assert session.state == "PreparingRebalance"
    rejoined = [session.join(member_id) for member_id in ids[:2]]
    refused = session.join(ids[2]).answer
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert session.heartbeat(ids[2]) == ErrorCode.UNKNOWN_MEMBER_ID
    session.world.advance(60_000)
    assert [code_of(ask) for ask in rejoined] == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_new_member_that_waits_for_five_minutes_in_its_first_join_is_out() -> None:
    session = Session(NEW)
    (member,) = session.stable(rebalance_ms=1_800_000, session_ms=1_000_000)
    newcomer = session.enter(rebalance_ms=1_800_000, session_ms=SESSION_MS)
    session.world.advance(299_999)
    assert newcomer.waits, "not after its session timeout: it could not send heartbeats"
    session.world.advance(1)
    assert (newcomer.answer.error_code, newcomer.answer.member_id) == (25, "")
    assert [m.member_id for m in session.group.members] == [member]


def test_an_id_that_was_given_out_is_void_once_there_is_no_room_for_it() -> None:
    """Else a rebalance would wait for whoever has it."""
    session = Session(GroupSettings(initial_rebalance_delay_ms=0, size_max=1))
    given = session.join().answer.member_id
    (member,) = session.stable()
    refused = session.join(given).answer
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    session.leave(member)
    assert session.state == "Empty"
    assert session.join(given).answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_that_waits_in_its_first_join_is_out_after_five_minutes() -> None:
    """It cannot send heartbeats: nobody knows whether it is still there."""
    long_ms = 1_800_000
    session = Session()
    session.stable(session_ms=long_ms, rebalance_ms=long_ms)
    newcomer = session.join(version=3, session_ms=long_ms, rebalance_ms=long_ms)
    session.world.advance(299_999)
    assert newcomer.waits
    session.world.advance(1)
    assert (code_of(newcomer), newcomer.answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert len(session.group.members) == 1


def test_waiting_member_may_rejoin_below_a_lowered_size_limit() -> None:
    session = Session()
    ids = session.stable(3)
    session.settings = GroupSettings(initial_rebalance_delay_ms=0, size_max=2)
    session.world.crash()
    first, second = session.join(ids[0]), session.join(ids[1])
    again = session.join(ids[0])
    assert code_of(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert again.waits
    assert code_of(session.join(ids[2])) == ErrorCode.GROUP_MAX_SIZE_REACHED
    session.world.advance(REBALANCE_MS)
    assert {code_of(again), code_of(second)} == {ErrorCode.NONE}
    assert [one.member_id for one in session.group.members] == ids[:2]


def test_an_id_that_was_given_out_is_given_back_where_there_is_no_room() -> None:
    session = Session(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    (member,) = session.stable()
    member_id = session.join().answer.member_id
    session.join(version=3)
    session.join(member)
    refused = session.join(member_id).answer
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    again = session.join(member_id).answer
    assert again.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(session.group.members) == 2


def test_group_leader_is_the_first_to_join() -> None:
    session = Session()
    first, second = session.enter(), session.enter()
    session.world.advance(0)
    assert first.answer.leader == first.answer.member_id
    assert second.answer.leader == first.answer.member_id


def test_only_the_leaders_join_answer_lists_the_members_with_their_metadata() -> None:
    session = Session()
    first, second = session.enter(), session.enter(protocols={"range": subscription("u")})
    session.world.advance(0)
    assert [(m.member_id, m.metadata) for m in first.answer.members] == [
        (first.answer.member_id, subscription("t")),
        (second.answer.member_id, subscription("u")),
    ]
    assert second.answer.members == []


def test_protocol_choice_is_by_most_votes_of_each_members_first_candidate() -> None:
    session = Session()
    joins = [
        session.enter(protocols=("range", "roundrobin")),
        session.enter(protocols=("roundrobin", "range")),
        session.enter(protocols=("sticky", "roundrobin", "range")),
    ]
    session.world.advance(0)
    assert {join.answer.protocol_name for join in joins} == {"roundrobin"}


def test_a_member_that_shares_no_protocol_is_inconsistent_group_protocol() -> None:
    session = Session()
    session.stable()
    refused = session.join(protocols=("sticky",)).answer
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert session.state == "Stable"
