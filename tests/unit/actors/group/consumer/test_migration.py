"""Groups switch between the classic protocol and KIP-848 while in use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.coordination.rules.step import Step
from raylog.actors.group.rules.classic import ClassicGroup
from raylog.actors.group.rules.consumer import ConsumerGroup, embedded
from raylog.actors.group.rules.consumer.migration import UPGRADE_BYTES_MAX
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.consumer_groups import ConsumerGroupMetadataKey
from raylog.wire.internal.offsets import GroupMetadataKey
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.worlds.group.shard import (
    AT_ONCE,
    GROUP,
    ShardWorld,
    assigned_by,
    assignment_blob,
    subscription_blob,
)


@pytest.fixture
def classic() -> ShardWorld:
    """A stable classic group of one member, `z` by its answers, that owns all of `t`."""
    return stable_classic()


def stable_classic(policy: str = "bidirectional") -> ShardWorld:
    world = ShardWorld(replace(AT_ONCE, consumer_migration_policy=policy))
    world.topics(t=4)
    joined = world.join("", "t", version=3)
    world.sync(joined.member_id, 1, {joined.member_id: {"t": [0, 1, 2, 3]}})
    assert world.group.state_name() == "Stable"
    return world


def classic_member(world: ShardWorld) -> str:
    assert isinstance(world.group, ClassicGroup)
    return world.group.members[0].member_id


def test_upgrade(classic: ShardWorld) -> None:
    z = classic_member(classic)
    joined = classic.enter("a", "t")
    assert (joined.member_epoch, classic.owned(joined)) == (2, {})
    assert classic.group.state_name() == "Reconciling"
    assert classic.consumer.state.holding(z).epoch == 1
    assert classic.live(z, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert classic.join(z, "t", owned={"t": [0, 1, 2, 3]}).generation_id == 1
    given = assigned_by(classic.sync(z, 1).assignment)["t"]
    assert len(given) == 2
    assert classic.join(z, "t", owned={"t": given}).generation_id == 2
    rest = classic.owned(classic.beat("a", 2))
    assert rest is not None
    assert sorted(given + rest["t"]) == [0, 1, 2, 3]


def test_upgrade_of_a_group_that_rebalances(classic: ShardWorld) -> None:
    z = classic_member(classic)
    waiting = classic.send_join("", "t", version=3)
    assert classic.group.state_name() == "PreparingRebalance"
    classic.enter("a", "t")
    refused = waiting.answer
    assert refused.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(classic.consumer.state.profiles) == {z, "a", refused.member_id}
    classic.advance(25_000)
    assert not [key for _, key in classic.timers if key in (("join",), ("sync",))]


def test_the_same_member_changes_its_protocol(classic: ShardWorld) -> None:
    z = classic_member(classic)
    joined = classic.enter(z, "t")
    assert (joined.member_epoch, classic.owned(joined)) == (1, {"t": [0, 1, 2, 3]})
    assert classic.group.state_name() == "Stable"
    assert classic.live(z, 1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("size_max", "upgrades"), [(1, False), (2, True)])
def test_a_group_with_more_members_than_it_may_have_is_not_upgraded(
    size_max: int, *, upgrades: bool
) -> None:
    settings = replace(AT_ONCE, consumer_migration_policy="bidirectional")
    world = ShardWorld(replace(settings, consumer_size_max=size_max))
    world.topics(t=4)
    first = world.join("", "t", version=3).member_id
    joining = world.send_join("", "t", version=3)
    world.join(first, "t", version=3)
    second = joining.answer.member_id
    world.sync(first, 2, {first: {"t": [0, 1]}, second: {"t": [2, 3]}})
    answer = world.enter(first, "t")  # there is nobody whom it would add
    assert isinstance(world.group, ConsumerGroup) is upgrades
    if not upgrades:
        assert answer.error_message == (
            "Cannot upgrade classic group g to consumer group because the group size exceeds "
            "the consumer group maximum size."
        )


def test_a_load_after_an_upgrade(classic: ShardWorld) -> None:
    classic.enter("a", "t")
    before = classic.consumer.state
    classic.crash()
    assert classic.consumer.state == before


def test_sessions_go_on_after_an_upgrade(classic: ShardWorld) -> None:
    z = classic_member(classic)
    classic.advance(40_000)
    classic.enter("a", "t")
    classic.advance(44_000)
    classic.beat("a", 2)
    assert z in classic.consumer.state.profiles
    classic.advance(1_000)
    assert z not in classic.consumer.state.profiles


def test_a_group_whose_records_do_not_fit_a_batch_is_not_read(
    classic: ShardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the metadata of thousands of members would hold the event loop for seconds."""
    assert isinstance(classic.group, ClassicGroup)
    monkeypatch.setattr(embedded, "subscription_of", pytest.fail)
    classic.group.members[0].protocols["other"] = bytes(UPGRADE_BYTES_MAX)
    refused = classic.enter("a", "t")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert str(UPGRADE_BYTES_MAX) in (refused.error_message or "")
    assert isinstance(classic.group, ClassicGroup)


@pytest.mark.parametrize("epoch", [1, -1])
def test_only_a_join_upgrades(classic: ShardWorld, epoch: int) -> None:
    refused = classic.beat("a", epoch)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == "Group g is not a consumer group."
    assert isinstance(classic.group, ClassicGroup)


def test_a_refused_heartbeat_upgrades_nothing(classic: ShardWorld) -> None:
    refused = classic.enter("a", "t", server_assignor="mine")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    refused = classic.enter("a", "t", subscribed_topic_regex="[")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert isinstance(classic.group, ClassicGroup)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_no_upgrade_by_policy(policy: str) -> None:
    world = stable_classic(policy)
    refused = world.enter("a", "t")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )
    world.leave((classic_member(world), None))
    assert world.enter("a", "t").member_epoch == 2  # a group without members may always change


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (
            assignment_blob({"t": [0]}, b"mine"),
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade.",
        ),
        (b"\0", "the embedded consumer protocol is malformed."),
    ],
)
def test_assignments_that_cannot_be_taken_over(assignment: bytes, reason: str) -> None:
    world = ShardWorld()
    world.topics(t=1)
    z = world.join("", "t", version=3).member_id
    give = SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id=z,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=z, assignment=assignment)],
    )
    world.ask(give, 5)
    refused = world.enter("a", "t")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    expected = f"Cannot upgrade classic group g to consumer group because {reason}"
    assert refused.error_message == expected
    assert isinstance(world.group, ClassicGroup)


def test_groups_of_another_protocol_type_stay() -> None:
    world = ShardWorld()
    world.join("", "t", version=3, protocol_type="connect")
    refused = world.enter("a", "t")
    assert refused.error_message == (
        "Cannot upgrade classic group g to consumer group because the group does not use "
        "the consumer embedded protocol."
    )


def test_downgrade_when_the_last_kip_848_member_leaves(classic: ShardWorld) -> None:
    z = classic_member(classic)
    classic.enter("a", "t")
    classic.join(z, "t", protocols=("range", "sticky"))
    classic.sync(z, 2)
    classic.beat("a", -1)
    assert isinstance(classic.group, ClassicGroup)
    assert classic.group.state_name() == "PreparingRebalance"
    assert classic.group.generation == 2
    assert list(classic.group.members[0].protocols) == ["range", "sticky"]
    assert classic.live(z, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = classic.join(z, "t", protocols=("range", "sticky"))
    assert (joined.generation_id, joined.leader) == (3, z)


def test_downgrade_keeps_what_the_target_gave(classic: ShardWorld) -> None:
    z = classic_member(classic)
    classic.enter("a", "t")
    target = sorted(classic.consumer.state.target(z)[classic.image.topic_ids["t"]])
    classic.beat("a", -1)
    described = classic.ask(DescribeGroupsRequest(groups=[GROUP]), 6).groups[0]
    assert assigned_by(described.members[0].member_assignment) == {"t": target}


@pytest.mark.parametrize("nonsense", [b"", b"\x00", b"\xff\xff", b"\x7f\xff"])
def test_downgrade_to_a_protocol_whose_subscription_was_never_read(
    classic: ShardWorld, nonsense: bytes
) -> None:
    """Only a member's first choice is read as it joins; the vote may be for another."""
    z = classic_member(classic)
    classic.enter("a", "t")
    send = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=30_000,
        member_id=z,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name="range", metadata=subscription_blob("t")),
            JoinGroupRequestProtocol(name="odd", metadata=nonsense),
        ],
    )
    assert classic.ask(send, 9).error_code == ErrorCode.NONE
    other = classic.join("", "t", protocols=("odd",), version=3)
    assert other.error_code == ErrorCode.NONE
    assert classic.beat("a", -1).error_code == ErrorCode.NONE
    assert isinstance(classic.group, ClassicGroup)
    assert classic.group.protocol == "odd"


def test_downgrade_when_the_last_kip_848_member_is_silent(classic: ShardWorld) -> None:
    z = classic_member(classic)
    classic.enter("a", "t")
    classic.advance(44_000)
    classic.live(z, 1)
    classic.advance(1_000)
    assert isinstance(classic.group, ClassicGroup)
    assert {key for _, key in classic.timers} == {("session", z), ("join",)}
    classic.crash()
    assert isinstance(classic.group, ClassicGroup)
    assert classic.group.generation == 2


def test_downgrade_when_a_static_member_changes_its_protocol() -> None:
    world = ShardWorld()
    world.topics(t=2)
    world.enter("a", "t", instance_id="i")
    world.beat("a", -2, instance_id="i")
    joined = world.join("", "t", instance_id="i")
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 2)
    assert isinstance(world.group, ClassicGroup)
    assert world.group.state_name() == "Stable"
    assert world.live(joined.member_id, 2, "i") is ErrorCode.NONE


def test_downgrade_with_another_subscription_rebalances() -> None:
    world = ShardWorld()
    world.topics(t=2)
    world.enter("a", "t", instance_id="i")
    world.join("", "t", instance_id="k")
    joined = world.join("", "t", "u", instance_id="i")
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 0)
    assert isinstance(world.group, ClassicGroup)
    assert (world.group.state_name(), world.group.generation) == ("PreparingRebalance", 3)
    assert world.live(joined.member_id, 0, "i") is ErrorCode.ILLEGAL_GENERATION


def test_a_dynamic_member_that_changes_its_protocol_makes_no_classic_group() -> None:
    world = ShardWorld()
    world.topics(t=2)
    world.enter("a", "t")
    assert world.join("a", "t").generation_id == 2
    assert isinstance(world.group, ConsumerGroup)


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_no_downgrade_by_policy(policy: str) -> None:
    world = stable_classic("upgrade")
    world.enter("a", "t")
    world.consumer._group.settings = replace(AT_ONCE, consumer_migration_policy=policy)
    world.beat("a", -1)
    assert isinstance(world.group, ConsumerGroup)
    assert len(world.consumer.state.profiles) == 1


def test_an_empty_kip_848_group_makes_way_for_a_classic_member() -> None:
    world = ShardWorld()
    world.topics(t=2)
    world.enter("a", "t")
    world.beat("a", -1)
    refused = world.join("z", "t")
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.consumer.is_empty()
    joined = world.join("", "t", version=3)
    assert (joined.generation_id, joined.leader) == (1, joined.member_id)
    world.crash()
    assert isinstance(world.group, ClassicGroup)


def test_a_pattern_that_waits_to_be_resolved_troubles_no_classic_group() -> None:
    """The last member leaves in the second in which topics have changed."""
    world = ShardWorld(AT_ONCE)
    world.topics(t=4)
    world.enter("a", subscribed_topic_regex="t.*")
    world.advance(0)
    world.run(lambda step: world.shard.topics_changed(step, {"t"}, world.shard.groups))
    assert (GROUP, ("regex",)) in world.timers
    world.beat("a", -1)
    joined = world.join("", "t", version=3)
    assert joined.generation_id == 1
    world.advance(1_000)
    assert world.group.state_name() == "CompletingRebalance"


def test_deleting_leaves_nothing(classic: ShardWorld) -> None:
    classic.enter("a", "t", subscribed_topic_regex="t")
    classic.advance(0)

    def delete(step: Step) -> None:
        classic.consumer.delete(step)

    classic.run(delete)
    assert GROUP not in classic.shard.groups
    last = {}
    for record in classic.log:
        last[repr(record.key)] = record.value
    assert set(last.values()) == {None}
    assert repr(ConsumerGroupMetadataKey(group_id=GROUP)) in last
    assert repr(GroupMetadataKey(group=GROUP)) in last


@pytest.mark.parametrize("members", [1, 2])
def test_join_to_a_full_group_does_not_upgrade_it(members: int) -> None:
    world = ShardWorld(
        replace(AT_ONCE, consumer_migration_policy="bidirectional", consumer_size_max=members)
    )
    world.topics(t=4)
    joined = world.join("", "t", version=3)
    world.sync(joined.member_id, 1, {joined.member_id: {"t": [0, 1, 2, 3]}})
    for _ in range(1, members):
        world.send_join("", "t", version=3)
    written = len(world.log)
    assert world.enter("a", "t").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(world.group, ClassicGroup)
    assert len(world.log) == written
    assert world.enter(joined.member_id, "t").error_code == ErrorCode.NONE, "its own place"


@pytest.mark.parametrize(("size_max", "kind"), [(1, ConsumerGroup), (2, ClassicGroup)])
def test_a_classic_group_has_no_more_members_than_it_may(size_max: int, kind: type) -> None:
    world = ShardWorld(
        replace(AT_ONCE, consumer_migration_policy="bidirectional", size_max=size_max)
    )
    world.topics(t=4)
    world.enter("a", "t")
    for name in ("y", "z"):
        assert world.join(name, "t", version=3).error_code == ErrorCode.NONE
    world.beat("a", -1)
    assert type(world.group) is kind


def test_an_id_that_was_given_out_is_void_in_the_other_kind_of_group() -> None:
    world = ShardWorld()
    world.topics(t=1)
    world.join("", "t")
    assert {key[0] for _, key in world.timers} == {"session"}
    world.enter("a", "t")
    assert {key for _, key in world.timers} == {("session", "a")}
