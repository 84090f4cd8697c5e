"""The metadata cache: the brokers, topics and leaders that the client knows.

New leaders are also learned from errors that name them (KIP-951). A leader with an older epoch
never replaces one with a newer epoch, because some brokers' metadata lags behind others'.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from raylog.client.refusals import refusal
from raylog.wire.errors import (
    InvalidTopicException,
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
)
from raylog.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from raylog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

P = TypeVar("P")
NO_LEADER = -1
_TOPIC_NAME = re.compile("[a-zA-Z0-9._-]{1,249}")


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def require_partitions(keys: Iterable[object]) -> None:
    """Raise TypeError unless all keys are TopicPartitions."""
    for key in keys:
        if not isinstance(key, TopicPartition):
            raise TypeError(f"expected partitions as TopicPartition(topic, number), found {key!r}")


def require_topics(names: Iterable[object]) -> None:
    """Raise InvalidTopicException unless all names are valid topic names."""
    for name in names:
        if not isinstance(name, str) or not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
            raise InvalidTopicException(
                "expected a topic's name, 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-' and not '.' "
                f"or '..', found {name!r}"
            )


class Node(NamedTuple):
    """A broker, as listed in metadata."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """One partition: its leader and replicas, as broker ids."""

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
        """16 bytes; zero if the broker's version has no topic ids."""
        self.is_internal = is_internal
        self.partitions = partitions or {}


class ClusterView:
    """The newest known metadata; it covers the topics that were asked about."""

    def __init__(self, topics: dict[str, TopicView] | None = None) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics = topics or {}
        self.failures: dict[str, KafkaError] = {}
        """The errors of topics whose last answer was an error."""
        self._seen: dict[str, TopicView] = {}
        """The last topics received with an id, also after an error: leader epochs never go back."""
        self._names: dict[bytes, str] = {}

    def update(self, response: MetadataResponse, *, is_whole: bool = False) -> None:
        """Apply a Metadata response. Topics it does not mention stay, unless `is_whole`."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        if is_whole:
            answered = {topic.name for topic in response.topics}
            self.forget((self.topics.keys() | self._seen.keys() | self.failures.keys()) - answered)
        for topic in response.topics:
            self._update_topic(topic)

    def forget(self, topics: Iterable[str]) -> None:
        """Drop topics that are known to be deleted."""
        for name in topics:
            self.failures.pop(name, None)
            self._seen.pop(name, None)
            self._hide(name)

    def _hide(self, name: str) -> None:
        """Remove a topic from lookups."""
        view = self.topics.pop(name, None)
        if view is not None:
            self._names.pop(view.topic_id, None)

    def topic(self, name: str) -> TopicView:
        """Return a topic; raises its last error, or UnknownTopicOrPartition if there is none."""
        view = self.topics.get(name)
        if view is not None:
            return view
        failure = self.failures.get(name)
        if failure is not None:
            raise failure
        raise UnknownTopicOrPartition(f"topic {name!r} is not in the metadata")

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the topic name for an id, or None if unknown."""
        return self._names.get(topic_id)

    def partition(self, key: TopicPartition) -> PartitionView:
        """Return a partition; raises UnknownTopicOrPartition."""
        topic = self.topic(key.topic)
        view = topic.partitions.get(key.partition)
        if view is None:
            raise UnknownTopicOrPartition(
                f"expected a partition of {key.topic!r} below {len(topic.partitions)}, "
                f"found {key.partition!r}"
            )
        return view

    def leader_of(self, key: TopicPartition) -> int:
        """Return the leader's broker id; raises LeaderNotAvailable, UnknownTopicOrPartition."""
        view = self.partition(key)
        if view.leader == NO_LEADER or view.leader not in self.nodes:
            raise LeaderNotAvailable(f"{key} has no leader at the moment")
        return view.leader

    def leader_epoch_of(self, key: TopicPartition) -> int | None:
        """Return a partition's leader epoch, or None if the partition is unknown."""
        known = self._known(key)
        return None if known is None else known.leader_epoch

    def known_leader_of(self, key: TopicPartition) -> int | None:
        """Return the same as `leader_of`, but None where that raises."""
        known = self._known(key)
        return known.leader if known is not None and known.leader in self.nodes else None

    def _known(self, key: TopicPartition) -> PartitionView | None:
        topic = self.topics.get(key.topic)
        return topic.partitions.get(key.partition) if topic is not None else None

    def moved(self, key: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Apply a newer leader named by an error; return False if it is not newer."""
        known = self._known(key)
        if known is None or leader not in self.nodes or leader_epoch <= known.leader_epoch:
            return False
        self.topics[key.topic].partitions[key.partition] = PartitionView(
            key.partition, leader, leader_epoch, known.replicas, known.isr, known.offline
        )
        return True

    def _update_topic(self, topic: MetadataResponseTopic) -> None:
        """Apply one topic of a Metadata response."""
        name = topic.name
        if name is None:
            return
        failure = refusal(topic.error_code, f"topic {name!r}")
        if failure is not None:
            self._hide(name)
            self.failures[name] = failure
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
    """A group's position in one partition: the offset of the next record to read."""

    offset: int
    leader_epoch: int = -1
    """Leader epoch of the last record read; -1 if unknown (KIP-320)."""
    metadata: str = ""


def commit_of(partition: Callable[..., P], key: TopicPartition, offset: CommittedOffset | int) -> P:
    """Return an offset as a partition of an OffsetCommit or TxnOffsetCommit request."""
    if isinstance(offset, int):
        offset = CommittedOffset(offset)
    return partition(
        partition_index=key.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Group partitions by topic, without duplicates."""
    grouped: dict[str, list[TopicPartition]] = {}
    for key in dict.fromkeys(keys):
        grouped.setdefault(key.topic, []).append(key)
    return grouped


def indexes_by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partition indexes by topic, without duplicates."""
    return {topic: [key.partition for key in some] for topic, some in by_topic(keys).items()}
