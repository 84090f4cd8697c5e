"""Codec of the consumer protocol's opaque bytes: subscriptions v0-v3 and assignments."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.assignors.api import Member, MemberAssignment
from raylog.client.cluster import TopicPartition, by_topic
from raylog.wire.errors import DecodeError
from raylog.wire.internal.blobs import decode_blob, encode_value
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from raylog.wire.internal.consumer_protocol import TopicPartition as TopicPartitions
from raylog.wire.messages.join_group import JoinGroupResponseMember

PROTOCOL_TYPE = "consumer"
NEWEST_SUBSCRIPTION = 3
_ASSIGNMENT_VERSION = 0
"""All versions of the assignment have the same format."""


def encode_subscription(
    topics: Iterable[str],
    user_data: bytes,
    owned: Iterable[TopicPartition] = (),
    *,
    generation: int = -1,
    rack: str | None = None,
    version: int = NEWEST_SUBSCRIPTION,
) -> bytes:
    """Encode a subscription; readers of older versions ignore newer fields."""
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data or None,
        owned_partitions=_grouped(owned),
        generation_id=generation,
        rack_id=rack,
    )
    return encode_value(subscription, version)


def decode_member(member: JoinGroupResponseMember) -> Member:
    """Decode a member's subscription, as the leader receives it; raise DecodeError."""
    blob = decode_blob(ConsumerProtocolSubscription, member.metadata)
    owned: dict[str, tuple[int, ...]] = {}
    for of_topic in blob.owned_partitions:
        owned[of_topic.topic] = owned.get(of_topic.topic, ()) + tuple(of_topic.partitions)
    return Member(
        member_id=member.member_id,
        topics=frozenset(blob.topics),
        owned=owned,
        user_data=bytes(blob.user_data or b""),
        instance_id=member.group_instance_id,
        rack=blob.rack_id,
        generation=blob.generation_id,
    )


def encode_assignment(assignment: MemberAssignment) -> bytes:
    """Encode one member's assignment."""
    return encode_value(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                TopicPartitions(topic=topic, partitions=list(partitions))
                for topic, partitions in sorted(assignment.partitions.items())
                if partitions
            ],
            user_data=assignment.user_data or None,
        ),
        _ASSIGNMENT_VERSION,
    )


def decode_assignment(data: bytes) -> MemberAssignment:
    """Decode this member's assignment; empty bytes mean no partitions. Raises DecodeError."""
    if not data:
        return MemberAssignment()
    blob = decode_blob(ConsumerProtocolAssignment, data)
    partitions: dict[str, list[int]] = {}
    for of_topic in blob.assigned_partitions:
        if any(partition < 0 for partition in of_topic.partitions):
            raise DecodeError(f"an assignment names a negative partition of {of_topic.topic!r}")
        partitions.setdefault(of_topic.topic, []).extend(of_topic.partitions)
    return MemberAssignment(partitions, bytes(blob.user_data or b""))


def partitions_of(assignment: MemberAssignment) -> frozenset[TopicPartition]:
    """Return an assignment's partitions."""
    return frozenset(
        TopicPartition(topic, partition)
        for topic, partitions in assignment.partitions.items()
        for partition in partitions
    )


def _grouped(owned: Iterable[TopicPartition]) -> list[TopicPartitions]:
    """Group partitions by topic, sorted."""
    return [
        TopicPartitions(topic=topic, partitions=[key.partition for key in keys])
        for topic, keys in by_topic(sorted(owned)).items()
    ]
