"""The link request that a GroupCoordinator answers, and how each API says that it failed.

| kind  | header                                  | payload      | answer's payload         |
|-------|-----------------------------------------|--------------|--------------------------|
| group | RequestHead                             | request body | the whole response frame |

A request for a group that this broker does not coordinate is answered NOT_COORDINATOR, as Kafka
does, never failed over the link.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raylog.actors.group.telling import InTurns
from raylog.wire.errors import (
    CoordinatorLoadInProgress,
    ErrorCode,
    KafkaError,
    UnknownMemberId,
)
from raylog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from raylog.wire.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from raylog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from raylog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from raylog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from raylog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from raylog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from raylog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raylog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from raylog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

GROUP_REQUEST = "group"
MEMBERS_LEAVE_SINCE = 3
"""The version of LeaveGroup that has an outcome for each member (KIP-345)."""
WHOLE_GROUP_ERRORS_SINCE = 2
SEVERAL_GROUPS_SINCE = 8
"""Versions of OffsetFetch: one error for the group; several groups (KIP-709)."""
LOADING_IN_TRANSACTIONS_SINCE = 2
"""The version of TxnOffsetCommit whose clients survive COORDINATOR_LOAD_IN_PROGRESS."""
NO_OFFSET = -1
"""What OffsetFetch answers where nothing is stored."""


@dataclass(frozen=True, slots=True)
class ListGroupsPart:
    """What ListGroups asks, about some of a shard's groups."""

    request: ListGroupsRequest
    group_ids: list[str]


@dataclass(frozen=True, slots=True)
class DeleteGroupPart:
    """What DeleteGroups does to a group with many offsets: some of them are forgotten first."""

    group_id: str
    partitions: list[tuple[str, int]]

    @property
    def groups_names(self) -> list[str]:
        """As the whole request has them."""
        return [self.group_id]


def failed(request: Any, version: int, failure: KafkaError) -> Any:
    """The response that says of everything the request asks that it failed."""
    return _FAILED[type(request)](request, version, failure)


def _join(request: JoinGroupRequest, version: int, failure: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=int(failure.code),
        protocol_name=None if version >= 7 else "",
        member_id=request.member_id,
    )


def _sync(_: SyncGroupRequest, _version: int, failure: KafkaError) -> SyncGroupResponse:
    """A loading coordinator knows of no rebalance: the member is to join again."""
    loading = isinstance(failure, CoordinatorLoadInProgress)
    code = ErrorCode.REBALANCE_IN_PROGRESS if loading else failure.code
    return SyncGroupResponse(error_code=int(code))


def _heartbeat(_: HeartbeatRequest, _version: int, failure: KafkaError) -> HeartbeatResponse:
    """Sessions begin anew after loading: until then every member counts as alive."""
    loading = isinstance(failure, CoordinatorLoadInProgress)
    return HeartbeatResponse(error_code=int(ErrorCode.NONE if loading else failure.code))


def _leave(request: LeaveGroupRequest, version: int, failure: KafkaError) -> LeaveGroupResponse:
    """Of a group that is not there each member is told that it is unknown."""
    code = int(failure.code)
    if version < MEMBERS_LEAVE_SINCE or not isinstance(failure, UnknownMemberId):
        return LeaveGroupResponse(error_code=code)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=code,
            )
            for member in request.members
        ]
    )


def _commit(
    request: OffsetCommitRequest, _version: int, failure: KafkaError
) -> OffsetCommitResponse:
    code = int(failure.code)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _commit_in_transaction(
    request: TxnOffsetCommitRequest, version: int, failure: KafkaError
) -> TxnOffsetCommitResponse:
    code = failure.code
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_IN_TRANSACTIONS_SINCE:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=int(code)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _fetch(request: OffsetFetchRequest, version: int, failure: KafkaError) -> OffsetFetchResponse:
    """The error stands with each partition too, which Kafka does in version 1 alone.

    aiokafka looks nowhere else up to version 7, and would read from the start of its partitions.
    As in Kafka nobody is told COORDINATOR_NOT_AVAILABLE, on which older consumers do not try again.
    """
    code = int(failure.code)
    if code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        code = int(ErrorCode.NOT_COORDINATOR)
    if version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
                for group in request.groups
            ]
        )
    return OffsetFetchResponse(
        error_code=code if version >= WHOLE_GROUP_ERRORS_SINCE else 0,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=NO_OFFSET,
                        metadata="",
                        error_code=code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


def _delete_offsets(
    _: OffsetDeleteRequest, _version: int, failure: KafkaError
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=int(failure.code))


def _list(_: Any, _version: int, failure: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=int(failure.code))


def describe_failed(group_id: str, version: int, failure: KafkaError) -> DescribedGroup:
    """DescribeGroups of one group that failed."""
    return DescribedGroup(
        group_id=group_id,
        error_code=int(failure.code),
        error_message=str(failure) if version >= 6 else None,
    )


def _describe(
    request: DescribeGroupsRequest, version: int, failure: KafkaError
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[describe_failed(group_id, version, failure) for group_id in request.groups]
    )


def _delete(
    request: DeleteGroupsRequest | DeleteGroupPart, _version: int, failure: KafkaError
) -> DeleteGroupsResponse:
    code = int(failure.code)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ]
    )


def _consumer_heartbeat(
    _: ConsumerGroupHeartbeatRequest, _version: int, failure: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=int(failure.code), error_message=str(failure) or None
    )


def consumer_describe_failed(group_id: str, failure: KafkaError) -> DescribedConsumerGroup:
    """ConsumerGroupDescribe of one group that failed."""
    return DescribedConsumerGroup(
        group_id=group_id, error_code=int(failure.code), error_message=str(failure) or None
    )


def _consumer_describe(
    request: ConsumerGroupDescribeRequest, _version: int, failure: KafkaError
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[consumer_describe_failed(group_id, failure) for group_id in request.group_ids]
    )


_FAILED: dict[type, Callable[[Any, int, KafkaError], Any]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: _sync,
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave,
    OffsetCommitRequest: _commit,
    TxnOffsetCommitRequest: _commit_in_transaction,
    OffsetFetchRequest: _fetch,
    OffsetDeleteRequest: _delete_offsets,
    ListGroupsRequest: _list,
    ListGroupsPart: _list,
    DescribeGroupsRequest: _describe,
    DeleteGroupsRequest: _delete,
    DeleteGroupPart: _delete,
    InTurns: lambda asked, version, failure: failed(asked.request, version, failure),
    ConsumerGroupHeartbeatRequest: _consumer_heartbeat,
    ConsumerGroupDescribeRequest: _consumer_describe,
}
