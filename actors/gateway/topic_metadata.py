"""Topics as Metadata answers them, built once for each offset of the metadata log.

With 1,000 partitions building takes longer than encoding; clients ask far more often than topics
change.
"""

from __future__ import annotations

from raylog.actors.gateway.cluster_facts import INTERNAL_TOPICS, leader_of, offline_replicas
from raylog.actors.metadata.image import MetadataImage, PartitionState, Topic
from raylog.actors.ports import TopicId
from raylog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic


class TopicMetadata:
    """Answers by topic id; what it gives out must not be changed."""

    def __init__(self) -> None:
        self._offset = -1
        self._built: dict[TopicId, MetadataResponseTopic] = {}

    def of(self, image: MetadataImage, topic: Topic) -> MetadataResponseTopic:
        """The answer for a topic of `image`, without authorized operations."""
        if image.offset != self._offset:
            self._built.clear()
            self._offset = image.offset
        built = self._built.get(topic.topic_id)
        if built is None:
            built = self._built[topic.topic_id] = _topic(image, topic)
        return built


def _topic(image: MetadataImage, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(image, index, state) for index, state in enumerate(topic.partitions)
        ],
    )


def _partition(
    image: MetadataImage, index: int, state: PartitionState
) -> MetadataResponsePartition:
    error, leader = leader_of(image, state)
    return MetadataResponsePartition(
        error_code=int(error),
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=offline_replicas(image, state),
    )
