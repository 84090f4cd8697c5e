"""What the client knows of the cluster: brokers, topics, leaders (the metadata cache).

Leaders also become known from refusals that name the new one (KIP-951). A leader of an older
epoch never replaces one of a newer: brokers' views lag behind one another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from raylog.wire.errors import (
    ErrorCode,
    InvalidTopicException,
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
    error_of,
)
from raylog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from raylog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER = -1
_TOPIC_NAME = re.compile("[a-zA-Z0-9._-]{1,249}")


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def require_partitions(keys: Iterable[object]) -> None:
    """Raise TypeError unless all of them are partitions."""
    for key in keys:
        if not isinstance(key, TopicPartition):
            raise TypeError(f"expected partitions as TopicPartition(topic, number), found {key!r}")


def require_topics(names: Iterable[object]) -> None:
    """Raise InvalidTopicException unless topics may have all of these names."""
    for name in names:
        if not isinstance(name, str) or not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
            raise InvalidTopicException(
                "expected a topic's name, 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-' and not '.' "
                f"or '..', found {name!r}"
            )


class Node(NamedTuple):
    """A broker as metadata names it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """One partition: who leads it and who holds it; ids of brokers."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int] = ()
    isr: Sequence[int] = ()
    offline: Sequence[int] = ()


class TopicView:
    """One topic with its partitions by index."""

    def __init__(
        self,
        name: str,
        topic_id: bytes,
        is_internal: bool = False,
        partitions: dict[int, PartitionView] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        """16 bytes; zero where the broker's version knows no ids."""
        self.is_internal = is_internal
        self.partitions = partitions or {}


class ClusterView:
    """The newest known state; grows with what is asked for."""

    def __init__(self, topics: dict[str, TopicView] | None = None) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics = topics or {}
        self.failures: dict[str, KafkaError] = {}
        """Topics whose last answer was an error."""
        self._seen: dict[str, TopicView] = {}
        """Topics with ids as they were told last, errors aside: leader epochs never go back."""
        self._names: dict[bytes, str] = {}

    def update(self, response: MetadataResponse, *, is_whole: bool = False) -> None:
        """Take a metadata answer; topics it does not mention stay, unless it tells the whole."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        if is_whole:
            told = {topic.name for topic in response.topics}
            self.forget((self.topics.keys() | self._seen.keys() | self.failures.keys()) - told)
        for topic in response.topics:
            self._update_topic(topic)

    def forget(self, topics: Iterable[str]) -> None:
        """Drop topics, known to be deleted."""
        for name in topics:
            self.failures.pop(name, None)
            self._seen.pop(name, None)
            self._hide(name)

    def _hide(self, name: str) -> None:
        """Take a topic out of what can be looked up."""
        view = self.topics.pop(name, None)
        if view is not None:
            self._names.pop(view.topic_id, None)

    def topic(self, name: str) -> TopicView:
        """A topic; raises its last error, or UnknownTopicOrPartition when it was never asked."""
        view = self.topics.get(name)
        if view is not None:
            return view
        failure = self.failures.get(name)
        if failure is not None:
            raise failure
        raise UnknownTopicOrPartition(f"topic {name!r} is not in the metadata")

    def name_of(self, topic_id: bytes) -> str | None:
        """The name that belongs to a topic id, if known."""
        return self._names.get(topic_id)

    def partition(self, key: TopicPartition) -> PartitionView:
        """A partition; raises UnknownTopicOrPartition."""
        topic = self.topic(key.topic)
        view = topic.partitions.get(key.partition)
        if view is None:
            raise UnknownTopicOrPartition(
                f"expected a partition of {key.topic!r} below {len(topic.partitions)}, "
                f"found {key.partition!r}"
            )
        return view

    def leader_of(self, key: TopicPartition) -> int:
        """The leader's broker id; raises LeaderNotAvailable, UnknownTopicOrPartition."""
        view = self.partition(key)
        if view.leader == NO_LEADER or view.leader not in self.nodes:
            raise LeaderNotAvailable(f"{key} has no leader at the moment")
        return view.leader

    def leader_epoch_of(self, key: TopicPartition) -> int | None:
        """A partition's leader epoch, if the partition is known."""
        known = self._known(key)
        return None if known is None else known.leader_epoch

    def known_leader_of(self, key: TopicPartition) -> int | None:
        """As `leader_of`; None where that raises."""
        known = self._known(key)
        return known.leader if known is not None and known.leader in self.nodes else None

    def _known(self, key: TopicPartition) -> PartitionView | None:
        topic = self.topics.get(key.topic)
        return topic.partitions.get(key.partition) if topic is not None else None

    def moved(self, key: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Take a newer leader from a refusal; False if it says nothing new."""
        known = self._known(key)
        if known is None or leader not in self.nodes or leader_epoch <= known.leader_epoch:
            return False
        self.topics[key.topic].partitions[key.partition] = PartitionView(
            key.partition, leader, leader_epoch, known.replicas, known.isr, known.offline
        )
        return True

    def _update_topic(self, topic: MetadataResponseTopic) -> None:
        """Take one topic of an answer."""
        name = topic.name
        if name is None:
            return
        if topic.error_code != ErrorCode.NONE:
            self._hide(name)
            self.failures[name] = error_of(topic.error_code, f"topic {name!r}")
            return
        self.failures.pop(name, None)
        known = self._seen.get(name) or self.topics.get(name)
        same = known is not None and known.topic_id == topic.topic_id
        view = TopicView(name, topic.topic_id, topic.is_internal)
        for found in topic.partitions:
            partition = PartitionView(
                found.partition_index,
                found.leader_id,
                found.leader_epoch,
                found.replica_nodes,
                found.isr_nodes,
                found.offline_replicas,
            )
            older = known.partitions.get(partition.partition) if known and same else None
            if older is not None and older.leader_epoch > partition.leader_epoch >= 0:
                partition = older
            view.partitions[partition.partition] = partition
        if known is not None and not same:
            self._names.pop(known.topic_id, None)
        self.topics[name] = view
        if topic.topic_id != ZERO_UUID:
            self._seen[name] = view
            self._names[topic.topic_id] = name


class CommittedOffset(NamedTuple):
    """How far a group has read one partition: the offset of the next record."""

    offset: int
    leader_epoch: int = -1
    """Of the last record that was read; -1: unknown (KIP-320)."""
    metadata: str = ""


def by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Group partitions by topic, each partition once."""
    grouped: dict[str, list[TopicPartition]] = {}
    for key in dict.fromkeys(keys):
        grouped.setdefault(key.topic, []).append(key)
    return grouped
