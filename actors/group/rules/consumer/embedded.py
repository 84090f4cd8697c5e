"""The consumer protocol embedded in classic groups: subscriptions and assignments as blobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raylog.actors.common_messages import TopicId
from raylog.actors.group.rules.consumer.member import Partitions
from raylog.actors.metadata.image import MetadataImage
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
    """Decode a subscription; raises DecodeError."""
    return decode_blob(ConsumerProtocolSubscription, blob)


def assignment_of(blob: bytes) -> ConsumerProtocolAssignment:
    """Decode an assignment; empty for an empty blob. Raises DecodeError."""
    if not blob:
        return ConsumerProtocolAssignment(assigned_partitions=[])
    return decode_blob(ConsumerProtocolAssignment, blob)


def assignment_blob(
    partitions: Mapping[TopicId, Iterable[int]], image: MetadataImage, subscription: bytes
) -> bytes:
    """Encode an assignment in the version of the member's subscription, without deleted topics."""
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
    """Return the version of a subscription that may never have been decoded; 0 if it is invalid."""
    version = int.from_bytes(subscription[:_VERSION_BYTES], "big", signed=True)
    return max(0, min(version, _VERSION_MAX))


def partitions_of(found: Iterable[TopicPartition], image: MetadataImage) -> Partitions:
    """Convert named partitions to topic ids; topics that do not exist are left out."""
    return {
        image.topic_ids[one.topic]: frozenset(one.partitions)
        for one in found
        if one.topic in image.topic_ids and one.partitions
    }
