"""A shard as a whole: groups of both kinds, listed, described, deleted, reloaded."""

import pytest

from raylog.actors.config import BrokerSettings, settings_of
from raylog.actors.coordination.rules.step import LogRecord
from raylog.actors.group.rules.classic import ClassicGroup
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.blobs import encode_value
from raylog.wire.internal.consumer_groups import ConsumerGroupMetadataKey
from raylog.wire.internal.consumer_protocol import ConsumerProtocolSubscription
from raylog.wire.internal.transactions import TransactionLogKey
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.wire.messages.list_groups import ListGroupsRequest
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.actors.group.test_offsets import committing, deleting, fetched
from tests.worlds.group.shard import ShardWorld

CLASSIC_MEMBER = "classic-member"


@pytest.fixture
def world() -> ShardWorld:
    made = ShardWorld(GroupSettings(initial_rebalance_delay_ms=0))
    made.topics(t=3)
    return made


def joining(group: str = "classic", **changes: object) -> JoinGroupRequest:
    subscription = encode_value(ConsumerProtocolSubscription(topics=["t"]), 1)
    fields = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription)],
    }
    return JoinGroupRequest(**(fields | changes))  # type: ignore[arg-type]  # as given


def join_classic(world: ShardWorld, group: str = "classic") -> str:
    """One member joins and brings the assignment; returns its id."""
    answer = world.ask(joining(group), 3)
    assert not answer.error_code
    synced = world.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"all")],
        ),
        3,
    )
    assert synced.assignment == b"all"
    return str(answer.member_id)


def heartbeat(
    group: str = "consumer", epoch: int = 0, member: str = "m"
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=10_000 if epoch == 0 else -1,
        subscribed_topic_names=["t"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )


def listed(world: ShardWorld, **filters: list[str]) -> list[tuple[str, str, str, str]]:
    found = world.ask(ListGroupsRequest(**filters), 5)
    return sorted(
        (one.group_id, one.protocol_type, one.group_state, one.group_type) for one in found.groups
    )


def test_groups_of_every_kind_are_listed(world: ShardWorld) -> None:
    join_classic(world)
    assert not world.ask(heartbeat(), 1).error_code
    world.ask(committing({0: 1}, group="offsets"), 9)
    everything = [
        ("classic", "consumer", "Stable", "classic"),
        ("consumer", "consumer", "Stable", "consumer"),
        ("offsets", "", "Empty", "classic"),
    ]
    assert listed(world) == everything
    assert listed(world, states_filter=["EMPTY"]) == everything[2:]
    assert listed(world, types_filter=["Consumer"]) == everything[1:2]
    assert listed(world, types_filter=["none"]) == []
    world.crash()
    assert listed(world) == everything


def test_classic_groups_are_described(world: ShardWorld) -> None:
    member = join_classic(world)
    world.ask(heartbeat(), 1)
    world.ask(committing({0: 1}, group="offsets"), 9)
    names = ["classic", "consumer", "offsets", "none"]
    asked = DescribeGroupsRequest(groups=names, include_authorized_operations=True)
    found = world.ask(asked, 6).groups
    not_found = ErrorCode.GROUP_ID_NOT_FOUND
    assert [(one.group_id, one.group_state, one.error_code) for one in found] == [
        ("classic", "Stable", 0),
        ("consumer", "Dead", not_found),
        ("offsets", "Empty", 0),
        ("none", "Dead", not_found),
    ]
    assert [one.member_id for one in found[0].members] == [member]
    assert found[0].authorized_operations == 3400
    assert found[1].error_message == "Group consumer is not a classic group."
    assert found[3].error_message == "Group none not found."
    older = world.ask(DescribeGroupsRequest(groups=["none"]), 5).groups
    assert [(one.group_state, one.error_code) for one in older] == [("Dead", 0)]


def test_consumer_groups_are_described(world: ShardWorld) -> None:
    join_classic(world)
    world.ask(heartbeat(), 1)
    asked = ConsumerGroupDescribeRequest(
        group_ids=["consumer", "classic", "none", ""], include_authorized_operations=True
    )
    found = world.ask(asked, 1).groups
    not_found = ErrorCode.GROUP_ID_NOT_FOUND
    assert [(one.error_code, one.error_message) for one in found] == [
        (0, None),
        (not_found, "Group classic is not a consumer group."),
        (not_found, "Group none not found."),
        (ErrorCode.INVALID_GROUP_ID, None),
    ]
    assert [one.member_id for one in found[0].members] == ["m"]
    assert found[0].authorized_operations == 3400


def test_only_groups_without_members_are_deleted(world: ShardWorld) -> None:
    member = join_classic(world)
    world.ask(heartbeat(), 1)
    world.ask(committing({0: 1}, group="offsets"), 9)
    names = ["classic", "consumer", "offsets", "none"]

    def deleted() -> list[int]:
        found = world.ask(DeleteGroupsRequest(groups_names=names), 2)
        return [one.error_code for one in found.results]

    full, missing = ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND
    assert deleted() == [full, full, 0, missing]
    world.ask(LeaveGroupRequest(group_id="classic", member_id=member), 0)
    world.ask(heartbeat(epoch=-1), 1)
    assert deleted() == [0, 0, missing, missing]
    assert not world.shard.groups
    world.crash()
    assert listed(world) == []


def test_offsets_of_a_group_of_another_protocol_stay_while_it_has_members(
    world: ShardWorld,
) -> None:
    """Nobody knows what its members read; of consumers it is what they subscribe to."""
    world.ask(committing({0: 1}, group="connect"), 9)
    answer = world.ask(joining("connect", protocol_type="connect"), 3)
    assert not answer.error_code
    refused = world.ask(deleting(0, group="connect"), 0)
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    world.ask(LeaveGroupRequest(group_id="connect", member_id=answer.member_id), 0)
    assert not world.ask(deleting(0, group="connect"), 0).error_code


def test_a_subscribed_topics_offsets_stay(world: ShardWorld) -> None:
    member = join_classic(world)
    request = committing({0: 4}, group="classic", generation=1)
    request.member_id = member
    assert world.ask(request, 5).topics[0].partitions[0].error_code == 0
    answer = world.ask(deleting(0, group="classic"), 0)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    world.now_ms += world.settings.offsets_retention_ms * 2
    world.expire()
    assert fetched(world, "classic") == {("t", 0): 4}


def test_offsets_of_an_empty_group_are_kept_from_when_its_last_member_left() -> None:
    """facts: offsets.retention.minutes counts from then, and the group goes with the last."""
    world = ShardWorld(GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=1000))
    world.topics(t=3)
    member = join_classic(world)
    request = committing({0: 4}, group="classic", generation=1)
    request.member_id = member
    world.ask(request, 5)
    world.now_ms += 5000
    world.ask(LeaveGroupRequest(group_id="classic", member_id=member), 0)
    world.now_ms += 999
    world.expire()
    assert fetched(world, "classic") == {("t", 0): 4}
    world.now_ms += 1
    world.expire()
    assert listed(world) == []
    world.crash()
    assert listed(world) == []


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (HeartbeatRequest(group_id="none", generation_id=1, member_id="m"), 4, "UNKNOWN_MEMBER_ID"),
        (HeartbeatRequest(group_id="", generation_id=1, member_id="m"), 4, "INVALID_GROUP_ID"),
        (SyncGroupRequest(group_id="none", generation_id=1, member_id="m"), 3, "UNKNOWN_MEMBER_ID"),
        (SyncGroupRequest(group_id="", generation_id=1, member_id="m"), 3, "INVALID_GROUP_ID"),
        (LeaveGroupRequest(group_id="none", member_id="m"), 2, "UNKNOWN_MEMBER_ID"),
        (LeaveGroupRequest(group_id="", member_id="m"), 2, "INVALID_GROUP_ID"),
        (joining("none", member_id="m"), 9, "UNKNOWN_MEMBER_ID"),
        (joining(""), 9, "INVALID_GROUP_ID"),
        (joining(session_timeout_ms=1), 9, "INVALID_SESSION_TIMEOUT"),
        (heartbeat("none", epoch=4), 1, "GROUP_ID_NOT_FOUND"),
        (heartbeat("none", epoch=-1), 1, "GROUP_ID_NOT_FOUND"),
        (heartbeat(""), 1, "INVALID_REQUEST"),
    ],
)
def test_request_for_an_unknown_group_gets_an_error_and_writes_nothing(
    world: ShardWorld, request_: object, version: int, code: str
) -> None:
    answer = world.ask(request_, version)
    assert ErrorCode(answer.error_code).name == code
    assert not world.log
    assert not world.shard.groups


def test_each_member_that_leaves_no_group_is_notified(world: ShardWorld) -> None:
    members = [MemberIdentity(member_id="m"), MemberIdentity(member_id="", group_instance_id="i")]
    answer = world.ask(LeaveGroupRequest(group_id="none", members=members), 3)
    assert not answer.error_code
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in answer.members] == [
        ("m", None, unknown),
        ("", "i", unknown),
    ]


def test_a_refused_first_heartbeat_leaves_no_group_behind(world: ShardWorld) -> None:
    request = heartbeat()
    request.server_assignor = "nobody's"
    assert world.ask(request, 1).error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert not world.shard.groups


def test_an_empty_group_takes_members_of_the_other_protocol(world: ShardWorld) -> None:
    member = join_classic(world, "g")
    world.ask(LeaveGroupRequest(group_id="g", member_id=member), 0)
    assert not world.ask(heartbeat("g"), 1).error_code
    assert [one[3] for one in listed(world)] == ["consumer"]
    world.ask(heartbeat("g", epoch=-1), 1)
    join_classic(world, "g")
    assert [one[3] for one in listed(world)] == ["classic"]
    world.crash()
    assert listed(world) == [("g", "consumer", "Stable", "classic")]


def test_members_keep_their_generation_over_a_crash(world: ShardWorld) -> None:
    member = join_classic(world)
    world.crash()
    beat = HeartbeatRequest(group_id="classic", generation_id=1, member_id=member)
    assert not world.ask(beat, 4).error_code
    session = world.run(world.shard.loaded).timers
    assert [(one.group_id, one.key) for one in session] == [("classic", ("session", member))]


def test_unload_returns_the_waiting_requests(world: ShardWorld) -> None:
    world.settings = GroupSettings(initial_rebalance_delay_ms=3000)
    world.crash()
    ask = world.send(joining("new"), 3)
    assert ask.waits, "for others to join"
    assert world.shard.unload() == [ask.asked]


def test_deleted_group_forgets_its_pending_assignment(world: ShardWorld) -> None:
    gone: list[str] = []
    world.shard._assigning.forget = gone.append  # type: ignore[method-assign, assignment]  # to note it
    world.ask(heartbeat(), 1)
    world.ask(heartbeat(epoch=-1), 1)
    assert gone == []
    world.ask(DeleteGroupsRequest(groups_names=["consumer"]), 2)
    assert gone == ["consumer"]


def test_a_first_member_that_is_refused_leaves_no_group(world: ShardWorld) -> None:
    request = heartbeat()
    request.subscribed_topic_regex = "["
    refused = world.ask(request, 1)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.shard.groups == {}
    assert listed(world) == []


def test_a_join_that_a_classic_group_refuses_is_told_its_member_id(world: ShardWorld) -> None:
    """As Apache Kafka does, where a KIP-848 group does not."""
    join_classic(world)
    refused = world.ask(joining(member_id="stranger"), 5)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused.member_id == "stranger"
    assert listed(world) == [("classic", "consumer", "Stable", "classic")]


def test_records_that_concern_nobody_make_no_group(world: ShardWorld) -> None:
    for key in (ConsumerGroupMetadataKey(group_id="gone"), TransactionLogKey(transactional_id="x")):
        world.shard.replay(LogRecord(key, None)).commit()
    assert world.shard.groups == {}
    assert listed(world) == []


def test_the_defaults_of_the_group_protocol() -> None:
    """Session timeouts, retention and its check, the rebalance protocols, Kafka's defaults."""
    settings = settings_of(GroupSettings, BrokerSettings({}))
    assert settings.session_timeout_min_ms == 6_000
    assert settings.session_timeout_max_ms == 1_800_000
    assert settings.offsets_retention_ms == 10_080 * 60_000
    assert settings.offsets_retention_check_interval_ms == 600_000
    assert BrokerSettings({}).number("offsets.topic.num.partitions") == 50
    assert settings == GroupSettings()


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeout_must_lie_within_the_brokers_bounds_else_invalid_session_timeout(
    world: ShardWorld, session_ms: int
) -> None:
    answer = world.ask(joining(session_timeout_ms=session_ms), 3)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_when_the_coordinator_moves_generations_epochs_and_assignments_survive(
    world: ShardWorld,
) -> None:
    """In both protocols."""
    member = join_classic(world)
    joined = world.ask(heartbeat(), 1)
    world.crash()
    classic, consumer = world.shard.groups["classic"], world.shard.groups["consumer"]
    assert (classic.state_name(), consumer.state_name()) == ("Stable", "Stable")
    assert isinstance(classic, ClassicGroup)
    described = classic.describing().whole()
    assert [(one.member_id, one.member_assignment) for one in described.members] == [
        (member, b"all")
    ]
    again = world.ask(heartbeat(epoch=joined.member_epoch), 1)
    assert (again.error_code, again.member_epoch) == (0, joined.member_epoch)


def test_a_rebalance_costs_work_only_in_its_own_group(world: ShardWorld) -> None:
    """No herd effect: of what one group records and answers another group hears nothing."""
    join_classic(world, "one")
    other = world.shard.groups["one"]
    assert isinstance(other, ClassicGroup)
    before = other.describing().whole()
    written = len(world.log)
    join_classic(world, "two")
    assert {record.key.group for record in world.log[written:]} == {"two"}  # type: ignore[attr-defined]  # all are keys of groups
    assert other.describing().whole() == before
