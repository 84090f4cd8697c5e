"""Creating, growing and deleting topics.

Each topic of a request succeeds or fails on its own. Messages are worded as Kafka's, since tools
show them to people.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random  # noqa: TID251 - the type; chance is handed in

from raylog.actors.config import (
    BrokerConfigs,
    BrokerSettings,
    DescribedConfig,
    ResourceType,
    canonical_all,
    check_topic,
    describe_topic,
)
from raylog.actors.controller.api import (
    NO_TOPIC,
    PARTITIONS_PER_REQUEST_MAX,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicOutcome,
)
from raylog.actors.controller.decision import Decision
from raylog.actors.controller.index import PartitionIndex, collapsed
from raylog.actors.controller.placement import check_assigned, ring_of
from raylog.actors.metadata.configs import broker_configs
from raylog.actors.metadata.image import MetadataImage, Topic
from raylog.actors.metadata.records import (
    ConfigChanged,
    PartitionCreated,
    Record,
    TopicCreated,
    TopicDeleted,
)
from raylog.actors.ports import TopicId
from raylog.wire.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raylog.wire.uuids import random_uuid, to_base64

NAME_LENGTH_MAX = 249
METADATA_TOPIC = "__cluster_metadata"
"""Kafka's name of the metadata log, which is no topic."""
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raise InvalidTopicException unless a topic may be called that."""
    if not name:
        raise InvalidTopicException("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicException(f"Topic name is invalid: '.' and '..' are not allowed: {name}")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopicException(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed "
            f"length {NAME_LENGTH_MAX}"
        )
    if not _NAME.fullmatch(name):
        raise InvalidTopicException(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )


def _check_room(count: int, room: int) -> None:
    """Raise PolicyViolation before so many partitions are placed."""
    if count > room:
        raise PolicyViolation("Excessively large number of partitions per request.")


@dataclass(slots=True)
class _Creation:
    """What the topics of one CreateTopics request share."""

    broker: BrokerConfigs
    room: int
    """Partitions that may still be made."""
    collapsed: dict[str, str] = field(default_factory=dict)
    """Names that the request has taken, by what they collapse to."""
    described: dict[tuple[tuple[str, str], ...], list[DescribedConfig]] = field(
        default_factory=dict
    )
    """Checked settings and their answer: mostly the same for a thousand topics."""

    def describe(self, configs: dict[str, str]) -> list[DescribedConfig]:
        """Check a topic's settings and describe them; raises InvalidConfig."""
        key = tuple(sorted(configs.items()))
        if key not in self.described:
            check_topic(configs, self.broker)
            self.described[key] = describe_topic(configs, self.broker)
        return self.described[key]


class TopicControl:
    """Decides about topics against the image."""

    def __init__(
        self, image: MetadataImage, index: PartitionIndex, settings: BrokerSettings, rng: Random
    ) -> None:
        self._image = image
        self._index = index
        self._settings = settings
        self._rng = rng

    # ---- create --------------------------------------------------------------------------

    def create(self, asked: CreateTopics) -> Decision[list[TopicOutcome]]:
        """Create topics; their first leader is their first live replica."""
        twice = {name for name, n in Counter(one.name for one in asked.topics).items() if n > 1}
        creation = _Creation(
            broker_configs(self._image, self._settings),
            asked.room,
        )
        records: list[Record] = []
        outcomes = [
            TopicOutcome(name, error=InvalidRequest.code, message="Duplicate topic name.")
            for name in sorted(twice)
        ]
        for one in asked.topics:
            if one.name in twice:
                continue
            try:
                made, outcome = self._created(one, creation)
            except KafkaError as refused:
                outcomes.append(_refused(one.name, refused))
                continue
            creation.room -= outcome.num_partitions
            creation.collapsed[collapsed(one.name)] = one.name
            records.extend(made)
            outcomes.append(outcome)
        return Decision([] if asked.validate_only else records, outcomes)

    def _created(self, asked: NewTopic, creation: _Creation) -> tuple[list[Record], TopicOutcome]:
        check_name(asked.name)
        if asked.name == METADATA_TOPIC:
            raise InvalidRequest(f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
        if asked.name in self._image.topic_ids:
            raise TopicAlreadyExists(f"Topic '{asked.name}' already exists.")
        taken = creation.collapsed.get(collapsed(asked.name))
        collision = self._index.named_like(asked.name) or taken
        if collision is not None:
            raise InvalidTopicException(
                f"Topic '{asked.name}' collides with existing topic: {collision}"
            )
        configs = canonical_all(ResourceType.TOPIC, _given_configs(asked))
        described = creation.describe(configs)
        replicas = (
            self._assigned(asked) if asked.assignments else self._placed(asked, creation.room)
        )
        _check_room(len(replicas), creation.room)
        topic_id = TopicId(random_uuid(self._rng))
        records: list[Record] = [TopicCreated(topic_id, asked.name)]
        records.extend(
            ConfigChanged(ResourceType.TOPIC, asked.name, key, value)
            for key, value in configs.items()
        )
        records.extend(self._partitions(topic_id, 0, replicas))
        outcome = TopicOutcome(
            asked.name,
            topic_id,
            num_partitions=len(replicas),
            replication_factor=len(replicas[0]),
            configs=described,
        )
        return records, outcome

    def _placed(self, asked: NewTopic, room: int) -> list[tuple[int, ...]]:
        count = asked.num_partitions
        factor = asked.replication_factor
        if count == -1:
            count = self._settings.number("num.partitions")
        if factor == -1:
            factor = self._settings.number("default.replication.factor")
        if count <= 0:
            raise InvalidPartitions(
                "Number of partitions was set to an invalid non-positive value."
            )
        if factor <= 0:
            raise InvalidReplicationFactor(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        _check_room(count, PARTITIONS_PER_REQUEST_MAX)
        ring = ring_of(list(self._image.brokers.values()), factor, self._rng)
        _check_room(count, room)
        return ring.assignments(range(count), factor)

    def _assigned(self, asked: NewTopic) -> list[tuple[int, ...]]:
        if asked.replication_factor != -1:
            raise InvalidRequest(
                "A manual partition assignment was specified, but replication factor was not set "
                "to -1."
            )
        if asked.num_partitions != -1:
            raise InvalidRequest(
                "A manual partition assignment was specified, but numPartitions was not set to -1."
            )
        if sorted(asked.assignments) != list(range(len(asked.assignments))):
            raise InvalidReplicaAssignment(
                "partitions should be a consecutive 0-based integer sequence"
            )
        replicas = [asked.assignments[index] for index in range(len(asked.assignments))]
        self._check_assignment(replicas, len(replicas[0]), first=0)
        return replicas

    def _check_assignment(
        self, assignments: Iterable[tuple[int, ...]], factor: int, first: int
    ) -> None:
        for index, replicas in enumerate(assignments, first):
            check_assigned(replicas, self._image.brokers)
            if len(replicas) != factor:
                raise InvalidReplicaAssignment(
                    f"The manual partition assignment includes a partition with {len(replicas)} "
                    f"replica(s), but this is not consistent with previous partitions, which "
                    f"have {factor} replica(s)."
                )
            if not self._live(replicas):
                raise InvalidReplicaAssignment(
                    "All brokers specified in the manual partition assignment for partition "
                    f"{index} are fenced or in controlled shutdown."
                )

    def _partitions(
        self, topic_id: TopicId, first: int, assignments: Sequence[tuple[int, ...]]
    ) -> Iterable[Record]:
        live: dict[tuple[int, ...], tuple[int, ...]] = {}
        for index, replicas in enumerate(assignments, first):
            isr = live.get(replicas)
            if isr is None:
                isr = live[replicas] = self._live(replicas)
            yield PartitionCreated(topic_id, index, replicas, isr, isr[0])

    def _live(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(one for one in replicas if self._image.brokers[one].is_live)

    # ---- grow ----------------------------------------------------------------------------

    def create_partitions(self, asked: CreatePartitions) -> Decision[list[TopicOutcome]]:
        """Give topics more partitions."""
        twice = {name for name, n in Counter(one.name for one in asked.topics).items() if n > 1}
        room = asked.room
        records: list[Record] = []
        outcomes = [
            TopicOutcome(name, error=InvalidRequest.code, message="Duplicate topic name.")
            for name in sorted(twice)
        ]
        for one in asked.topics:
            if one.name in twice:
                continue
            try:
                topic = self._known(one.name)
                made = self._grown(topic, one, room)
            except KafkaError as refused:
                outcomes.append(_refused(one.name, refused))
                continue
            room -= len(made)
            records.extend(made)
            outcomes.append(TopicOutcome(one.name, topic.topic_id, num_partitions=one.count))
        return Decision([] if asked.validate_only else records, outcomes)

    def _grown(self, topic: Topic, asked: MorePartitions, room: int) -> list[Record]:
        now = len(topic.partitions)
        more = asked.count - now
        if more == 0:
            raise InvalidPartitions(f"Topic already has {now} partition(s).")
        if more < 0:
            raise InvalidPartitions(
                f"The topic {topic.name} currently has {now} partition(s); {asked.count} would "
                "not be an increase."
            )
        _check_room(more, room)
        factor = len(topic.partitions[0].replicas)
        if asked.assignments is None:
            ring = ring_of(list(self._image.brokers.values()), factor, self._rng)
            assignments = ring.assignments(range(now, asked.count), factor)
        else:
            assignments = asked.assignments
            if len(assignments) != more:
                raise InvalidReplicaAssignment(
                    f"Attempted to add {more} additional partition(s), but only "
                    f"{len(assignments)} assignment(s) were specified."
                )
            self._check_assignment(assignments, factor, first=now)
        return list(self._partitions(topic.topic_id, now, assignments))

    # ---- delete --------------------------------------------------------------------------

    def delete(self, asked: DeleteTopics) -> Decision[list[TopicOutcome]]:
        """Delete topics by name or id; of what is named twice each mention is refused."""
        records: dict[TopicId, Record] = {}
        outcomes: list[TopicOutcome] = []
        for name, times in Counter(asked.names).items():
            find = partial(self._known, name)
            outcomes.append(self._deleted(find, name, NO_TOPIC, times, records))
        for topic_id, times in Counter(asked.topic_ids).items():
            find = partial(self._known_id, topic_id)
            outcomes.append(self._deleted(find, None, topic_id, times, records))
        return Decision(list(records.values()), outcomes)

    def _deleted(
        self,
        find: Callable[[], Topic],
        name: str | None,
        topic_id: TopicId,
        times: int,
        records: dict[TopicId, Record],
    ) -> TopicOutcome:
        try:
            if not self._settings.flag("delete.topic.enable"):
                raise TopicDeletionDisabled("Topic deletion is disabled.")
            if times > 1:
                kind = "name" if name is not None else "id"
                raise InvalidRequest(f"Duplicate topic {kind}.")
            topic = find()
            if topic.topic_id in records:
                raise InvalidRequest("The provided topic name maps to an ID that was given too.")
        except KafkaError as refused:
            return TopicOutcome(name, topic_id, refused.code, refused.message)
        records[topic.topic_id] = TopicDeleted(topic.topic_id)
        return TopicOutcome(topic.name, topic.topic_id)

    def _known(self, name: str) -> Topic:
        topic = self._image.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition("This server does not host this topic-partition.")
        return topic

    def _known_id(self, topic_id: TopicId) -> Topic:
        topic = self._image.topics.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"There is no topic with the id {to_base64(topic_id)}.")
        return topic


def _refused(name: str, refused: KafkaError) -> TopicOutcome:
    return TopicOutcome(name, error=refused.code, message=refused.message)


def _given_configs(asked: NewTopic) -> dict[str, str]:
    for key, value in asked.configs.items():
        if value is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {key}")
    return {key: value for key, value in asked.configs.items() if value is not None}
