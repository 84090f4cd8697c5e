"""Splitting large group requests: what the parts hold, and how their answers are merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from raylog.actors.coordination.rules.joining import Joined
from raylog.actors.group.rules.splitting import PART, split
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from raylog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

TOPICS = [[3, 4], [PART - 3, 2], [PART - 1, 1], [PART, 1, 5], [3 * PART, 1], [1] * PART, [0, PART]]
"""Partitions of topics: that fit a part, fill it, or do not; the last are as many topics."""


def joined(answers: Sequence[Any]) -> Any:
    """The answer that is made of the parts' answers, the last of which comes first."""
    found: list[Any] = []
    joining = Joined(found.append)
    takers = [joining.part() for _ in answers]
    joining.all_asked()
    for taken, answer in reversed(list(zip(takers, answers, strict=True))):
        assert not found
        taken(answer)
    (whole,) = found
    return whole


def commit(topics: Sequence[int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=3,
        member_id="m",
        topics=[
            OffsetCommitRequestTopic(
                name=f"t{number}",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index + 7, committed_metadata=None
                    )
                    for index in range(count)
                ],
            )
            for number, count in enumerate(topics)
        ],
    )


def committed(request: OffsetCommitRequest) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one.partition_index)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def fetch(groups: Sequence[Sequence[int] | None]) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=f"g{number}",
                topics=None
                if topics is None
                else [
                    OffsetFetchRequestTopics(name=f"t{at}", partition_indexes=list(range(count)))
                    for at, count in enumerate(topics)
                ],
            )
            for number, topics in enumerate(groups)
        ]
    )


def fetched(request: OffsetFetchRequest) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=index, committed_offset=index
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in request.groups
        ]
    )


@pytest.mark.parametrize("topics", TOPICS)
def test_partitions_are_split_and_their_answers_joined(topics: list[int]) -> None:
    request = commit(topics)
    parts = split(request)
    sizes = [sum(1 + len(topic.partitions) for topic in part.topics) for part in parts]
    assert max(sizes) <= PART + 1, "a topic that was cut, with as many partitions as fit"
    assert len(parts) <= 2 * sum(sizes) // PART + 1, "no more parts than it takes"
    assert {(part.group_id, part.generation_id_or_member_epoch) for part in parts} == {("g", 3)}
    assert joined([committed(part) for part in parts]) == committed(request)


@pytest.mark.parametrize(
    "groups",
    [
        *[[topics] for topics in TOPICS],
        [[3, 4], None, [2 * PART, 1], [1]],
        [[1]] * PART,
        [[PART, PART], [PART, PART]],
    ],
)
def test_groups_are_split_down_to_partitions(groups: list[list[int] | None]) -> None:
    request = fetch(groups)
    parts = split(request)
    assert (len(parts) > 1) == (
        sum(1 + sum(1 + count for count in topics or ()) for topics in groups) > PART
    )
    for part in parts:
        for group in part.groups:
            assert sum(len(one.partition_indexes) for one in group.topics or ()) <= PART
    assert joined([fetched(part) for part in parts]) == fetched(request)


def test_groups_that_are_described_twice_are_described_once() -> None:
    names = [f"g{number % (PART + 1)}" for number in range(3 * PART)]
    parts = split(DescribeGroupsRequest(groups=names))
    assert [part.groups for part in parts] == [names[:PART], names[PART : PART + 1]]
    answers = [
        DescribeGroupsResponse(
            groups=[
                DescribedGroup(group_id=name, members=[DescribedGroupMember(member_id="m")])
                for name in part.groups
            ]
        )
        for part in parts
    ]
    whole = joined(answers)
    assert [(one.group_id, len(one.members)) for one in whole.groups] == [
        (name, 1) for name in names[: PART + 1]
    ]


def test_members_that_leave_are_answered_in_order_with_the_error_of_any_part() -> None:
    members = [MemberIdentity(member_id=f"m{number}") for number in range(PART + 1)]
    parts = split(LeaveGroupRequest(group_id="g", members=members))
    answers = [
        LeaveGroupResponse(
            members=[MemberResponse(member_id=one.member_id) for one in part.members]
        )
        for part in parts
    ]
    answers[1].error_code = 25
    whole = joined(answers)
    assert [one.member_id for one in whole.members] == [one.member_id for one in members]
    assert whole.error_code == 25


def test_groups_that_are_deleted_twice_are_deleted_once() -> None:
    request = DeleteGroupsRequest(groups_names=[f"g{number % 300}" for number in range(600)])
    parts = split(request)
    assert [name for part in parts for name in part.groups_names] == request.groups_names[:300]
    answers = [
        DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=one) for one in part.groups_names]
        )
        for part in parts
    ]
    assert [one.group_id for one in joined(answers).results] == request.groups_names[:300]


@pytest.mark.parametrize(
    "request_",
    [
        HeartbeatRequest(group_id="g"),
        OffsetCommitRequest(group_id="g", topics=[]),
        OffsetFetchRequest(group_id="g", topics=None),
        DeleteGroupsRequest(groups_names=[]),
        DescribeGroupsRequest(groups=[f"g{number}" for number in range(PART)]),
        ConsumerGroupDescribeRequest(group_ids=["a", "b"]),
        commit([3, 4]),
    ],
)
def test_small_request_is_not_split(request_: Any) -> None:
    assert split(request_) == [request_]
