"""Creates, extends and deletes topics.

Each topic of a request succeeds or fails independently. Messages have Kafka's wording, because
tools show them to people.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from raylog.actors.common_messages import TopicId
from raylog.actors.config import (
    BrokerConfigs,
    BrokerSettings,
    DescribedConfig,
    ResourceType,
    canonical_all,
    check_topic,
    describe_topic,
)
from raylog.actors.controller.messages import (
    NO_TOPIC,
    PARTITIONS_PER_REQUEST_MAX,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicOutcome,
)
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.controller.rules.index import PartitionIndex, collapsed
from raylog.actors.controller.rules.placement import check_assigned, ring_of
from raylog.actors.metadata.configs import broker_configs
from raylog.actors.metadata.image import MetadataImage, Topic
from raylog.actors.metadata.records import (
    ConfigChanged,
    PartitionCreated,
    Record,
    TopicCreated,
    TopicDeleted,
)
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
from raylog.wire.uuids import Chance, random_uuid, to_base64

NAME_LENGTH_MAX = 249
METADATA_TOPIC = "__cluster_metadata"
"""Kafka's name for the metadata log. No topic can have it."""
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raise InvalidTopicException unless this is a valid topic name."""
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
    """Raise PolicyViolation if there are too many partitions, before they are placed."""
    if count > room:
        raise PolicyViolation("Excessively large number of partitions per request.")


NamedT = TypeVar("NamedT", NewTopic, MorePartitions)


@dataclass(slots=True)
class _Creation:
    """State shared by the topics of one CreateTopics request."""

    broker: BrokerConfigs
    room: int
    """Number of partitions that may still be created."""
    collapsed: dict[str, str] = field(default_factory=dict)
    """Names that the request has used, by their collapsed form."""
    described: dict[tuple[tuple[str, str], ...], list[DescribedConfig]] = field(
        default_factory=dict
    )
    """Validated settings and their description, which a thousand topics may share."""

    def describe(self, configs: dict[str, str]) -> list[DescribedConfig]:
        """Check a topic's settings and describe them; raises InvalidConfig."""
        key = tuple(sorted(configs.items()))
        if key not in self.described:
            check_topic(configs, self.broker)
            self.described[key] = describe_topic(configs, self.broker)
        return self.described[key]


class TopicControl:
    """Decides about topics from the image."""

    def __init__(
        self, image: MetadataImage, index: PartitionIndex, settings: BrokerSettings, rng: Chance
    ) -> None:
        self._image = image
        self._index = index
        self._settings = settings
        self._rng = rng

    # ---- create --------------------------------------------------------------------------

    def create(self, request: CreateTopics) -> Decision[list[TopicOutcome]]:
        """Create topics; the first leader is the first live replica."""
        creation = _Creation(
            broker_configs(self._image, self._settings),
            request.room,
        )
        records: list[Record] = []
        once, outcomes = _named_once(request.topics)
        for one in once:
            try:
                made, outcome = self._created(one, creation)
            except KafkaError as refused:
                outcomes.append(_refused(one.name, refused))
                continue
            creation.room -= outcome.num_partitions
            creation.collapsed[collapsed(one.name)] = one.name
            records.extend(made)
            outcomes.append(outcome)
        return Decision([] if request.validate_only else records, outcomes)

    def _created(
        self, new_topic: NewTopic, creation: _Creation
    ) -> tuple[list[Record], TopicOutcome]:
        check_name(new_topic.name)
        if new_topic.name == METADATA_TOPIC:
            raise InvalidRequest(f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
        if new_topic.name in self._image.topic_ids:
            raise TopicAlreadyExists(f"Topic '{new_topic.name}' already exists.")
        taken = creation.collapsed.get(collapsed(new_topic.name))
        collision = self._index.named_like(new_topic.name) or taken
        if collision is not None:
            raise InvalidTopicException(
                f"Topic '{new_topic.name}' collides with existing topic: {collision}"
            )
        configs = canonical_all(ResourceType.TOPIC, _given_configs(new_topic))
        described = creation.describe(configs)
        replicas = (
            self._assigned(new_topic)
            if new_topic.assignments
            else self._placed(new_topic, creation.room)
        )
        _check_room(len(replicas), creation.room)
        topic_id = TopicId(random_uuid(self._rng))
        records: list[Record] = [TopicCreated(topic_id, new_topic.name)]
        records.extend(
            ConfigChanged(ResourceType.TOPIC, new_topic.name, key, value)
            for key, value in configs.items()
        )
        records.extend(self._partitions(topic_id, 0, replicas))
        outcome = TopicOutcome(
            new_topic.name,
            topic_id,
            num_partitions=len(replicas),
            replication_factor=len(replicas[0]),
            configs=described,
        )
        return records, outcome

    def _placed(self, new_topic: NewTopic, room: int) -> list[tuple[int, ...]]:
        count = new_topic.num_partitions
        factor = new_topic.replication_factor
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

    def _assigned(self, new_topic: NewTopic) -> list[tuple[int, ...]]:
        if new_topic.replication_factor != -1:
            raise InvalidRequest(
                "A manual partition assignment was specified, but replication factor was not set "
                "to -1."
            )
        if new_topic.num_partitions != -1:
            raise InvalidRequest(
                "A manual partition assignment was specified, but numPartitions was not set to -1."
            )
        if sorted(new_topic.assignments) != list(range(len(new_topic.assignments))):
            raise InvalidReplicaAssignment(
                "partitions should be a consecutive 0-based integer sequence"
            )
        replicas = [new_topic.assignments[index] for index in range(len(new_topic.assignments))]
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

    def create_partitions(self, request: CreatePartitions) -> Decision[list[TopicOutcome]]:
        """Give topics more partitions."""
        room = request.room
        records: list[Record] = []
        once, outcomes = _named_once(request.topics)
        for one in once:
            try:
                topic = self._known(one.name)
                made = self._grown(topic, one, room)
            except KafkaError as refused:
                outcomes.append(_refused(one.name, refused))
                continue
            room -= len(made)
            records.extend(made)
            outcomes.append(TopicOutcome(one.name, topic.topic_id, num_partitions=one.count))
        return Decision([] if request.validate_only else records, outcomes)

    def _grown(self, topic: Topic, request: MorePartitions, room: int) -> list[Record]:
        now = len(topic.partitions)
        more = request.count - now
        if more == 0:
            raise InvalidPartitions(f"Topic already has {now} partition(s).")
        if more < 0:
            raise InvalidPartitions(
                f"The topic {topic.name} currently has {now} partition(s); {request.count} would "
                "not be an increase."
            )
        _check_room(more, room)
        factor = len(topic.partitions[0].replicas)
        if request.assignments is None:
            ring = ring_of(list(self._image.brokers.values()), factor, self._rng)
            assignments = ring.assignments(range(now, request.count), factor)
        else:
            assignments = request.assignments
            if len(assignments) != more:
                raise InvalidReplicaAssignment(
                    f"Attempted to add {more} additional partition(s), but only "
                    f"{len(assignments)} assignment(s) were specified."
                )
            self._check_assignment(assignments, factor, first=now)
        return list(self._partitions(topic.topic_id, now, assignments))

    # ---- delete --------------------------------------------------------------------------

    def delete(self, request: DeleteTopics) -> Decision[list[TopicOutcome]]:
        """Delete topics by name or id; a topic that is named twice is refused both times."""
        records: dict[TopicId, Record] = {}
        outcomes: list[TopicOutcome] = []
        for name, times in Counter(request.names).items():
            find = partial(self._known, name)
            outcomes.append(self._deleted(find, name, NO_TOPIC, times, records))
        for topic_id, times in Counter(request.topic_ids).items():
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


def _named_once(topics: Sequence[NamedT]) -> tuple[list[NamedT], list[TopicOutcome]]:
    """Return the topics whose names occur once, and the refusals of the other names."""
    times = Counter(one.name for one in topics)
    twice = InvalidRequest("Duplicate topic name.")
    refusals = [_refused(name, twice) for name in sorted(times) if times[name] > 1]
    return [one for one in topics if times[one.name] == 1], refusals


def _refused(name: str, refused: KafkaError) -> TopicOutcome:
    return TopicOutcome(name, error=refused.code, message=refused.message)


def _given_configs(new_topic: NewTopic) -> dict[str, str]:
    for key, value in new_topic.configs.items():
        if value is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {key}")
    return {key: value for key, value in new_topic.configs.items() if value is not None}
