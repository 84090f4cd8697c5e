"""Topics of Metadata responses, built once per listener and offset of the metadata log.

Building 1,000 partitions takes longer than encoding them, and clients ask far more often than
topics change.
"""

from __future__ import annotations

from collections.abc import Generator

from raylog.actors.common_messages import TopicId
from raylog.actors.gateway.context import TURN
from raylog.actors.gateway.rules.cluster_facts import INTERNAL_TOPICS, leader_of, offline_replicas
from raylog.actors.metadata.image import MetadataImage, PartitionState, Topic
from raylog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

BUILT_FASTER = 4
"""Encoding this many built partitions takes as long as building one."""


class TopicMetadata:
    """Cached responses by topic id and listener. They must not be modified."""

    def __init__(self) -> None:
        self._offset = -1
        self._built: dict[tuple[TopicId, str], MetadataResponseTopic] = {}

    def steps_of(
        self, image: MetadataImage, topic: Topic, listener: str
    ) -> Generator[int, None, MetadataResponseTopic]:
        """Build the response about a topic of `image` for clients of a listener.

        It has no authorized operations. Each step yields how many partitions it handled. A topic
        that changes between two steps is reported as it was at the first one.
        """
        offset = image.offset
        if offset != self._offset:
            self._built.clear()
            self._offset = offset
        built = self._built.get((topic.topic_id, listener))
        if built is not None:
            yield 1 + len(built.partitions) // BUILT_FASTER
            return built
        built = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[],
        )
        states = topic.partitions
        if len(states) > TURN:
            states = states.copy()
        for start in range(0, len(states), TURN):
            some = states[start : start + TURN]
            built.partitions += [
                _partition(image, index, state, listener) for index, state in enumerate(some, start)
            ]
            yield len(some)
        if image.offset == offset:
            self._built[topic.topic_id, listener] = built
        return built


def _partition(
    image: MetadataImage, index: int, state: PartitionState, listener: str
) -> MetadataResponsePartition:
    error, leader = leader_of(image, state, listener)
    return MetadataResponsePartition(
        error_code=int(error),
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=offline_replicas(image, state, listener),
    )
