"""Who leads a partition and who is in sync: the rules, as records to be written.

Leader choice: the first live in-sync replica in assigned order; none live means no leader, unless
unclean.leader.election.enable lets any live replica lead (KIP-106). The sole in-sync replica is
never taken off: its partition waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.controller.api import IsrChange, OpenedReplica
from raylog.actors.metadata.configs import broker_configs
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import NO_LEADER, PartitionChanged, Record
from raylog.actors.ports import TopicId
from raylog.wire.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    UnknownTopicId,
    UnknownTopicOrPartition,
)


class PartitionControl:
    """Decides leadership and in-sync replicas against the image."""

    def __init__(self, image: MetadataImage, settings: BrokerSettings) -> None:
        self._image = image
        self._settings = settings

    def broker_gone(self, broker_id: int) -> Iterator[Record]:
        """Take a broker out of leadership and in-sync replicas everywhere."""
        for topic_id, index, partition in self._image.partitions_on(broker_id):
            yield from self._without(broker_id, topic_id, index, partition)

    def replicas_gone(self, broker_id: int, keys: list[tuple[TopicId, int]]) -> Iterator[Record]:
        """Take a broker out of some partitions that others hold too."""
        for topic_id, index in keys:
            partition = self._image.partition(topic_id, index)
            if partition is not None and partition.isr != (broker_id,):
                yield from self._without(broker_id, topic_id, index, partition)

    def hand_over(self, broker_id: int) -> Iterator[Record]:
        """Give leadership that another in-sync replica can take to that one."""
        for topic_id, index, partition in self._image.partitions_on(broker_id):
            if partition.leader == broker_id and self._others_live(broker_id, partition):
                yield from self._without(broker_id, topic_id, index, partition)

    def broker_back(self, broker_id: int) -> Iterator[Record]:
        """Let a broker lead what has no leader and waits for it."""
        for topic_id, index, partition in self._image.partitions_on(broker_id):
            if partition.leader != NO_LEADER:
                continue
            if broker_id in partition.isr:
                yield PartitionChanged(topic_id, index, leader=broker_id)
            elif self._unclean(topic_id):
                yield PartitionChanged(topic_id, index, leader=broker_id, isr=(broker_id,))

    def opened(self, broker_id: int, replica: OpenedReplica) -> Iterator[Record]:
        """A log was opened: a leader's every opening but the first begins a new leader epoch."""
        partition = self._image.partition(replica.topic_id, replica.partition)
        if partition is None or broker_id not in partition.replicas:
            return  # deleted or moved away meanwhile: the metadata tells the broker so
        known = partition.incarnations.get(broker_id)
        if known == replica.incarnation:
            return
        leads = known is not None and partition.leader == broker_id
        waits = partition.leader == NO_LEADER and broker_id in partition.isr
        waits = waits and self._image.brokers[broker_id].is_live
        yield PartitionChanged(
            replica.topic_id,
            replica.partition,
            leader=broker_id if leads or waits else None,
            incarnations={broker_id: replica.incarnation},
        )

    def altered(self, broker_id: int, asked: IsrChange) -> list[Record]:
        """A leader changes its in-sync replicas (KIP-497, KIP-903)."""
        partition = self._image.partition(asked.topic_id, asked.partition)
        if partition is None:
            if asked.topic_id not in self._image.topics:
                raise UnknownTopicId(f"no topic has the id {asked.topic_id.hex()}")
            raise UnknownTopicOrPartition(f"there is no partition {asked.partition}")
        self._check_alteration(broker_id, asked, partition)
        isr = tuple(member for member, _ in asked.isr)
        if isr == partition.isr:
            return []
        return [PartitionChanged(asked.topic_id, asked.partition, isr=isr)]

    def _check_alteration(self, leader: int, asked: IsrChange, partition: PartitionState) -> None:
        if asked.leader_epoch < partition.leader_epoch or leader != partition.leader:
            raise FencedLeaderEpoch(
                f"broker {leader} leads in epoch {asked.leader_epoch}; broker "
                f"{partition.leader} leads in epoch {partition.leader_epoch}"
            )
        if asked.partition_epoch != partition.partition_epoch:
            raise InvalidUpdateVersion(
                f"partition epoch {asked.partition_epoch} is not {partition.partition_epoch}"
            )
        members = {broker_id for broker_id, _ in asked.isr}
        if leader not in members or not members <= set(partition.replicas):
            raise InvalidRequest(f"{sorted(members)} cannot be the in-sync replicas")
        for broker_id, incarnation in asked.isr:
            broker = self._image.brokers.get(broker_id)
            same = partition.incarnations.get(broker_id) == incarnation
            if broker is None or not broker.is_live or not same:
                raise IneligibleReplica(f"broker {broker_id} is not live as {incarnation}")

    def _without(
        self, broker_id: int, topic_id: TopicId, index: int, partition: PartitionState
    ) -> Iterator[Record]:
        """The partition without the broker, as far as that goes."""
        others = tuple(one for one in partition.isr if one != broker_id)
        isr = others if broker_id in partition.isr and others else None
        leader = None
        if partition.leader == broker_id:
            leader = self._first_live(partition, others)
            if leader == NO_LEADER and self._unclean(topic_id):
                leader = self._first_live(
                    partition, tuple(one for one in partition.replicas if one != broker_id)
                )
                isr = isr if leader == NO_LEADER else (leader,)
        if leader is not None or isr is not None:
            yield PartitionChanged(topic_id, index, leader=leader, isr=isr)

    def _first_live(self, partition: PartitionState, candidates: tuple[int, ...]) -> int:
        for one in partition.replicas:
            if one in candidates and self._is_live(one):
                return one
        return NO_LEADER

    def _others_live(self, broker_id: int, partition: PartitionState) -> bool:
        return any(one != broker_id and self._is_live(one) for one in partition.isr)

    def _is_live(self, broker_id: int) -> bool:
        broker = self._image.brokers.get(broker_id)
        return broker is not None and broker.is_live

    def _unclean(self, topic_id: TopicId) -> bool:
        name = self._image.topics[topic_id].name
        own = self._image.configs_of(ResourceType.TOPIC, name)
        key = "unclean.leader.election.enable"
        inherited = broker_configs(self._image, self._settings).effective(key)
        return (own.get(key) or inherited) == "true"
