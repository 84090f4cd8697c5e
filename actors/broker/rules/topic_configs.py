"""The topic data sent to a Replica process: its settings, and the note for its directories."""

from __future__ import annotations

from collections.abc import Sequence

from raylog.actors.common_messages import TopicConfig, TopicId
from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.metadata.configs import broker_configs, replica_config
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import PartitionCreated, Record, TopicCreated
from raylog.storage.partition_file import TopicNote


def config_of(
    image: MetadataImage, settings: BrokerSettings, broker_id: int, topic_id: TopicId
) -> TopicConfig:
    """Return a topic's settings and note from the current metadata."""
    topic = image.topics[topic_id]
    broker = broker_configs(image, settings, broker_id)
    own = dict(image.configs_of(ResourceType.TOPIC, topic.name))
    note = TopicNote(len(topic.partitions), image.controller_epoch, image.offset)
    return TopicConfig(topic_id, replica_config(image, topic.name, broker), own, note)


def grown(records: Sequence[Record]) -> set[TopicId]:
    """Return the topics that got more partitions than they were created with."""
    made = {one.topic_id for one in records if isinstance(one, TopicCreated)}
    return {one.topic_id for one in records if isinstance(one, PartitionCreated)} - made
