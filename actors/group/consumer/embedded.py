"""What classic consumers put into the group protocol: subscriptions and assignments as blobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raylog.actors.group.consumer.member import Partitions
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.ports import TopicId
from raylog.wire.internal.blobs import decode_blob, encode_value
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

CONSUMER_PROTOCOL = "consumer"
_VERSION_MAX = 3
_VERSION_BYTES = 2


def subscription_of(blob: bytes) -> ConsumerProtocolSubscription:
    """What a member wants and has. Raises DecodeError."""
    return decode_blob(ConsumerProtocolSubscription, blob)


def assignment_of(blob: bytes) -> ConsumerProtocolAssignment:
    """What a member was given; nothing if it was given no blob. Raises DecodeError."""
    if not blob:
        return ConsumerProtocolAssignment(assigned_partitions=[])
    return decode_blob(ConsumerProtocolAssignment, blob)


def assignment_blob(
    partitions: Mapping[TopicId, Iterable[int]], image: MetadataImage, subscription: bytes
) -> bytes:
    """What a member is given, in the version of its own subscription; deleted topics left out."""
    assigned = [
        TopicPartition(topic=image.topics[topic_id].name, partitions=sorted(some))
        for topic_id, some in partitions.items()
        if topic_id in image.topics
    ]
    assigned.sort(key=lambda one: one.topic)
    return encode_value(
        ConsumerProtocolAssignment(assigned_partitions=assigned), _version(subscription)
    )


def _version(subscription: bytes) -> int:
    """That of a subscription, which may be one that was never read: 0 where it says nonsense."""
    version = int.from_bytes(subscription[:_VERSION_BYTES], "big", signed=True)
    return max(0, min(version, _VERSION_MAX))


def partitions_of(found: Iterable[TopicPartition], image: MetadataImage) -> Partitions:
    """Named partitions by topic id; topics that do not exist are left out."""
    return {
        image.topic_ids[one.topic]: frozenset(one.partitions)
        for one in found
        if one.topic in image.topic_ids and one.partitions
    }
