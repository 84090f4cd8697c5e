"""How the internal topics are created, and how they grow with the cluster."""

from collections import Counter

import pytest

from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.controller.messages import (
    AlterReassignments,
    CreateTopics,
    NewTopic,
    ReassignPartition,
)
from raylog.actors.controller.rules.internal_topics import (
    GROWN_AGAIN_MS,
    GROWN_AT_ONCE,
    InternalTopicControl,
    internal_topic,
)
from raylog.actors.metadata.image import PartitionState
from raylog.actors.metadata.records import ConfigChanged, PartitionChanged, Record
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.worlds.controller.machine import Controlled


def test_the_offsets_topic_is_kafkas() -> None:
    assert internal_topic(OFFSETS_TOPIC, BrokerSettings(), 5) == NewTopic(
        OFFSETS_TOPIC,
        50,
        3,
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": "104857600",
            "compression.type": "producer",
        },
    )


def test_the_transactions_topic_is_kafkas() -> None:
    settings = BrokerSettings({"transaction.state.log.num.partitions": "7"})
    assert internal_topic(TRANSACTIONS_TOPIC, settings, 3) == NewTopic(
        TRANSACTIONS_TOPIC,
        7,
        3,
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": "104857600",
            "compression.type": "uncompressed",
            "min.insync.replicas": "2",
            "unclean.leader.election.enable": "false",
        },
    )


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_one_broker_is_enough(name: str) -> None:
    asked = internal_topic(name, BrokerSettings(), 1)
    assert asked.replication_factor == 1
    assert asked.configs.get("min.insync.replicas", "1") == "1"
    (outcome,) = Controlled().machine.topics.create(CreateTopics([asked])).response
    assert (outcome.error, outcome.message) == (0, None)


def test_no_other_topic_is_internal() -> None:
    with pytest.raises(AssertionError, match="t is no internal topic"):
        internal_topic("t", BrokerSettings(), 1)


# ---- growing ---------------------------------------------------------------------------------


class Growing(Controlled):
    """Brokers that join a cluster with an internal topic of one replica."""

    def __init__(self, name: str = OFFSETS_TOPIC, partitions: int = 25, **settings: str) -> None:
        count = f"{'offsets.topic' if name == OFFSETS_TOPIC else 'transaction.state.log'}"
        given = {key.replace("_", "."): value for key, value in settings.items()}
        super().__init__(1, {f"{count}.num.partitions": str(partitions), **given})
        asked = internal_topic(name, BrokerSettings(given), 1)
        asked = asked._replace(num_partitions=partitions)
        self.carry(self.machine.topics.create(CreateTopics([asked])))
        self.name = name

    def join(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.register(broker_id)
            self.beat(broker_id)

    def grow(self, *alive: int, seconds: int = 10) -> list[Record]:
        """What is begun within a time in which these brokers live; replayed."""
        begun = []
        for _ in range(2 * seconds):
            self.pass_time(500, *alive)
            settled = self.machine.brokers.settled(self.now_ms)
            records = self.machine.grow_internal_topics(self.now_ms, settled)
            self.machine.replay(records)
            begun += records
        return begun

    def states(self) -> list[PartitionState]:
        topic = self.image.topic(self.name)
        assert topic is not None
        return topic.partitions

    def copied(self) -> None:
        """All replicas that are being added are in sync."""
        topic = self.image.topic(self.name)
        assert topic is not None
        for index, state in enumerate(topic.partitions):
            if state.is_reassigned:
                change = self.machine.partitions.change(
                    (topic.topic_id, index),
                    state,
                    self.machine.partitions.rules().of(topic.topic_id),
                )
                change.isr = state.replicas
                record = change.record()
                assert record is not None
                self.machine.replay([record])

    def factors(self) -> list[int]:
        return [len(state.replicas) for state in self.states()]


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_internal_topics_get_their_replicas_when_there_are_brokers_for_it(name: str) -> None:
    world = Growing(name)
    assert world.grow(0) == []
    world.join(1, 2)
    for step in (GROWN_AT_ONCE, GROWN_AT_ONCE, 5):
        begun = world.grow(0, 1, 2)
        assert len(begun) == step
        assert world.grow(0, 1, 2) == []  # until these have what they were given
        world.copied()
    assert world.factors() == [3] * 25
    assert all(len(state.isr) == 3 and not state.is_reassigned for state in world.states())
    first = Counter(state.replicas[0] for state in world.states())
    assert sorted(first.values()) == [8, 8, 9]  # who leads is spread, too
    assert all(isinstance(one, ConfigChanged) for one in world.grow(0, 1, 2))
    assert world.grow(0, 1, 2, seconds=60) == []


def test_two_brokers_are_better_than_one_and_three_than_two() -> None:
    world = Growing(partitions=3)
    world.join(1)
    world.grow(0, 1)
    world.copied()
    assert world.factors() == [2, 2, 2]
    world.join(2)
    world.grow(0, 1, 2)
    world.copied()
    assert world.factors() == [3, 3, 3]
    world.join(3)
    assert world.grow(0, 1, 2, 3, seconds=60) == []


def test_replicas_go_to_the_brokers_that_have_the_fewest() -> None:
    world = Growing(partitions=20)
    world.join(1, 2, 3, 4)
    for _ in range(2):
        world.grow(0, 1, 2, 3, 4)
        world.copied()
    held = Counter(one for state in world.states() for one in state.replicas)
    assert held == {0: 20, 1: 10, 2: 10, 3: 10, 4: 10}


@pytest.mark.parametrize(("wanted", "factor"), [("1", 1), ("2", 2), ("3", 3)])
def test_as_many_as_are_configured_and_no_more(wanted: str, factor: int) -> None:
    world = Growing(partitions=2, offsets_topic_replication_factor=wanted)
    world.join(1, 2, 3)
    world.grow(0, 1, 2, 3)
    world.copied()
    assert world.factors() == [factor] * 2


def test_a_broker_that_comes_and_goes_is_given_nothing() -> None:
    world = Growing()
    for _ in range(5):
        world.join(1)
        assert world.grow(0, 1, seconds=4) == []
        assert not [one for one in world.grow(0, seconds=8) if isinstance(one, PartitionChanged)]
        world.expire()
    world.join(1)
    assert len(world.grow(0, 1)) == GROWN_AT_ONCE


def test_broker_lost_during_growth_does_not_block_other_brokers() -> None:
    world = Growing(partitions=12)
    world.join(1, 2)
    assert len(world.grow(0, 1, 2)) == GROWN_AT_ONCE
    world.pass_time(10_000, 0, 1)
    assert len(world.grow(0, 1)) == 2
    assert all(state.adding_replicas for state in world.states())


def test_cancelled_growth_is_not_repeated_for_a_while() -> None:
    world = Growing(partitions=1)
    world.join(1, 2)
    world.grow(0, 1, 2)
    cancel = AlterReassignments([ReassignPartition(OFFSETS_TOPIC, 0, None)])
    world.carry(world.machine.reassignments.alter(cancel))
    assert world.factors() == [1]
    assert world.grow(0, 1, 2, seconds=60) == []
    world.pass_time(GROWN_AGAIN_MS, 0, 1, 2)
    world.carry(world.machine.topics.create(CreateTopics([NewTopic("news", 1, 1)])))
    assert len(world.grow(0, 1, 2)) == 1


def test_nothing_is_taken_away_and_no_other_topic_is_touched() -> None:
    world = Growing(partitions=2, offsets_topic_replication_factor="1")
    world.topic("t", (0,))
    world.join(1, 2)
    asked = AlterReassignments([ReassignPartition(OFFSETS_TOPIC, 0, (0, 1, 2))])
    world.carry(world.machine.reassignments.alter(asked))
    world.copied()
    assert world.grow(0, 1, 2, seconds=60) == []
    assert world.factors() == [3, 1]


def test_the_transactions_topic_asks_for_more_in_sync_when_it_has_them() -> None:
    world = Growing(TRANSACTIONS_TOPIC, partitions=2)

    def min_isr() -> str:
        return world.image.configs_of(ResourceType.TOPIC, TRANSACTIONS_TOPIC)["min.insync.replicas"]

    world.join(1, 2)
    world.grow(0, 1, 2)
    assert min_isr() == "1"
    world.copied()
    assert [one.value for one in world.grow(0, 1, 2) if isinstance(one, ConfigChanged)] == ["2"]
    assert min_isr() == "2"
    lower = ConfigChanged(ResourceType.TOPIC, TRANSACTIONS_TOPIC, "min.insync.replicas", "1")
    world.machine.replay([lower])
    world.pass_time(10_000, 0)  # in an emergency, which two brokers' loss is
    assert not [one for one in world.grow(0) if isinstance(one, ConfigChanged)]
    assert min_isr() == "1"


def test_nothing_is_looked_at_while_nothing_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Growing(partitions=2, offsets_topic_replication_factor="1")
    world.grow(0)
    monkeypatch.setattr(InternalTopicControl, "grow", None)
    assert world.grow(0, seconds=60) == []


def test_replicas_that_somebody_has_taken_away_stay_away() -> None:
    """A broker is to be emptied; another controller knows of it, too."""
    world = Growing(partitions=3)
    world.join(1, 2)
    world.grow(0, 1, 2)
    world.copied()
    assert world.factors() == [3, 3, 3]
    moves = [ReassignPartition(OFFSETS_TOPIC, index, (0, 1)) for index in range(2)]
    unknown = ReassignPartition(OFFSETS_TOPIC, 9, (0, 1))
    world.carry(world.machine.alter_reassignments(AlterReassignments([unknown, *moves])))
    configs = world.image.configs_of(ResourceType.TOPIC, OFFSETS_TOPIC)
    assert configs["raylog.replicas.auto.grow"] == "false"
    successor = InternalTopicControl(world.image, BrokerSettings({}), world.machine.reassignments)
    assert successor.grow(world.now_ms, {0, 1, 2}) == []
    assert world.factors() == [2, 2, 3]
    world.machine.replay(
        [ConfigChanged(ResourceType.TOPIC, OFFSETS_TOPIC, "raylog.replicas.auto.grow", "true")]
    )
    assert successor.grow(world.now_ms, {0, 1, 2})


def test_a_reassignment_that_keeps_the_number_changes_no_setting() -> None:
    world = Growing(partitions=1)
    world.join(1, 2, 3)
    world.grow(0, 1, 2, 3)
    world.copied()
    moved = [ReassignPartition(OFFSETS_TOPIC, 0, (0, 1, 3))]
    world.carry(world.machine.alter_reassignments(AlterReassignments(moved)))
    configs = world.image.configs_of(ResourceType.TOPIC, OFFSETS_TOPIC)
    assert "raylog.replicas.auto.grow" not in configs
