"""A controller's machine with brokers, for tests of single concerns."""

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.config import BrokerSettings
from raylog.actors.controller.messages import (
    BrokerHeartbeat,
    CreateTopics,
    NewTopic,
    RegisterBroker,
)
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.index import PartitionIndex, Why
from raylog.actors.controller.rules.machine import ControllerMachine
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import NO_LEADER, Record

R = TypeVar("R")
CLUSTER = "cluster"


def assert_finds_all(index: PartitionIndex, image: MetadataImage) -> None:
    """Assert that the index finds what a scan of the whole image finds."""
    walked: dict[tuple[Why, int], dict[PartitionKey, PartitionState]] = {}
    for topic in image.topics.values():
        for number, state in enumerate(topic.partitions):
            for place in reasons(state):
                walked.setdefault(place, {})[topic.topic_id, number] = state
    places = {(why, broker_id) for why in Why for broker_id in index.brokers(why)}
    assert places == set(walked)
    for place, expected in walked.items():
        assert dict(index.find(*place)) == expected, place


def reasons(state: PartitionState) -> Iterator[tuple[Why, int]]:
    """Yield the reasons for which a partition must be in the index, each with a broker id."""
    waits = state.leader == NO_LEADER
    for broker_id in state.replicas:
        if broker_id in state.isr:
            yield (Why.ALONE if waits and state.isr == (broker_id,) else Why.IN_SYNC), broker_id
        if broker_id in state.elr:
            yield Why.ELIGIBLE, broker_id
        if waits:
            yield Why.WAITING, broker_id
    if state.leader != state.replicas[0]:
        yield Why.DISPLACED, state.replicas[0]
    if waits or state.elr or state.last_known_elr:
        yield Why.UNSETTLED, -1


class Controlled:
    """A machine whose decisions are replayed, as its shell does."""

    def __init__(self, brokers: int = 1, settings: dict[str, str] | None = None) -> None:
        self.machine = ControllerMachine(CLUSTER, BrokerSettings(settings or {}), random.Random(1))
        self.image = self.machine.image
        self.now_ms = 1_000
        self.epochs: dict[int, int] = {}
        self.machine.replay(self.machine.took_over(1, ((0, "d0"),), self.now_ms))
        for broker_id in range(brokers):
            self.register(broker_id)
            self.beat(broker_id)

    def carry(self, decision: Decision[R]) -> R:
        """Replay the records of a decision that has one step; return its response."""
        assert not decision.more
        self.machine.replay(decision.records)
        return decision.response

    def carry_all(self, decide: Callable[[], Decision[R]]) -> R:
        """Replay a decision's records step by step; return its response."""
        while (decision := decide()).more:
            self.machine.replay(decision.records)
        return self.carry(decision)

    def registration(self, broker_id: int, **changes: object) -> RegisterBroker:
        values: dict[str, object] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER,
            "directory_id": f"d{broker_id}",
            "incarnation": f"i{broker_id}",
            "host": "h",
            "port": 9092 + broker_id,
            **changes,
        }
        return RegisterBroker(**values)  # type: ignore[arg-type]  # as the dataclass checks

    def register(self, broker_id: int, **changes: object) -> int:
        asked = self.registration(broker_id, **changes)
        epoch = self.carry_all(lambda: self.machine.brokers.register(asked, self.now_ms))
        self.epochs[broker_id] = epoch
        return epoch

    def heartbeat(self, broker_id: int, *, offset: int = 1 << 40, leave: bool = False) -> object:
        asked = BrokerHeartbeat(broker_id, self.epochs[broker_id], offset, leave)
        return self.machine.brokers.heartbeat(asked, self.now_ms)

    def beat(self, broker_id: int) -> None:
        asked = BrokerHeartbeat(broker_id, self.epochs[broker_id], 1 << 40)
        self.carry(self.machine.brokers.heartbeat(asked, self.now_ms))

    def topic(
        self,
        name: str,
        *replicas: tuple[int, ...],
        configs: dict[str, str | None] | None = None,
    ) -> TopicId:
        """Create a topic whose partitions have these replicas."""
        asked = NewTopic(name, assignments=dict(enumerate(replicas)), configs=configs or {})
        (outcome,) = self.carry(self.machine.topics.create(CreateTopics([asked])))
        assert outcome.error == 0, outcome.message
        return outcome.topic_id

    def state(self, topic_id: TopicId, index: int = 0) -> PartitionState:
        """Return the current state of a partition."""
        return self.image.topics[topic_id].partitions[index]

    def standing(
        self, topic_id: TopicId, index: int = 0
    ) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Return a partition's leader, ISR and eligible leader replicas."""
        state = self.state(topic_id, index)
        return state.leader, state.isr, state.elr

    def pass_time(self, elapsed_ms: int, *alive: int) -> None:
        """Let time pass; only the brokers `alive` send heartbeats."""
        end_ms = self.now_ms + elapsed_ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + 1_000)
            for broker_id in alive:
                self.beat(broker_id)
            if self.now_ms < end_ms:
                self.expire()

    def expire(self) -> list[Record]:
        """Expire sessions; replay and return the records of that."""
        decision = self.machine.brokers.expire(self.now_ms)
        self.carry(decision)
        return decision.records


def silence(world: Controlled, *alive: int) -> None:
    """Fence all brokers except `alive`."""
    world.pass_time(6_001, *alive)
    while world.expire():
        pass
