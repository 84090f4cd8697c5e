"""The topics in which coordinators keep their state: created on first use, extended later.

A small cluster creates them with fewer replicas than configured. As brokers join, partitions get
the missing replicas, a few at a time: see `InternalTopicControl`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.config.keys import INT_MAX
from raylog.actors.controller.messages import (
    AlterConfigs,
    AlterOp,
    AlterReassignments,
    ConfigAlteration,
    ConfigOp,
    NewTopic,
    ReassignPartition,
)
from raylog.actors.controller.rules.reassignments import ReassignmentControl
from raylog.actors.coordinator_kinds import KIND_OF_TOPIC
from raylog.actors.metadata.image import MetadataImage, PartitionState, Topic
from raylog.actors.metadata.records import Record

GROWN_AT_ONCE = 10
"""Partitions that get replicas in one step; the next step waits until they are in sync."""
GROWN_AGAIN_MS = 3_600_000
"""A partition that got replicas is left alone for this long, as an operator may have cancelled
it."""
_MIN_ISR = "min.insync.replicas"
_GROWS = "raylog.replicas.auto.grow"


def internal_topic(name: str, settings: BrokerSettings, brokers: int) -> NewTopic:
    """Describe how to create an internal topic in a cluster with this number of brokers.

    Kafka refuses a replication factor above the number of brokers. Here it is lowered to that
    number, so that small clusters work with Kafka's defaults.
    """
    assert name in KIND_OF_TOPIC, f"{name} is no internal topic"
    kind = KIND_OF_TOPIC[name]
    replicas = _replicas(settings, name, brokers)
    configs: dict[str, str | None] = {
        "cleanup.policy": "compact",
        "segment.bytes": settings.raw(f"{kind.settings}.segment.bytes"),
        **kind.topic_configs,
    }
    if kind.has_min_isr:
        configs[_MIN_ISR] = str(_min_isr(settings, name, replicas))
    count = settings.number(f"{kind.settings}.num.partitions")
    return NewTopic(name, count, replicas, configs=configs)


def _replicas(settings: BrokerSettings, name: str, brokers: int) -> int:
    return min(settings.number(f"{KIND_OF_TOPIC[name].settings}.replication.factor"), brokers)


def _min_isr(settings: BrokerSettings, name: str, replicas: int) -> int:
    return min(settings.number(f"{KIND_OF_TOPIC[name].settings}.min.isr"), replicas)


class InternalTopicControl:
    """Raises internal topics to their configured replication factor once there are enough brokers.

    | a partition that                 | is                                                   |
    |----------------------------------|------------------------------------------------------|
    | has fewer replicas than wanted   | given more, up to GROWN_AT_ONCE at a time, if no     |
    |                                  | partition of these topics is moving to live brokers  |
    | got that many within the last    | left alone: an operator has cancelled it             |
    | hour                             |                                                      |
    | has as many as wanted, or more   | left alone: no replica is ever removed               |
    | belongs to a topic whose         | left alone: raylog.replicas.auto.grow is false then, |
    | replicas an operator has reduced | until it is set to true                              |

    Wanted is the configured number, or the number of settled brokers if that is smaller. Once all
    partitions of a topic have enough replicas in sync, its min.insync.replicas is raised as well.
    """

    def __init__(
        self, image: MetadataImage, settings: BrokerSettings, reassignments: ReassignmentControl
    ) -> None:
        self._image = image
        self._settings = settings
        self._reassignments = reassignments
        self._grown: dict[tuple[str, int], tuple[int, int]] = {}
        """Partition to the time when it last got replicas, and to its number of replicas then."""
        self._looked_at: tuple[int, frozenset[int]] | None = None
        """The metadata offset and the brokers of the last check, if there was nothing to do."""

    def may_grow(self, settled: Collection[int]) -> bool:
        """Whether anything has changed since the last check that found nothing to do."""
        return (self._image.offset, frozenset(settled)) != self._looked_at

    def mark_checked(self, settled: Collection[int]) -> None:
        """Record that there is nothing to do."""
        self._looked_at = (self._image.offset, frozenset(settled))

    def grow(self, now_ms: int, settled: Collection[int]) -> list[Record]:
        """Return the records of the next step; none while a step is in progress."""
        topics = [topic for topic in self._topics() if self._grows(topic)]
        if any(self._is_growing(state) for topic in topics for state in topic.partitions):
            return []
        moves = [move for topic in topics for move in self._moves(topic, settled, now_ms)]
        request = AlterReassignments(moves[:GROWN_AT_ONCE])
        for one in request.partitions:
            assert one.replicas is not None, "it is given some"
            self._grown[one.name, one.partition] = (now_ms, len(one.replicas))
        return self._reassignments.alter(request).records

    def disable_growth_of_shrunk_topics(self, request: AlterReassignments) -> AlterConfigs:
        """Disable growth of topics to which an operator gives fewer replicas than configured.

        The operator may be emptying a broker, so no controller may give it the replicas back.
        """
        topics = {topic.name: topic for topic in self._topics() if self._grows(topic)}
        shrunk = {
            one.name
            for one in request.partitions
            if one.replicas is not None
            and one.name in topics
            and len(one.replicas) < len(topics[one.name].partitions[one.partition].replicas)
            and len(one.replicas) < _replicas(self._settings, one.name, INT_MAX)
        }
        ops = [ConfigOp(_GROWS, AlterOp.SET, "false")]
        return AlterConfigs(
            [ConfigAlteration(ResourceType.TOPIC, name, ops) for name in sorted(shrunk)]
        )

    def _topics(self) -> list[Topic]:
        return [topic for name in KIND_OF_TOPIC if (topic := self._image.topic(name)) is not None]

    def _grows(self, topic: Topic) -> bool:
        return self._image.configs_of(ResourceType.TOPIC, topic.name).get(_GROWS) != "false"

    def _is_growing(self, state: PartitionState) -> bool:
        """Whether the move will finish without intervention."""
        adding = [self._image.brokers.get(one) for one in state.adding_replicas]
        return bool(adding) and all(one is not None and one.is_live for one in adding)

    def _moves(
        self, topic: Topic, settled: Collection[int], now_ms: int
    ) -> Iterator[ReassignPartition]:
        wanted = _replicas(self._settings, topic.name, len(settled))
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
        """Raise min.insync.replicas to the configured value where enough replicas are in sync."""
        alterations = []
        for topic in self._topics():
            if not KIND_OF_TOPIC[topic.name].has_min_isr:
                continue
            now = self._image.configs_of(ResourceType.TOPIC, topic.name).get(_MIN_ISR)
            held = min(len(one.replicas) for one in topic.partitions)
            wanted = _min_isr(self._settings, topic.name, held)
            in_sync = min(len(one.isr) for one in topic.partitions)
            if now is not None and int(now) < wanted <= in_sync:
                ops = [ConfigOp(_MIN_ISR, AlterOp.SET, str(wanted))]
                alterations.append(ConfigAlteration(ResourceType.TOPIC, topic.name, ops))
        return AlterConfigs(alterations) if alterations else None
