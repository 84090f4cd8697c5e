"""Each API's response to a request that failed, in the error codes that its version knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raylog.actors.group.rules.gradual import InTurns
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

MEMBERS_LEAVE_SINCE = 3
"""From this version on, LeaveGroup has a result for each member (KIP-345)."""
WHOLE_GROUP_ERRORS_SINCE = 2
SEVERAL_GROUPS_SINCE = 8
"""OffsetFetch versions: with an error for the group; with several groups (KIP-709)."""
LOADING_IN_TRANSACTIONS_SINCE = 2
"""From this version on, clients of TxnOffsetCommit handle COORDINATOR_LOAD_IN_PROGRESS."""
NO_OFFSET = -1
"""The offset in an OffsetFetch response if none is stored."""


@dataclass(frozen=True, slots=True)
class ListGroupsPart:
    """Part of a ListGroups request: some of a shard's groups."""

    request: ListGroupsRequest
    group_ids: list[str]


@dataclass(frozen=True, slots=True)
class DeleteGroupPart:
    """Part of a DeleteGroups request for a group with many offsets; some are deleted first."""

    group_id: str
    partitions: list[tuple[str, int]]

    @property
    def groups_names(self) -> list[str]:
        """The group ids, as in the whole request."""
        return [self.group_id]


def failed(request: Any, version: int, failure: KafkaError) -> Any:
    """Build a response that reports the failure for everything in the request."""
    return _FAILED[type(request)](request, version, failure)


def _join(request: JoinGroupRequest, version: int, failure: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=int(failure.code),
        protocol_name=None if version >= 7 else "",
        member_id=request.member_id,
    )


def _sync(_: SyncGroupRequest, _version: int, failure: KafkaError) -> SyncGroupResponse:
    """Report a loading coordinator as a rebalance, so that the member joins again."""
    loading = isinstance(failure, CoordinatorLoadInProgress)
    code = ErrorCode.REBALANCE_IN_PROGRESS if loading else failure.code
    return SyncGroupResponse(error_code=int(code))


def _heartbeat(_: HeartbeatRequest, _version: int, failure: KafkaError) -> HeartbeatResponse:
    """Report success while loading: sessions start again afterwards, and no member has expired."""
    loading = isinstance(failure, CoordinatorLoadInProgress)
    return HeartbeatResponse(error_code=int(ErrorCode.NONE if loading else failure.code))


def _leave(request: LeaveGroupRequest, version: int, failure: KafkaError) -> LeaveGroupResponse:
    """Report each member as unknown if the group does not exist."""
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
    """Report the error for each partition as well, which Kafka does only in version 1.

    Up to version 7 aiokafka reads only the partitions' errors, and would otherwise start its
    partitions from the beginning. As in Kafka, COORDINATOR_NOT_AVAILABLE is never returned, because
    older consumers do not retry it.
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


def describe_failed(group_id: str, version: int, failure: KafkaError) -> DescribedGroup:
    """Build the DescribeGroups result for a group that failed."""
    return DescribedGroup(
        group_id=group_id,
        error_code=int(failure.code),
        error_message=str(failure) if version >= 6 else None,
    )


def consumer_describe_failed(group_id: str, failure: KafkaError) -> DescribedConsumerGroup:
    """Build the ConsumerGroupDescribe result for a group that failed."""
    return DescribedConsumerGroup(
        group_id=group_id, error_code=int(failure.code), error_message=str(failure) or None
    )


def _list(_: Any, _version: int, failure: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=int(failure.code))


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


_FAILED: dict[type, Callable[[Any, int, KafkaError], Any]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: _sync,
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave,
    OffsetCommitRequest: _commit,
    TxnOffsetCommitRequest: _commit_in_transaction,
    OffsetFetchRequest: _fetch,
    OffsetDeleteRequest: lambda _, _version, failure: OffsetDeleteResponse(
        error_code=int(failure.code)
    ),
    ListGroupsRequest: _list,
    ListGroupsPart: _list,
    DescribeGroupsRequest: lambda request, version, failure: DescribeGroupsResponse(
        groups=[describe_failed(group_id, version, failure) for group_id in request.groups]
    ),
    DeleteGroupsRequest: _delete,
    DeleteGroupPart: _delete,
    InTurns: lambda in_turns, version, failure: failed(in_turns.request, version, failure),
    ConsumerGroupHeartbeatRequest: lambda _, _version, failure: ConsumerGroupHeartbeatResponse(
        error_code=int(failure.code), error_message=str(failure) or None
    ),
    ConsumerGroupDescribeRequest: lambda request, _version, failure: ConsumerGroupDescribeResponse(
        groups=[consumer_describe_failed(group_id, failure) for group_id in request.group_ids]
    ),
}
