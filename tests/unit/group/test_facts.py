"""The facts about the group protocol that concern a coordinator as a whole, one test each.

What one classic group decides is in `classic/test_facts.py`.
"""

from __future__ import annotations

import pytest

from raylog.actors.config import BrokerSettings
from raylog.actors.coordination.placement import group_partition
from raylog.actors.coordination.step import LogRecord
from raylog.actors.group.classic.group import ClassicGroup
from raylog.actors.group.settings import GroupSettings, group_settings
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import OFFSETS_TOPIC
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.offsets import OffsetCommitKey
from tests.support.consumer_groups import ConsumerWorld
from tests.support.shards import ShardWorld, topic_records
from tests.unit.group.test_offsets import committing, fetched
from tests.unit.group.test_shard import heartbeat, join_classic, joining

MINUTE_MS = 60_000


@pytest.fixture
def world() -> ShardWorld:
    made = ShardWorld(GroupSettings(initial_rebalance_delay_ms=0))
    made.topics(t=3)
    return made


def test_coordinator_is_leader_of_the_offsets_partition_by_the_groups_java_string_hash() -> None:
    """`abs(java_string_hash(group_id)) % offsets.topic.num.partitions`."""
    image = MetadataImage()
    image.apply_all(topic_records(OFFSETS_TOPIC, 50, leader=7))
    index, partition = group_partition(image, "console-consumer-12345")
    assert (index, partition.leader) == (158455506 % 50, 7)


def test_the_defaults_of_the_group_protocol() -> None:
    """Session timeouts, retention and its check, the rebalance protocols, Kafka's defaults."""
    settings = group_settings(BrokerSettings({}))
    assert settings.session_timeout_min_ms == 6_000
    assert settings.session_timeout_max_ms == 1_800_000
    assert settings.offsets_retention_ms == 10_080 * MINUTE_MS
    assert settings.offsets_retention_check_interval_ms == 600_000
    assert BrokerSettings({}).number("offsets.topic.num.partitions") == 50
    assert settings == GroupSettings()


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeout_must_lie_within_the_brokers_bounds_else_invalid_session_timeout(
    world: ShardWorld, session_ms: int
) -> None:
    answer = world.ask(joining(session_timeout_ms=session_ms), 3)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_rebalance_is_triggered_by_partitions_of_a_subscribed_topic_changing() -> None:
    """KIP-848: the coordinator notices."""
    world = ConsumerWorld(t=1)
    world.join("a", "t")
    world.grow_topic("t", 2)
    told = world.beat("a", 2)
    assert (told.member_epoch, world.owned(told)) == (3, {"t": [0, 1]})


def test_rebalance_is_triggered_by_the_set_of_topics_matching_a_pattern_changing() -> None:
    """KIP-848: the coordinator notices."""
    world = ConsumerWorld(logs_a=1)
    world.join("a", subscribed_topic_regex="logs_.*")
    world.world.advance(0)
    assert world.owned(world.beat("a", 1)) == {"logs_a": [0]}
    world.create_topic("logs_b", 1)
    world.beat("a", 2)  # the topics are looked at again, but not more often than once a second
    world.world.advance(1_000)
    assert world.owned(world.beat("a", 2)) == {"logs_a": [0], "logs_b": [0]}


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


def test_offsets_have_the_key_group_topic_partition_and_a_later_commit_counts(
    world: ShardWorld,
) -> None:
    world.ask(committing({0: 5}), 9)
    world.ask(committing({0: 6}), 9)
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    assert [record.key for record in world.log] == [key, key]
    assert fetched(world) == {("t", 0): 6}


def test_an_expired_offset_becomes_a_tombstone() -> None:
    world = ShardWorld(GroupSettings(offsets_retention_ms=MINUTE_MS))
    world.topics(t=3)
    world.ask(committing({0: 5}), 9)
    world.now_ms += MINUTE_MS
    world.expire()
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    assert LogRecord(key, None) in world.log
    world.crash()
    assert fetched(world) == {}


def test_offsets_of_a_deleted_topic_go_with_it(world: ShardWorld) -> None:
    world.ask(committing({0: 5}), 9)
    world.delete_topic("t")
    assert fetched(world) == {}


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


def test_one_generation_has_one_assignment() -> None:
    """No split brain: no partition has two owners, whatever order members ask in."""
    world = ConsumerWorld(t=4)
    for name in ("a", "b", "c"):
        world.join(name, "t")
    targets = world.assignments()
    given = [number for one in targets.values() for number in one.get("t", [])]
    assert sorted(given) == [0, 1, 2, 3]
