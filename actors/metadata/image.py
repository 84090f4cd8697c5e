"""The state that the metadata log builds: brokers, topics, partitions, settings, features."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from raylog.actors.common_messages import TopicId
from raylog.actors.config import ResourceType, judged
from raylog.actors.endpoints import UNKNOWN, Endpoint, known_endpoints
from raylog.actors.message import distinct
from raylog.actors.metadata.followed import Followed
from raylog.actors.metadata.records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    BrokerUnwanted,
    BrokerWanted,
    ClusterNamed,
    ConfigChanged,
    FeatureChanged,
    LeaderChanged,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicDeleted,
    Voters,
    VotersChanged,
)
from raylog.actors.metadata.terms import Term, Terms


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker's registration."""

    broker_id: int
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    """The advertised endpoint of each listener; empty for a broker that has not registered since
    a rebuild of the metadata."""
    rack: str | None
    directory_id: str
    incarnation: str
    fenced: bool
    build: str
    node_id: str
    shutting_down: bool = False

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the advertised endpoint of a listener; None if the broker does not have it."""
        for one in self.endpoints:  # called for every partition; faster than an expression
            if one.listener == listener:
                return one
        return None

    @property
    def is_live(self) -> bool:
        """Whether it may lead and be assigned replicas."""
        return not (self.fenced or self.shutting_down)


@distinct
class PartitionState(NamedTuple):
    """The state of one partition. The fields are those of PartitionCreated."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    """Broker id, or NO_LEADER."""
    leader_epoch: int
    partition_epoch: int
    incarnations: Mapping[int, str]
    """Broker id to the last opening of its log that counted; empty before the first opening."""
    adding_replicas: tuple[int, ...] = ()
    """Those of `replicas` that a reassignment in progress adds (KIP-455)."""
    removing_replicas: tuple[int, ...] = ()
    """Those of `replicas` that it removes once all others are in sync."""
    elr: tuple[int, ...] = ()
    """Eligible leader replicas: not in sync, but with everything that is committed (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """The last leader of a partition that has no in-sync replica."""
    lacking: tuple[int, ...] = ()
    """Replicas that are known to lack records that they once had, by damage or loss."""

    @property
    def is_reassigned(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)

    def changed(self, record: PartitionChanged) -> PartitionState:
        """Return the state after a record; None in it leaves a field unchanged."""
        led_anew = record.leader is not None
        return PartitionState(
            _or(record.replicas, self.replicas),
            _or(record.isr, self.isr),
            self.leader if record.leader is None else record.leader,
            self.leader_epoch + led_anew,
            self.partition_epoch + 1,
            self._incarnations_after(record),
            _or(record.adding_replicas, self.adding_replicas),
            _or(record.removing_replicas, self.removing_replicas),
            _or(record.elr, self.elr),
            _or(record.last_known_elr, self.last_known_elr),
            _or(record.lacking, self.lacking),
        )

    def _incarnations_after(self, record: PartitionChanged) -> Mapping[int, str]:
        if record.incarnations is None and record.replicas is None:
            return self.incarnations
        known = {**self.incarnations, **(record.incarnations or {})}
        if record.replicas is None:
            return known
        return {one: opening for one, opening in known.items() if one in record.replicas}


def _or(new: tuple[int, ...] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else new


@dataclass(slots=True)
class Topic:
    """One topic; `partitions` is indexed by partition number."""

    topic_id: TopicId
    name: str
    partitions: list[PartitionState] = field(default_factory=list)
    generation: int = field(default=0, compare=False, repr=False)
    """The generation of the image that owns the list; a list of an older one is part of a
    snapshot."""


@dataclass(slots=True)
class MetadataImage:
    """The state of the metadata log up to `offset` (exclusive).

    Only `apply` changes it, and readers must not modify what they get from it. Its parts are
    replaced and never modified, except for lists of partitions that are not part of a snapshot. So
    taking a snapshot takes constant time.
    """

    offset: int = 0
    controller_epoch: int = 0
    controller: str = ""
    """Name of the controller of that epoch; empty if unknown."""
    cluster_id: str = ""
    metadata_id: str = ""
    voters: Voters = ()
    kept_out: tuple[int, ...] = ()
    """Brokers that do not become voters automatically."""
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    topics: dict[TopicId, Topic] = field(default_factory=dict)
    topic_ids: dict[str, TopicId] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """(resource type, resource name) to settings; a resource without settings is absent."""
    refused: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """Settings that another build has stored and this build refuses, and so ignores."""
    features: dict[str, int] = field(default_factory=dict)
    """Levels that were set; 0 means not in use."""
    features_epoch: int = -1
    """Incremented by every change of a feature."""
    next_producer_id: int = 0
    wanted: dict[int, BrokerWanted] = field(default_factory=dict)
    """Where brokers should run, by id; empty without a supervisor."""
    terms: Terms = field(default=Terms(), compare=False)
    """The controllers so far, as far back as known: snapshots of older builds have none of them."""
    generation: int = field(default=0, compare=False, repr=False)
    """The number of snapshots taken."""

    @property
    def followed(self) -> Followed:
        """Which metadata this is, and up to which offset."""
        nonce = self.terms.nonce
        return Followed(self.metadata_id, self.controller_epoch, self.offset, nonce)

    def apply(self, record: Record) -> None:
        """Apply the record at `offset`."""
        _APPLY[type(record)](self, record)
        self.offset += 1

    def apply_all(self, records: Iterable[Record]) -> None:
        """Apply records in order."""
        for record in records:
            self.apply(record)

    def apply_update(self, from_offset: int, to_offset: int, records: Iterable[Record]) -> bool:
        """Apply an answer of `follow`; return False if it is old or leaves a gap.

        A `from_offset` of -1 is a snapshot that replaces everything.
        """
        if from_offset == -1:
            whole = MetadataImage()
            whole.apply_all(records)
            whole.ends_at(to_offset)
            self.become(whole)
            return True
        if from_offset != self.offset:
            return False
        self.apply_all(records)
        return True

    def ends_at(self, offset: int) -> None:
        """Declare that the applied records were a snapshot up to an offset."""
        self.offset = offset
        self.terms = self.terms.ended_at(offset)

    def become(self, whole: MetadataImage) -> None:
        """Take over the contents of another image, which must not be used afterwards.

        Readers hold this object, so it cannot be replaced.
        """
        for one in fields(self):
            setattr(self, one.name, getattr(whole, one.name))

    def own_topic(self, topic_id: TopicId) -> Topic:
        """Return a topic whose list may be changed: a copy, if a snapshot has the current one."""
        topic = self.topics[topic_id]
        if topic.generation != self.generation:
            topic = Topic(topic_id, topic.name, topic.partitions.copy(), self.generation)
            self.topics[topic_id] = topic
        return topic

    def topic(self, name: str) -> Topic | None:
        """Return the topic with that name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: TopicId, index: int) -> PartitionState | None:
        """Return the partition with that topic id and number."""
        topic = self.topics.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def configs_of(self, resource_type: int, name: str) -> dict[str, str]:
        """Return a resource's own settings."""
        return self.configs.get((resource_type, name), {})

    def partitions_on(self, broker_id: int) -> Iterator[tuple[TopicId, int, PartitionState]]:
        """Yield every partition with a replica on the broker."""
        for topic in self.topics.values():
            for index, partition in enumerate(topic.partitions):
                if broker_id in partition.replicas:
                    yield topic.topic_id, index, partition

    def live_brokers(self) -> list[BrokerRegistration]:
        """Return the brokers that may lead, by id."""
        return [self.brokers[one] for one in sorted(self.brokers) if self.brokers[one].is_live]

    def snapshot(self) -> Snapshot:
        """Take a snapshot of the current state."""
        self.generation += 1
        return Snapshot(self)


class Snapshot:
    """Records that build an image as it was at an offset, without overwritten ones.

    They are created one by one during iteration. Later changes of the image have no effect on them.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.offset = image.offset
        self._first: list[Record] = [_leader_of(image)]
        if image.cluster_id:
            self._first.append(ClusterNamed(image.cluster_id, image.metadata_id))
        self._first.append(VotersChanged(image.voters, image.kept_out))
        self._brokers = list(image.brokers.values())
        self._topics = list(image.topics.values())
        self._configs = [*image.configs.items(), *image.refused.items()]
        self._last: list[Record] = [
            FeatureChanged(name, level, image.features_epoch)
            for name, level in image.features.items()
        ]
        self._last.append(ProducerIdsAllocated(-1, -1, image.next_producer_id))
        self._last.extend(image.wanted.values())

    def __iter__(self) -> Iterator[Record]:
        """Yield the records in order."""
        yield from self._first
        for broker in self._brokers:
            yield from _broker_records(broker)
        for topic in self._topics:
            yield TopicCreated(topic.topic_id, topic.name)
            for index, partition in enumerate(topic.partitions):
                yield PartitionCreated(topic.topic_id, index, *partition)
        for (resource_type, name), settings in self._configs:
            for key, value in settings.items():
                yield ConfigChanged(resource_type, name, key, value)
        yield from self._last


def _leader_of(image: MetadataImage) -> LeaderChanged:
    terms = tuple([(term.epoch, term.nonce, term.start) for term in image.terms])
    return LeaderChanged(image.controller_epoch, image.controller, image.terms.nonce, terms)


def _broker_records(broker: BrokerRegistration) -> Iterator[Record]:
    first = next(iter(broker.endpoints), UNKNOWN)
    yield BrokerRegistered(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        host=first.host,
        port=first.port,
        rack=broker.rack,
        directory_id=broker.directory_id,
        incarnation=broker.incarnation,
        fenced=broker.fenced,
        build=broker.build,
        node_id=broker.node_id,
        endpoints=broker.endpoints,
    )
    if broker.shutting_down:
        yield BrokerShuttingDown(broker.broker_id, broker.broker_epoch)


def _leader_changed(image: MetadataImage, record: LeaderChanged) -> None:
    image.controller_epoch = record.controller_epoch
    image.controller = record.controller
    if record.terms:
        image.terms = Terms(itertools.starmap(Term, record.terms))
    else:
        image.terms = image.terms.begun(record.controller_epoch, record.nonce, image.offset)


def _cluster_named(image: MetadataImage, record: ClusterNamed) -> None:
    image.cluster_id, image.metadata_id = record.cluster_id, record.metadata_id


def _voters_changed(image: MetadataImage, record: VotersChanged) -> None:
    image.voters, image.kept_out = record.voters, record.kept_out


def _broker_registered(image: MetadataImage, record: BrokerRegistered) -> None:
    image.brokers[record.broker_id] = BrokerRegistration(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        endpoints=known_endpoints(record.endpoints, record.host, record.port),
        rack=record.rack,
        directory_id=record.directory_id,
        incarnation=record.incarnation,
        fenced=record.fenced,
        build=record.build,
        node_id=record.node_id,
    )


def _broker_unregistered(image: MetadataImage, record: BrokerUnregistered) -> None:
    del image.brokers[record.broker_id]


def _broker_fenced(image: MetadataImage, record: BrokerFenced) -> None:
    image.brokers[record.broker_id] = replace(image.brokers[record.broker_id], fenced=True)


def _broker_unfenced(image: MetadataImage, record: BrokerUnfenced) -> None:
    image.brokers[record.broker_id] = replace(image.brokers[record.broker_id], fenced=False)


def _broker_shutting_down(image: MetadataImage, record: BrokerShuttingDown) -> None:
    image.brokers[record.broker_id] = replace(image.brokers[record.broker_id], shutting_down=True)


def _topic_created(image: MetadataImage, record: TopicCreated) -> None:
    generation = image.generation
    image.topics[record.topic_id] = Topic(record.topic_id, record.name, generation=generation)
    image.topic_ids[record.name] = record.topic_id


def _partition_created(image: MetadataImage, record: PartitionCreated) -> None:
    partitions = image.own_topic(record.topic_id).partitions
    assert record.partition == len(partitions), "partitions are created in order"
    partitions.append(PartitionState(*record[2:]))


def _partition_changed(image: MetadataImage, record: PartitionChanged) -> None:
    partitions = image.own_topic(record.topic_id).partitions
    partitions[record.partition] = partitions[record.partition].changed(record)


def _topic_deleted(image: MetadataImage, record: TopicDeleted) -> None:
    topic = image.topics.pop(record.topic_id)
    del image.topic_ids[topic.name]
    image.configs.pop((ResourceType.TOPIC, topic.name), None)
    image.refused.pop((ResourceType.TOPIC, topic.name), None)


def _config_changed(image: MetadataImage, record: ConfigChanged) -> None:
    kind, name, key, value = record
    _set(image.configs, (kind, name), key, None)
    _set(image.refused, (kind, name), key, None)
    if value is not None:
        text, _ = judged(kind, key, value)
        if text is None:
            _set(image.refused, (kind, name), key, value)
        else:
            _set(image.configs, (kind, name), key, text)


def _set(
    configs: dict[tuple[int, str], dict[str, str]],
    resource: tuple[int, str],
    key: str,
    value: str | None,
) -> None:
    """Set or remove a setting. The dict is replaced, since snapshots may hold the old one."""
    settings = {name: text for name, text in configs.get(resource, {}).items() if name != key}
    if value is not None:
        settings[key] = value
    if settings:
        configs[resource] = settings
    else:
        configs.pop(resource, None)


def _feature_changed(image: MetadataImage, record: FeatureChanged) -> None:
    image.features[record.name] = record.level
    image.features_epoch = record.epoch


def _producer_ids_allocated(image: MetadataImage, record: ProducerIdsAllocated) -> None:
    image.next_producer_id = record.next_producer_id


def _broker_wanted(image: MetadataImage, record: BrokerWanted) -> None:
    image.wanted[record.broker_id] = record


def _broker_unwanted(image: MetadataImage, record: BrokerUnwanted) -> None:
    del image.wanted[record.broker_id]


_APPLY: dict[type[Record], Callable[[MetadataImage, Any], None]] = {
    LeaderChanged: _leader_changed,
    ClusterNamed: _cluster_named,
    VotersChanged: _voters_changed,
    BrokerRegistered: _broker_registered,
    BrokerUnregistered: _broker_unregistered,
    BrokerFenced: _broker_fenced,
    BrokerUnfenced: _broker_unfenced,
    BrokerShuttingDown: _broker_shutting_down,
    TopicCreated: _topic_created,
    PartitionCreated: _partition_created,
    PartitionChanged: _partition_changed,
    TopicDeleted: _topic_deleted,
    ConfigChanged: _config_changed,
    FeatureChanged: _feature_changed,
    ProducerIdsAllocated: _producer_ids_allocated,
    BrokerWanted: _broker_wanted,
    BrokerUnwanted: _broker_unwanted,
}
