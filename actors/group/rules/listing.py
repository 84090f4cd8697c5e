"""ListGroups, DescribeGroups and ConsumerGroupDescribe for the groups of one shard.

A group that has committed offsets and never had members is Empty and has no protocol type. There is
no group object for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from raylog.actors.group.rules.classic import ClassicGroup
from raylog.actors.group.rules.consumer import ConsumerGroup
from raylog.actors.group.rules.failures import (
    ListGroupsPart,
    consumer_describe_failed,
    describe_failed,
)
from raylog.actors.group.rules.gradual import GradualResponse, R
from raylog.actors.group.rules.offset_store import OffsetStore
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
"""From this version on, DescribeGroups reports an error for a missing group (KIP-1043)."""
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""The bits of AclOperation (KIP-430): read, delete, describe, describe configs, alter configs."""

Group = ClassicGroup | ConsumerGroup
Groups = Mapping[str, Group]


def listed(groups: Groups, offsets: OffsetStore, part: ListGroupsPart) -> ListGroupsResponse:
    """List the groups that pass the filters, which ignore case (KIP-518, KIP-848)."""
    states = {state.lower() for state in part.request.states_filter}
    types = {kind.lower() for kind in part.request.types_filter}
    return ListGroupsResponse(
        groups=[
            one
            for group_id in part.group_ids
            if (one := _listed(groups, offsets, group_id)) is not None
            and (not states or one.group_state.lower() in states)
            and (not types or one.group_type in types)
        ]
    )


def _listed(groups: Groups, offsets: OffsetStore, group_id: str) -> ListedGroup | None:
    """List a group, or return None if it has been deleted."""
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
    request: DescribeGroupsRequest,
    version: int,
) -> GradualResponse[DescribeGroupsResponse]:
    """Describe classic groups by id; each succeeds or fails independently."""
    found = [_describing(groups, offsets, one, version) for one in request.groups]
    return _together(found, request, DescribeGroupsResponse)


def _describing(
    groups: Groups, offsets: OffsetStore, group_id: str, version: int
) -> GradualResponse[DescribedGroup]:
    group = groups.get(group_id)
    if isinstance(group, ClassicGroup):
        return group.describing()
    return GradualResponse(_without_members(group, offsets, group_id, version), iter(()))


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
) -> GradualResponse[ConsumerGroupDescribeResponse]:
    """Describe KIP-848 groups by id; each succeeds or fails independently."""
    found = [_consumer_describing(groups, offsets, image, one) for one in request.group_ids]
    return _together(found, request, ConsumerGroupDescribeResponse)


def _consumer_describing(
    groups: Groups, offsets: OffsetStore, image: MetadataImage, group_id: str
) -> GradualResponse[DescribedConsumerGroup]:
    group = groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group.consumer_describing(image)
    if not group_id:
        return GradualResponse(consumer_describe_failed(group_id, InvalidGroupId()), iter(()))
    exists = group is not None or group_id in offsets.groups
    why = "is not a consumer group." if exists else "not found."
    missing = GroupIdNotFound(f"Group {group_id} {why}")
    return GradualResponse(consumer_describe_failed(group_id, missing), iter(()))


def _together(
    found: list[GradualResponse[Any]], request: Any, response: Callable[..., R]
) -> GradualResponse[R]:
    """Join the descriptions that a request asks for to its response."""
    answers = [one.response for one in found]
    if request.include_authorized_operations:
        for one in answers:
            if not one.error_code:
                one.authorized_operations = GROUP_OPERATIONS
    return GradualResponse(response(groups=answers), chain.from_iterable(one.rest for one in found))
