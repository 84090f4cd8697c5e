"""Classic members of a KIP-848 group, as Apache Kafka 4.3.1 treats them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.leave_group import LeaveGroupRequest
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.worlds.group.shard import AT_ONCE, GROUP, ShardWorld, assigned_by


@pytest.fixture
def world() -> ShardWorld:
    """A KIP-848 member `a` that owns all of `t`, which has 4 partitions."""
    world = ShardWorld()
    world.topics(t=4)
    world.enter("a", "t")
    return world


def test_a_join_is_answered_at_once_with_the_new_epoch(world: ShardWorld) -> None:
    asked = world.join("", "t")
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = world.join(asked.member_id, "t")
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 3)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert (joined.leader, joined.members, joined.skip_assignment) == ("", [], False)
    synced = world.sync(joined.member_id, 3)
    assert assigned_by(synced.assignment) == {}
    member = next(
        m
        for m in world.consumer.consumer_describing(world.image).whole().members
        if m.member_type == 0
    )
    assert member.member_id == joined.member_id


def test_old_versions_need_no_member_id_first(world: ShardWorld) -> None:
    joined = world.join("", "t", version=3)
    assert joined.generation_id == 3
    assert len(joined.member_id) == 22


def test_classic_member_gets_partitions_that_others_revoke(world: ShardWorld) -> None:
    world.join("z", "t")
    assert world.live("z", 3) is ErrorCode.NONE  # nothing has come free yet
    assert world.owned(world.beat("a", 2)) == {"t": [0, 1]}
    world.beat("a", 2, {"t": [0, 1]})
    assert world.live("z", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join("z", "t").generation_id == 3
    assert assigned_by(world.sync("z", 3).assignment) == {"t": [2, 3]}
    assert world.group.state_name() == "Stable"


@pytest.fixture
def settled(world: ShardWorld) -> ShardWorld:
    """`a` owns t0 and t1 at epoch 3, the classic `z` owns t2 and t3."""
    world.join("z", "t")
    world.beat("a", 2)
    world.beat("a", 2, {"t": [0, 1]})
    world.join("z", "t")
    world.sync("z", 3)
    return world


def test_a_new_epoch_asks_it_to_join_again(settled: ShardWorld) -> None:
    settled.enter("b", "t")
    assert settled.live("z", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    refused = settled.sync("z", 3)
    assert refused.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = settled.join("z", "t", owned={"t": [2, 3]})
    assert joined.generation_id == 3  # something is to be given up first
    assert assigned_by(settled.sync("z", 3).assignment) == {"t": [2]}
    assert settled.live("z", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert settled.join("z", "t", owned={"t": [2]}).generation_id == 4
    assert settled.live("z", 4) is ErrorCode.NONE


def test_a_new_epoch_without_a_target_asks_for_nothing(settled: ShardWorld) -> None:
    settled.enter("b")
    settled.beat("b", -1)
    assert settled.consumer.state.group_epoch == 4
    assert settled.live("z", 3) is ErrorCode.NONE
    assert settled.sync("z", 3).error_code == ErrorCode.NONE
    settled.beat("a", 3)
    assert settled.live("z", 3) is ErrorCode.REBALANCE_IN_PROGRESS


def test_without_kip_848_members_a_new_epoch_does() -> None:
    world = ShardWorld(replace(AT_ONCE, consumer_migration_policy="upgrade"))
    world.topics(t=2)
    world.enter("a", "t")
    world.join("z", "t")
    world.beat("a", -1)
    assert world.live("z", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join("z", "t").generation_id == 4
    assert assigned_by(world.sync("z", 4).assignment) == {"t": [0, 1]}


def test_refusals(settled: ShardWorld) -> None:
    assert settled.live("x", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert settled.live("a", 3) is ErrorCode.UNKNOWN_MEMBER_ID  # it speaks KIP-848
    assert settled.live("z", 2) is ErrorCode.ILLEGAL_GENERATION
    assert settled.live("z", 3, "i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert settled.sync("z", 9).error_code == ErrorCode.ILLEGAL_GENERATION
    wrong = settled.sync("z", 3, protocol_name="sticky")
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong = settled.sync("z", 3, protocol_type="connect")
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"protocols": ()}])
def test_joins_of_another_kind(world: ShardWorld, fields: dict[str, object]) -> None:
    refused = world.join("", "t", **fields)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_members_must_share_an_assignor(settled: ShardWorld) -> None:
    refused = settled.join("y", "t", protocols=("sticky",))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    joined = settled.join("y", "t", protocols=("sticky", "range"))
    assert (joined.error_code, joined.protocol_name) == (ErrorCode.NONE, "sticky")


def test_a_malformed_subscription(world: ShardWorld) -> None:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=1,
        member_id="z",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"x")],
    )
    assert world.ask(request, 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_without_migration_no_classic_member_is_taken() -> None:
    world = ShardWorld(GroupSettings(consumer_migration_policy="disabled"))
    world.topics(t=1)
    world.enter("a", "t")
    refused = world.join("", "t")
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_group_size() -> None:
    world = ShardWorld(GroupSettings(consumer_size_max=1, consumer_assignment_interval_ms=0))
    world.topics(t=1)
    world.enter("a", "t")
    assert world.join("", "t").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_static_members_come_back(settled: ShardWorld) -> None:
    first = settled.join("", "t", instance_id="i")
    epoch = settled.consumer.state.group_epoch
    second = settled.join("", "t", instance_id="i")
    assert second.member_id != first.member_id
    assert settled.consumer.state.group_epoch == epoch
    fenced = settled.live(first.member_id, first.generation_id, "i")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    refused = settled.join(first.member_id, "t", instance_id="i")
    assert refused.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_says_who_it_is_stays_who_it_is(settled: ShardWorld) -> None:
    first = settled.join("", "t", instance_id="i")
    members = set(settled.consumer.state.profiles)
    again = settled.join(first.member_id, "t", instance_id="i")
    assert (again.error_code, again.member_id) == (ErrorCode.NONE, first.member_id)
    assert set(settled.consumer.state.profiles) == members


def test_commits_of_another_generation_are_refused_in_its_own_words(settled: ShardWorld) -> None:
    def committing(generation: int) -> ErrorCode:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id="z",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        return ErrorCode(settled.ask(request, 8).topics[0].partitions[0].error_code)

    assert committing(2) is ErrorCode.ILLEGAL_GENERATION
    assert committing(4) is ErrorCode.ILLEGAL_GENERATION
    assert committing(3) is ErrorCode.NONE


def test_a_kip_848_client_takes_over_from_a_classic_instance(settled: ShardWorld) -> None:
    joined = settled.join("", "t", instance_id="i")
    assert settled.enter("b", "t", instance_id="i").error_code == ErrorCode.NONE
    assert joined.member_id not in settled.consumer.state.profiles


def test_leaving(settled: ShardWorld) -> None:
    settled.join("", "t", instance_id="i")
    settled.enter("b", "t")
    answer = settled.leave(("x", None), ("z", None), ("", "i"), ("", "j"), ("b", None))
    assert answer.error_code == ErrorCode.NONE
    assert [one.error_code for one in answer.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert settled.consumer.state.profiles.keys() == {"a"}
    assert settled.leave().members == []


def test_leaving_before_several_could(settled: ShardWorld) -> None:
    request = LeaveGroupRequest(group_id=GROUP, member_id="z")
    assert settled.ask(request, 2).error_code == ErrorCode.NONE
    assert settled.ask(request, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_member_that_does_not_sync_in_time_is_removed(settled: ShardWorld) -> None:
    settled.join("y", "t")
    settled.advance(29_999)
    assert "y" in settled.consumer.state.profiles
    settled.advance(1)
    assert "y" not in settled.consumer.state.profiles


def test_classic_member_that_does_not_rejoin_in_time_is_removed(settled: ShardWorld) -> None:
    settled.enter("b", "t")
    assert settled.live("z", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(2):
        settled.advance(15_000)
        if "z" in settled.consumer.state.profiles:
            settled.live("z", 3)
            settled.beat("a", 3)
            settled.beat("b", 4)
    assert "z" not in settled.consumer.state.profiles


def test_a_classic_session(settled: ShardWorld) -> None:
    settled.advance(44_000)
    settled.beat("a", 3)
    settled.advance(1_000)
    assert settled.consumer.state.profiles.keys() == {"a"}


def test_rejoin_timeout_also_starts_from_a_sync_answer(settled: ShardWorld) -> None:
    settled.enter("b", "t")
    assert settled.sync("z", 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(2):
        settled.advance(15_000)
        if "z" in settled.consumer.state.profiles:
            settled.live("z", 3)
            settled.beat("a", 3)
            settled.beat("b", 4)
    assert "z" not in settled.consumer.state.profiles
