"""Groups as described by their coordinators, in one form for both protocols."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from raylog.client.cluster import TopicPartition
from raylog.wire.errors import DecodeError
from raylog.wire.internal.blobs import decode_blob
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from raylog.wire.messages import consumer_group_describe, describe_groups

T = TypeVar("T")

CLASSIC = "classic"
CONSUMER = "consumer"
_CONSUMER_PROTOCOL = "consumer"
_MEMBER_TYPES = {0: CLASSIC, 1: CONSUMER}


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group."""

    member_id: str
    client_id: str
    client_host: str
    """As the coordinator reports it: /127.0.0.1."""
    instance_id: str | None
    """`group.instance.id` of a static member (KIP-345), else None."""
    type: str
    """The member's protocol, classic or consumer; a consumer group may have both kinds."""
    topics: tuple[str, ...]
    """Topics subscribed to by name, as far as the coordinator knows."""
    partitions: tuple[TopicPartition, ...]
    """Currently assigned partitions."""
    topic_regex: str | None = None
    target: tuple[TopicPartition, ...] | None = None
    """Assignment after the rebalance is complete; None in a classic group."""
    member_epoch: int | None = None
    """None in a classic group."""
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group and its members."""

    group_id: str
    type: str
    """The group's protocol: classic or consumer."""
    protocol_type: str
    state: str
    assignor: str
    """The assignment strategy in use; "" if there is none."""
    members: tuple[GroupMember, ...]
    group_epoch: int | None = None
    """Increases when members or topics change; None in a classic group."""
    assignment_epoch: int | None = None
    """Group epoch of the target assignment; None in a classic group."""
    note: str | None = None
    """A remark of the coordinator: why the last assignment failed."""


def consumer_description(group: consumer_group_describe.DescribedGroup) -> GroupDescription:
    """Convert the description of a group that uses KIP-848."""
    return GroupDescription(
        group_id=group.group_id,
        type=CONSUMER,
        protocol_type=_CONSUMER_PROTOCOL,
        state=group.group_state,
        assignor=group.assignor_name,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                instance_id=member.instance_id,
                type=_MEMBER_TYPES.get(member.member_type, CONSUMER),
                topics=tuple(sorted(member.subscribed_topic_names)),
                partitions=_partitions(member.assignment),
                topic_regex=member.subscribed_topic_regex or None,
                target=_partitions(member.target_assignment),
                member_epoch=member.member_epoch,
                rack=member.rack_id or None,
            )
            for member in group.members
        ),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        note=group.error_message or None,
    )


def classic_description(group: describe_groups.DescribedGroup) -> GroupDescription:
    """Convert the description of a classic group; only consumers' metadata is decoded."""
    return GroupDescription(
        group_id=group.group_id,
        type=CLASSIC,
        protocol_type=group.protocol_type,
        state=group.group_state,
        assignor=group.protocol_data,
        members=tuple(_classic_member(group.protocol_type, member) for member in group.members),
        note=group.error_message or None,
    )


def _classic_member(
    protocol_type: str, member: describe_groups.DescribedGroupMember
) -> GroupMember:
    """Convert one member; it has no assignment while the group rebalances."""
    is_consumer = protocol_type == _CONSUMER_PROTOCOL
    subscription = assignment = None
    if is_consumer and member.member_metadata:
        subscription = _blob(ConsumerProtocolSubscription, member.member_metadata)
    if is_consumer and member.member_assignment:
        assignment = _blob(ConsumerProtocolAssignment, member.member_assignment)
    return GroupMember(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.group_instance_id,
        type=CLASSIC,
        topics=tuple(sorted(subscription.topics)) if subscription is not None else (),
        partitions=_sorted(
            TopicPartition(topic.topic, index)
            for topic in (assignment.assigned_partitions if assignment is not None else ())
            for index in topic.partitions
        ),
        rack=(subscription.rack_id or None) if subscription is not None else None,
    )


def _blob(cls: type[T], data: bytes) -> T | None:
    """Decode what a client wrote for other clients; return None if that fails."""
    try:
        return decode_blob(cls, data)
    except DecodeError:
        return None  # brokers pass it on unchecked: the client may use a format of its own


def _partitions(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    """Convert an assignment of the KIP-848 protocol."""
    return _sorted(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partitions))
