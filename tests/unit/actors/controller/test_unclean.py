"""Unclean elections that settings allow: in any spelling, and at once (KIP-183, KIP-226)."""

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.config import ResourceType
from raylog.actors.controller.messages import AlterConfigs, AlterOp, ConfigAlteration, ConfigOp
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.unclean import unclean_elections
from raylog.actors.metadata.records import NO_LEADER, ConfigChanged, PartitionChanged, Record
from tests.worlds.controller.machine import Controlled, silence

UNCLEAN = "unclean.leader.election.enable"
CLUSTER_WIDE = ResourceType.BROKER, ""


def leaderless(own: str | None = None) -> tuple[Controlled, TopicId]:
    """A partition of which nobody in sync lives, and one out of sync does."""
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1), configs={} if own is None else {UNCLEAN: own})
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,), incarnations={0: "a"})], None))
    silence(world, 1)
    assert world.image.topics[topic_id].partitions[0].leader == NO_LEADER
    return world, topic_id


def altered(
    world: Controlled, resource: tuple[int, str], key: str, value: str | None
) -> list[Record]:
    """What the controller writes when a setting is set, or with None removed."""
    op = ConfigOp(key, AlterOp.DELETE if value is None else AlterOp.SET, value)
    decision = world.machine.alter_configs(AlterConfigs([ConfigAlteration(*resource, [op])]))
    assert [one.error for one in decision.response] == [0]
    world.carry(decision)
    return decision.records


@pytest.mark.parametrize("spelling", ["true", "TRUE", " true ", "tRuE\n"])
@pytest.mark.parametrize("resource", [(ResourceType.TOPIC, "t"), CLUSTER_WIDE])
def test_allowing_unclean_elections_elects_at_once(
    resource: tuple[int, str], spelling: str
) -> None:
    world, topic_id = leaderless()
    assert altered(world, resource, UNCLEAN, spelling) == [
        ConfigChanged(*resource, UNCLEAN, "true"),
        PartitionChanged(topic_id, 0, leader=1, isr=(1,), elr=(), last_known_elr=()),
    ]


def test_a_topic_that_forbids_unclean_elections_is_not_led_by_a_cluster_that_allows_them() -> None:
    world, topic_id = leaderless(own=" FALSE")
    assert len(altered(world, CLUSTER_WIDE, UNCLEAN, "true")) == 1
    assert world.state(topic_id).leader == NO_LEADER
    altered(world, (ResourceType.TOPIC, "t"), UNCLEAN, None)
    assert world.state(topic_id).leader == 1


def test_allowing_unclean_elections_leaves_leaders_and_dead_brokers_alone() -> None:
    world = Controlled(brokers=2)
    world.topic("t", (0, 1))
    assert len(altered(world, CLUSTER_WIDE, UNCLEAN, "TRUE")) == 1
    world, topic_id = leaderless()
    silence(world)
    assert len(altered(world, CLUSTER_WIDE, UNCLEAN, "TRUE")) == 1
    world.beat(1)
    assert world.image.topics[topic_id].partitions[0].leader == 1


def test_another_spelling_in_the_metadata_log_counts_when_a_controller_takes_over() -> None:
    world, topic_id = leaderless()
    older = ConfigChanged(ResourceType.TOPIC, "t", UNCLEAN, " TRUE ")
    world.carry(Decision([older], None))
    assert world.image.configs_of(ResourceType.TOPIC, "t") == {UNCLEAN: "true"}
    ((elected,),) = world.machine.settle()
    assert isinstance(elected, PartitionChanged)
    assert (elected.topic_id, elected.leader, elected.isr) == (topic_id, 1, (1,))


def test_a_start_up_setting_counts_in_any_spelling() -> None:
    world = Controlled(brokers=2, settings={UNCLEAN: "True "})
    topic_id = world.topic("t", (0, 1))
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,))], None))
    silence(world, 1)
    assert world.image.topics[topic_id].partitions[0].leader == 1


def test_a_cluster_wide_bar_that_is_removed_ends_eligibility() -> None:
    world = Controlled(brokers=3, settings={"min.insync.replicas": "1"})
    topic_id = world.topic("t", (0, 1, 2))
    altered(world, CLUSTER_WIDE, "min.insync.replicas", "2")
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,), elr=(1,))], None))
    removed = altered(world, CLUSTER_WIDE, "min.insync.replicas", None)
    assert removed[1:] == [PartitionChanged(topic_id, 0, elr=())]


def test_a_leader_replaced_uncleanly_is_said_so() -> None:
    world = Controlled(brokers=4)
    topic_id = world.topic("t", (0, 1, 2), (0, 1, 2))
    world.carry(Decision([PartitionChanged(topic_id, 0, isr=(0,))], None))
    unclean = PartitionChanged(topic_id, 0, leader=1, isr=(1,))
    clean = PartitionChanged(topic_id, 1, leader=1, isr=(1, 2))
    gone = PartitionChanged(topic_id, 1, leader=NO_LEADER)
    assert list(unclean_elections(world.image, [clean, gone, unclean])) == [
        "broker 1 leads t-0 and was not in sync: records that only (0,) had are lost"
    ]
    moved = PartitionChanged(
        topic_id, 0, replicas=(3, 0), adding_replicas=(3,), removing_replicas=(0,)
    )
    world.carry(Decision([moved], None))
    done = PartitionChanged(
        topic_id,
        0,
        leader=3,
        isr=(3,),
        replicas=(3,),
        adding_replicas=(),
        removing_replicas=(),
    )
    assert list(unclean_elections(world.image, [done])) == [], "in sync, so the move has ended"
    fewer = PartitionChanged(topic_id, 1, isr=(0, 2), removing_replicas=(0,))
    world.carry(Decision([fewer], None))
    ended = PartitionChanged(
        topic_id, 1, leader=1, isr=(2, 1), replicas=(1, 2), removing_replicas=()
    )
    assert list(unclean_elections(world.image, [ended])) == [], "1 has joined the ISR with it"
