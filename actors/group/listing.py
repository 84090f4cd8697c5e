"""ListGroups, DescribeGroups and ConsumerGroupDescribe: the groups of one shard as people see them.

A group with committed offsets that never had members is Empty and of no protocol type; there is
no object of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from raylog.actors.group.api import ListGroupsPart, consumer_describe_failed, describe_failed
from raylog.actors.group.classic import ClassicGroup
from raylog.actors.group.consumer import ConsumerGroup
from raylog.actors.group.offset_store import OffsetStore
from raylog.actors.group.telling import Telling
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.errors import ErrorCode, GroupIdNotFound, InvalidGroupId
from raylog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from raylog.wire.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from raylog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from raylog.wire.messages.list_groups import ListedGroup, ListGroupsResponse

EMPTY = "Empty"
DEAD = "Dead"
CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"
NOT_FOUND_SINCE = 6
"""The version of DescribeGroups from which a missing group is an error (KIP-1043)."""
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Bits by AclOperation (KIP-430): read, delete, describe, describe configs, alter configs."""

Group = ClassicGroup | ConsumerGroup
Groups = Mapping[str, Group]


def listed(groups: Groups, offsets: OffsetStore, asked: ListGroupsPart) -> ListGroupsResponse:
    """The groups that pass the filters, whatever their case (KIP-518, KIP-848)."""
    states = {state.lower() for state in asked.request.states_filter}
    types = {kind.lower() for kind in asked.request.types_filter}
    return ListGroupsResponse(
        groups=[
            one
            for group_id in asked.group_ids
            if (one := _listed(groups, offsets, group_id)) is not None
            and (not states or one.group_state.lower() in states)
            and (not types or one.group_type in types)
        ]
    )


def _listed(groups: Groups, offsets: OffsetStore, group_id: str) -> ListedGroup | None:
    """None: it is gone by now."""
    group = groups.get(group_id)
    if group is not None:
        return ListedGroup(
            group_id=group_id,
            protocol_type=group.protocol_type,
            group_state=group.state_name(),
            group_type=CLASSIC_TYPE if isinstance(group, ClassicGroup) else CONSUMER_TYPE,
        )
    if group_id not in offsets.groups:
        return None
    return ListedGroup(
        group_id=group_id, protocol_type="", group_state=EMPTY, group_type=CLASSIC_TYPE
    )


def describing(
    groups: Groups,
    offsets: OffsetStore,
    image: MetadataImage,
    request: DescribeGroupsRequest,
    version: int,
) -> Telling[DescribeGroupsResponse]:
    """Classic groups by id; each succeeds or fails on its own."""
    found = [_describing(groups, offsets, image, one, version) for one in request.groups]
    answers = [one.response for one in found]
    if request.include_authorized_operations:
        for one in answers:
            if not one.error_code:
                one.authorized_operations = GROUP_OPERATIONS
    rest = chain.from_iterable(one.rest for one in found)
    return Telling(DescribeGroupsResponse(groups=answers), rest)


def _describing(
    groups: Groups, offsets: OffsetStore, image: MetadataImage, group_id: str, version: int
) -> Telling[DescribedGroup]:
    group = groups.get(group_id)
    if isinstance(group, ClassicGroup):
        return group.describing()
    return Telling(_without_members(group, offsets, group_id, version), iter(()))


def _without_members(
    group: Group | None, offsets: OffsetStore, group_id: str, version: int
) -> DescribedGroup:
    if group is None and group_id in offsets.groups:
        return DescribedGroup(error_code=int(ErrorCode.NONE), group_id=group_id, group_state=EMPTY)
    if version < NOT_FOUND_SINCE:
        return DescribedGroup(error_code=int(ErrorCode.NONE), group_id=group_id, group_state=DEAD)
    why = "not found." if group is None else "is not a classic group."
    missing = describe_failed(group_id, version, GroupIdNotFound(f"Group {group_id} {why}"))
    missing.group_state = DEAD
    return missing


def consumer_describing(
    groups: Groups,
    offsets: OffsetStore,
    image: MetadataImage,
    request: ConsumerGroupDescribeRequest,
) -> Telling[ConsumerGroupDescribeResponse]:
    """KIP-848 groups by id; each succeeds or fails on its own."""
    found = [_consumer_describing(groups, offsets, image, one) for one in request.group_ids]
    answers = [one.response for one in found]
    if request.include_authorized_operations:
        for one in answers:
            if not one.error_code:
                one.authorized_operations = GROUP_OPERATIONS
    rest = chain.from_iterable(one.rest for one in found)
    return Telling(ConsumerGroupDescribeResponse(groups=answers), rest)


def _consumer_describing(
    groups: Groups, offsets: OffsetStore, image: MetadataImage, group_id: str
) -> Telling[DescribedConsumerGroup]:
    group = groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group.consumer_describing(image)
    if not group_id:
        return Telling(consumer_describe_failed(group_id, InvalidGroupId()), iter(()))
    exists = group is not None or group_id in offsets.groups
    why = "is not a consumer group." if exists else "not found."
    missing = GroupIdNotFound(f"Group {group_id} {why}")
    return Telling(consumer_describe_failed(group_id, missing), iter(()))
