"""The topics in which groups and transactions keep their state: made on first use, and grown.

A small cluster makes them with fewer replicas than it is configured to. As soon as there are more
brokers, each partition is given what it lacks, some at a time: see `InternalTopicControl`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.controller.api import (
    AlterConfigs,
    AlterOp,
    AlterReassignments,
    ConfigAlteration,
    ConfigOp,
    NewTopic,
    ReassignPartition,
)
from raylog.actors.controller.reassignments import ReassignmentControl
from raylog.actors.metadata.image import MetadataImage, PartitionState, Topic
from raylog.actors.metadata.records import Record
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

GROWN_AT_ONCE = 10
"""Partitions that are given more replicas in one step; the next one waits until they are there."""
GROWN_AGAIN_MS = 3_600_000
"""For as long a partition is left alone after it was: somebody may have called it off."""
_PREFIXES = {OFFSETS_TOPIC: "offsets.topic", TRANSACTIONS_TOPIC: "transaction.state.log"}
_FACTOR = ".replication.factor"
_MIN_ISR = "min.insync.replicas"
_GROWS = "raylog.replicas.auto.grow"


def internal_topic(name: str, settings: BrokerSettings, brokers: int) -> NewTopic:
    """What to ask the controller for, in a cluster that was declared with so many brokers.

    Kafka refuses to make a topic whose replication factor it cannot reach; here it is at most the
    number of brokers, so that small clusters work with Kafka's defaults.
    """
    if name == OFFSETS_TOPIC:
        return _topic(name, settings, "offsets.topic", brokers, {"compression.type": "producer"})
    assert name == TRANSACTIONS_TOPIC, f"{name} is no internal topic"
    replicas = _replicas(settings, "transaction.state.log", brokers)
    in_sync = _min_isr(settings, replicas)
    configs: dict[str, str | None] = {
        "compression.type": "uncompressed",
        _MIN_ISR: str(in_sync),
        "unclean.leader.election.enable": "false",
    }
    return _topic(name, settings, "transaction.state.log", brokers, configs)


def _topic(
    name: str,
    settings: BrokerSettings,
    prefix: str,
    brokers: int,
    configs: dict[str, str | None],
) -> NewTopic:
    return NewTopic(
        name,
        settings.number(f"{prefix}.num.partitions"),
        _replicas(settings, prefix, brokers),
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": settings.raw(f"{prefix}.segment.bytes"),
            **configs,
        },
    )


def _replicas(settings: BrokerSettings, prefix: str, brokers: int) -> int:
    return min(settings.number(f"{prefix}{_FACTOR}"), brokers)


def _min_isr(settings: BrokerSettings, replicas: int) -> int:
    return min(settings.number("transaction.state.log.min.isr"), replicas)


class InternalTopicControl:
    """Gives the internal topics their configured replication factor when there are brokers for it.

    | a partition                      | is                                                   |
    |----------------------------------|------------------------------------------------------|
    | has fewer replicas than wanted   | given more, with GROWN_AT_ONCE others, while none of |
    |                                  | these topics is on its way to brokers that live      |
    | was to have as many within the   | left alone: somebody has called it off               |
    | last hour                        |                                                      |
    | has as many as wanted, or more   | left alone: nothing is ever taken away               |
    | is of a topic whose replicas     | left alone: raylog.replicas.auto.grow is false then, |
    | somebody has made fewer          | until it is set to true                              |

    Wanted are as many as configured, or as there are settled brokers if these are fewer. Once all
    partitions of the transactions' topic have enough in sync its min.insync.replicas follows.
    """

    def __init__(
        self, image: MetadataImage, settings: BrokerSettings, reassignments: ReassignmentControl
    ) -> None:
        self._image = image
        self._settings = settings
        self._reassignments = reassignments
        self._grown: dict[tuple[str, int], tuple[int, int]] = {}
        """Partition to when it was given replicas last, and how many it was to have."""
        self._looked_at: tuple[int, frozenset[int]] | None = None
        """The metadata's end and the brokers at the last look, if there was nothing to do."""

    def may_grow(self, settled: Collection[int]) -> bool:
        """Whether anything has changed since there was nothing to do."""
        return (self._image.offset, frozenset(settled)) != self._looked_at

    def rest(self, settled: Collection[int]) -> None:
        """There is nothing to do."""
        self._looked_at = (self._image.offset, frozenset(settled))

    def grow(self, now_ms: int, settled: Collection[int]) -> list[Record]:
        """The next step; nothing while one is under way."""
        topics = [topic for topic in self._topics() if self._grows(topic)]
        if any(self._is_growing(state) for topic in topics for state in topic.partitions):
            return []
        moves = [move for topic in topics for move in self._moves(topic, settled, now_ms)]
        asked = AlterReassignments(moves[:GROWN_AT_ONCE])
        for one in asked.partitions:
            assert one.replicas is not None, "it is given some"
            self._grown[one.name, one.partition] = (now_ms, len(one.replicas))
        return self._reassignments.alter(asked).records

    def fewer(self, asked: AlterReassignments) -> AlterConfigs:
        """What follows where somebody gives partitions fewer replicas than are configured.

        He may want a broker to be empty: no controller is to give it the replicas back.
        """
        topics = {topic.name: topic for topic in self._topics() if self._grows(topic)}
        shrunk = {
            one.name
            for one in asked.partitions
            if one.replicas is not None
            and one.name in topics
            and len(one.replicas) < len(topics[one.name].partitions[one.partition].replicas)
            and len(one.replicas) < self._settings.number(f"{_PREFIXES[one.name]}{_FACTOR}")
        }
        ops = [ConfigOp(_GROWS, AlterOp.SET, "false")]
        return AlterConfigs(
            [ConfigAlteration(ResourceType.TOPIC, name, ops) for name in sorted(shrunk)]
        )

    def _topics(self) -> list[Topic]:
        return [topic for name in _PREFIXES if (topic := self._image.topic(name)) is not None]

    def _grows(self, topic: Topic) -> bool:
        return self._image.configs_of(ResourceType.TOPIC, topic.name).get(_GROWS) != "false"

    def _is_growing(self, state: PartitionState) -> bool:
        """Whether it will come to an end by itself."""
        adding = [self._image.brokers.get(one) for one in state.adding_replicas]
        return bool(adding) and all(one is not None and one.is_live for one in adding)

    def _moves(
        self, topic: Topic, settled: Collection[int], now_ms: int
    ) -> Iterator[ReassignPartition]:
        wanted = _replicas(self._settings, _PREFIXES[topic.name], len(settled))
        held = Counter(one for state in topic.partitions for one in state.replicas)
        for index, state in enumerate(topic.partitions):
            grown_ms, size = self._grown.get((topic.name, index), (0, 0))
            rests = size >= wanted and now_ms - grown_ms < GROWN_AGAIN_MS
            if len(state.replicas) >= wanted or state.is_reassigned or rests:
                continue
            free = sorted({*settled} - {*state.replicas}, key=lambda one: (held[one], one))
            added = free[: wanted - len(state.replicas)]
            held.update(added)
            target = sorted((*state.replicas, *added))
            first = index % len(target)
            yield ReassignPartition(topic.name, index, (*target[first:], *target[:first]))

    def min_isr(self) -> AlterConfigs | None:
        """The transactions' topic's min.insync.replicas, if it can be what is configured by now."""
        topic = self._image.topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        now = self._image.configs_of(ResourceType.TOPIC, topic.name).get(_MIN_ISR)
        wanted = _min_isr(self._settings, min(len(one.replicas) for one in topic.partitions))
        in_sync = min(len(one.isr) for one in topic.partitions)
        if now is None or int(now) >= wanted or in_sync < wanted:
            return None
        ops = [ConfigOp(_MIN_ISR, AlterOp.SET, str(wanted))]
        return AlterConfigs([ConfigAlteration(ResourceType.TOPIC, topic.name, ops)])
