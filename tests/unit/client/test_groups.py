"""Groups seen from outside: coordinators found and lost, both protocols, offsets."""

from collections.abc import Callable, Iterator

import pytest

from raylog.client.admin.groups import CommittedOffset, GroupAdmin
from raylog.client.cluster import TopicPartition
from raylog.client.errors import ConnectionLost, NotSupported
from raylog.client.io import run_blocking
from raylog.wire.api import ApiKey
from raylog.wire.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    UnknownMemberId,
)
from raylog.wire.internal.blobs import encode_value
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from raylog.wire.internal.consumer_protocol import TopicPartition as BlobPartitions
from raylog.wire.messages import consumer_group_describe as described_consumer
from raylog.wire.messages import describe_groups as described_classic
from raylog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from raylog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from raylog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from raylog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raylog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.worlds.client.cluster import LOST, FakeCluster, core_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def coordinated_by(*brokers: int) -> Callable[[int, object], FindCoordinatorResponse]:
    """FindCoordinator: each call names the next broker, the last one from then on."""
    calls: Iterator[int] = iter(brokers)
    last = brokers[-1]

    def answer(_: int, request: object) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        node_id = next(calls, last)
        if not request.coordinator_keys:
            return FindCoordinatorResponse(node_id=node_id, host="fake", port=9000 + node_id)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node_id, host="fake", port=9000 + node_id)
                for key in request.coordinator_keys
            ]
        )

    return answer


def cluster_of(
    brokers: int = 1, found: tuple[int, ...] = (1,), **newest: int
) -> tuple[FakeCluster, GroupAdmin]:
    """A cluster whose groups are coordinated by `found`, and a client of it."""
    cluster = FakeCluster(brokers, newest={ApiKey[name]: last for name, last in newest.items()})
    cluster.handlers[ApiKey.FIND_COORDINATOR] = coordinated_by(*found)
    return cluster, GroupAdmin(core_of(cluster))


def fetched(offsets: dict[TopicPartition, int], code: int = 0) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id="g",
                error_code=code,
                topics=[
                    OffsetFetchResponseTopics(
                        name=key.topic,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=key.partition,
                                committed_offset=offset,
                                committed_leader_epoch=3,
                                metadata="m",
                            )
                        ],
                    )
                    for key, offset in offsets.items()
                ],
            )
        ]
    )


def asked_brokers(cluster: FakeCluster, kind: type) -> list[int]:
    return [broker for broker, request in cluster.seen if isinstance(request, kind)]


def test_the_coordinator_is_asked_and_remembered() -> None:
    cluster, groups = cluster_of(3, (2,))
    cluster.handlers[ApiKey.OFFSET_FETCH] = lambda *_: fetched({T0: 5, T1: -1})
    for _ in range(2):
        assert run_blocking(groups.group_offsets("g")) == {T0: CommittedOffset(5, 3, "m")}
    assert asked_brokers(cluster, OffsetFetchRequest) == [2, 2]
    assert len(cluster.requests(FindCoordinatorRequest)) == 1


def test_partitions_are_asked_for_by_topic() -> None:
    cluster, groups = cluster_of()
    wanted = [T1, TopicPartition("u", 4), T0]
    cluster.handlers[ApiKey.OFFSET_FETCH] = lambda *_: fetched(dict.fromkeys(wanted, 5))
    run_blocking(groups.group_offsets("g", wanted, require_stable=True))
    run_blocking(groups.group_offsets("g"))
    some, everything = cluster.requests(OffsetFetchRequest)
    assert isinstance(some, OffsetFetchRequest)
    assert isinstance(everything, OffsetFetchRequest)
    assert some.require_stable
    asked = some.groups[0].topics
    assert asked is not None
    assert [(topic.name, topic.partition_indexes) for topic in asked] == [("t", [1, 0]), ("u", [4])]
    assert everything.groups[0].topics is None
    assert (ApiKey.OFFSET_FETCH, 9) in cluster.versions


def test_old_brokers_are_asked_for_one_group_at_a_time() -> None:
    cluster, groups = cluster_of(1, (1,), FIND_COORDINATOR=3, OFFSET_FETCH=7)
    answer = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name="t",
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=0, committed_offset=7, metadata=None
                    )
                ],
            )
        ]
    )
    cluster.handlers[ApiKey.OFFSET_FETCH] = lambda *_: answer
    assert run_blocking(groups.group_offsets("g", [T0])) == {T0: CommittedOffset(7)}
    (request,) = cluster.requests(OffsetFetchRequest)
    assert isinstance(request, OffsetFetchRequest)
    assert request.group_id == "g"


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_looked_for_again(code: ErrorCode) -> None:
    cluster, groups = cluster_of(2, (1, 2))
    cluster.handlers[ApiKey.OFFSET_FETCH] = lambda broker, _: (
        fetched({T0: 9}) if broker == 2 else fetched({}, int(code))
    )
    assert run_blocking(groups.group_offsets("g"))[T0].offset == 9
    assert asked_brokers(cluster, OffsetFetchRequest) == [1, 2]


def test_a_coordinator_that_loads_is_asked_again() -> None:
    cluster, groups = cluster_of()
    answers = iter([fetched({}, int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)), fetched({T0: 1})])
    cluster.handlers[ApiKey.OFFSET_FETCH] = lambda *_: next(answers)
    assert run_blocking(groups.group_offsets("g"))[T0].offset == 1
    assert len(cluster.requests(FindCoordinatorRequest)) == 1


def test_a_coordinator_that_is_gone_is_looked_for_again() -> None:
    cluster, groups = cluster_of(2, (2, 1))
    cluster.down = {2}
    cluster.handlers[ApiKey.OFFSET_FETCH] = lambda *_: fetched({T0: 1})
    assert run_blocking(groups.group_offsets("g"))[T0].offset == 1
    assert len(cluster.requests(FindCoordinatorRequest)) == 2


def test_a_coordinator_that_never_comes_is_reported_when_time_is_up() -> None:
    cluster, groups = cluster_of()
    refusal = Coordinator(
        key="g", node_id=-1, error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE), error_message="no"
    )
    cluster.handlers[ApiKey.FIND_COORDINATOR] = lambda *_: FindCoordinatorResponse(
        coordinators=[refusal]
    )
    with pytest.raises(CoordinatorNotAvailable, match="coordinator of group 'g': no"):
        run_blocking(groups.group_offsets("g"))
    assert len(cluster.requests(FindCoordinatorRequest)) > 10


def test_fatal_offset_fetch_error_is_raised_at_once() -> None:
    cluster, groups = cluster_of()
    refusal = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    cluster.handlers[ApiKey.OFFSET_FETCH] = lambda *_: fetched({}, refusal)
    with pytest.raises(GroupAuthorizationFailed, match="group 'g'"):
        run_blocking(groups.group_offsets("g"))
    assert len(cluster.requests(OffsetFetchRequest)) == 1


def commit_answer(code: int, *partitions: int) -> OffsetCommitResponse:
    answers = [
        OffsetCommitResponsePartition(partition_index=one, error_code=code) for one in partitions
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=answers)])


def test_offsets_are_set_from_outside_the_group() -> None:
    cluster, groups = cluster_of()
    answers = iter(
        [LOST, commit_answer(int(ErrorCode.NOT_COORDINATOR), 0, 1), commit_answer(0, 0, 1)]
    )
    cluster.handlers[ApiKey.OFFSET_COMMIT] = lambda *_: next(answers)
    run_blocking(groups.commit_group_offsets("g", {T0: 5, T1: CommittedOffset(6, 2, "x")}))
    request = cluster.requests(OffsetCommitRequest)[-1]
    assert isinstance(request, OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    assert [
        (at.committed_offset, at.committed_leader_epoch, at.committed_metadata)
        for at in request.topics[0].partitions
    ] == [(5, -1, ""), (6, 2, "x")]
    assert len(cluster.requests(OffsetCommitRequest)) == 3
    assert (ApiKey.OFFSET_COMMIT, 9) in cluster.versions
    run_blocking(groups.commit_group_offsets("g", {}))
    assert len(cluster.requests(OffsetCommitRequest)) == 3


def test_a_group_in_use_refuses_offsets() -> None:
    cluster, groups = cluster_of()
    refusal = commit_answer(int(ErrorCode.UNKNOWN_MEMBER_ID), 0)
    cluster.handlers[ApiKey.OFFSET_COMMIT] = lambda *_: refusal
    with pytest.raises(UnknownMemberId, match="t-0 of group 'g'"):
        run_blocking(groups.commit_group_offsets("g", {T0: 5}))


@pytest.mark.parametrize(
    ("of_group", "of_partition", "raised"),
    [
        (0, 0, None),
        (ErrorCode.GROUP_ID_NOT_FOUND, 0, GroupIdNotFound),
        (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, GroupSubscribedToTopic),
    ],
)
def test_offsets_are_deleted(
    of_group: int, of_partition: int, raised: type[Exception] | None
) -> None:
    cluster, groups = cluster_of()
    partition = OffsetDeleteResponsePartition(partition_index=1, error_code=int(of_partition))
    cluster.handlers[ApiKey.OFFSET_DELETE] = lambda *_: OffsetDeleteResponse(
        error_code=int(of_group),
        topics=[OffsetDeleteResponseTopic(name="t", partitions=[partition])],
    )
    if raised is None:
        run_blocking(groups.delete_group_offsets("g", [T1]))
    else:
        with pytest.raises(raised):
            run_blocking(groups.delete_group_offsets("g", [T1]))
    (request,) = cluster.requests(OffsetDeleteRequest)
    assert isinstance(request, OffsetDeleteRequest)
    assert [at.partition_index for at in request.topics[0].partitions] == [1]


def delete_answers(codes: dict[str, int]) -> Callable[[int, object], DeleteGroupsResponse]:
    def answer(_: int, request: object) -> DeleteGroupsResponse:
        assert isinstance(request, DeleteGroupsRequest)
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=name, error_code=codes.get(name, 0))
                for name in request.groups_names
            ]
        )

    return answer


def test_groups_are_deleted_and_the_first_refusal_is_raised() -> None:
    cluster, groups = cluster_of()
    codes = {"b": int(ErrorCode.NON_EMPTY_GROUP)}
    cluster.handlers[ApiKey.DELETE_GROUPS] = delete_answers(codes)
    run_blocking(groups.delete_groups(["a"]))
    with pytest.raises(NonEmptyGroup, match="group 'b'"):
        run_blocking(groups.delete_groups(["b", "c"]))
    requests = cluster.requests(DeleteGroupsRequest)
    assert all(isinstance(request, DeleteGroupsRequest) for request in requests)
    assert len(requests) == 2


def test_only_groups_that_were_not_dealt_with_are_deleted_again() -> None:
    cluster, groups = cluster_of()
    codes = {"b": int(ErrorCode.NOT_COORDINATOR)}

    def answer(broker: int, request: object) -> DeleteGroupsResponse:
        response = delete_answers(codes)(broker, request)
        codes.clear()
        return response

    cluster.handlers[ApiKey.DELETE_GROUPS] = answer
    run_blocking(groups.delete_groups(["a", "b"]))
    names = [
        request.groups_names
        for request in cluster.requests(DeleteGroupsRequest)
        if isinstance(request, DeleteGroupsRequest)
    ]
    assert names == [["a", "b"], ["b"]]


def test_a_deletion_whose_answer_is_lost_is_not_repeated() -> None:
    cluster, groups = cluster_of()
    cluster.handlers[ApiKey.DELETE_GROUPS] = lambda *_: LOST
    with pytest.raises(ConnectionLost):
        run_blocking(groups.delete_groups(["a"]))
    assert len(cluster.requests(DeleteGroupsRequest)) == 1


def test_groups_of_all_brokers_are_listed() -> None:
    cluster, groups = cluster_of(2)
    loading = [int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]

    def answer(broker: int, _: object) -> ListGroupsResponse:
        if broker == 2 and loading:
            return ListGroupsResponse(error_code=loading.pop())
        listed = ListedGroup(
            group_id=f"g{3 - broker}",
            protocol_type="consumer",
            group_state="Stable",
            group_type="classic",
        )
        return ListGroupsResponse(groups=[listed])

    cluster.handlers[ApiKey.LIST_GROUPS] = answer
    cluster.handlers[ApiKey.OFFSET_FETCH] = lambda *_: fetched({T0: 1})
    found = run_blocking(groups.list_groups(states=["Stable"], types=["classic"]))
    assert [(group.group_id, group.coordinator) for group in found] == [("g1", 2), ("g2", 1)]
    (first, *_) = cluster.requests(ListGroupsRequest)
    assert isinstance(first, ListGroupsRequest)
    assert (first.states_filter, first.types_filter) == (["Stable"], ["classic"])
    assert not cluster.requests(FindCoordinatorRequest)


def test_a_filter_that_a_broker_does_not_know_is_refused() -> None:
    _, groups = cluster_of(1, (1,), LIST_GROUPS=4)
    with pytest.raises(NotSupported, match="broker 1 is too old to filter groups by types"):
        run_blocking(groups.list_groups(types=["consumer"]))


def consumer_answer(_: int, request: object) -> described_consumer.ConsumerGroupDescribeResponse:
    assert isinstance(request, described_consumer.ConsumerGroupDescribeRequest)
    held = described_consumer.TopicPartitions(topic_name="t", partitions=[1, 0])
    member = described_consumer.Member(
        member_id="m",
        instance_id="i",
        member_epoch=4,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="",
        assignment=described_consumer.Assignment(topic_partitions=[held]),
        target_assignment=described_consumer.Assignment(),
        member_type=0,
    )
    return described_consumer.ConsumerGroupDescribeResponse(
        groups=[
            described_consumer.DescribedGroup(
                group_id=name,
                group_state="Stable",
                group_epoch=5,
                assignment_epoch=4,
                assignor_name="uniform",
                members=[member],
                error_message="assignor 'mine' raised ValueError",
            )
            if name == "new"
            else described_consumer.DescribedGroup(
                group_id=name, error_code=int(ErrorCode.GROUP_ID_NOT_FOUND)
            )
            for name in request.group_ids
        ]
    )


def classic_answer(_: int, request: object) -> described_classic.DescribeGroupsResponse:
    assert isinstance(request, described_classic.DescribeGroupsRequest)
    subscription = ConsumerProtocolSubscription(topics=["u", "t"], rack_id="r")
    assigned = [BlobPartitions(topic="t", partitions=[1, 0])]
    member = described_classic.DescribedGroupMember(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        member_metadata=encode_value(subscription, 3),
        member_assignment=encode_value(ConsumerProtocolAssignment(assigned_partitions=assigned), 0),
    )
    odd = described_classic.DescribedGroupMember(
        member_id="odd", client_id="c", client_host="/h", member_assignment=b"\x00\x00\xff"
    )
    states = {"old": "Stable", "dead": "Dead"}
    return described_classic.DescribeGroupsResponse(
        groups=[
            described_classic.DescribedGroup(
                group_id=name,
                group_state=states.get(name, ""),
                protocol_type="consumer",
                protocol_data="range",
                members=[member, odd],
                error_code=0 if name in states else int(ErrorCode.GROUP_ID_NOT_FOUND),
                error_message=None if name in states else f"Group {name} not found.",
            )
            for name in request.groups
        ]
    )


def describing(**newest: int) -> tuple[FakeCluster, GroupAdmin]:
    cluster, groups = cluster_of(1, (1,), **newest)
    cluster.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = consumer_answer
    cluster.handlers[ApiKey.DESCRIBE_GROUPS] = classic_answer
    return cluster, groups


def test_groups_of_both_protocols_are_described() -> None:
    cluster, groups = describing()
    found = run_blocking(groups.describe_groups(["old", "new"]))
    assert list(found) == ["old", "new"]
    old, new = found["old"], found["new"]
    assert (new.type, new.assignor, new.group_epoch, new.assignment_epoch) == (
        "consumer",
        "uniform",
        5,
        4,
    )
    assert new.note == "assignor 'mine' raised ValueError"
    (member,) = new.members
    assert (member.type, member.member_epoch, member.topic_regex) == ("classic", 4, None)
    assert (member.partitions, member.target) == ((T0, T1), ())
    assert (old.type, old.assignor, old.group_epoch, old.note) == ("classic", "range", None, None)
    member, odd = old.members
    assert (member.instance_id, member.topics, member.partitions, member.rack) == (
        "i",
        ("t", "u"),
        (T0, T1),
        "r",
    )
    assert (odd.topics, odd.partitions, odd.target) == ((), (), None)
    (request,) = cluster.requests(described_classic.DescribeGroupsRequest)
    assert isinstance(request, described_classic.DescribeGroupsRequest)
    assert request.groups == ["old"]


@pytest.mark.parametrize("name", ["dead", "unknown"])
def test_a_group_that_is_not_there_is_an_error(name: str) -> None:
    _, groups = describing()
    with pytest.raises(GroupIdNotFound, match=f"group '{name}'"):
        run_blocking(groups.describe_groups([name]))


def test_brokers_without_the_newer_protocol_describe_classic_groups() -> None:
    cluster, groups = describing(CONSUMER_GROUP_DESCRIBE=-1)
    assert run_blocking(groups.describe_groups(["old"]))["old"].type == "classic"
    assert not cluster.requests(described_consumer.ConsumerGroupDescribeRequest)


def test_coordinators_are_found_anew() -> None:
    cluster, groups = cluster_of(2, (2, 1))
    assert run_blocking(groups.find_coordinators(["a", "b"]))["b"].node_id == 2
    assert run_blocking(groups.find_coordinators(["a"]))["a"].port == 9001
    assert len(cluster.requests(FindCoordinatorRequest)) == 2


def leave(_: int, request: object) -> LeaveGroupResponse:
    """A coordinator to which every member is known but the static one "two"."""
    assert isinstance(request, LeaveGroupRequest)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                error_code=25 * (one.group_instance_id == "two"),
            )
            for one in request.members
        ]
    )


def test_static_members_are_removed_by_their_instance_ids() -> None:
    cluster, groups = describing()
    cluster.handlers[ApiKey.LEAVE_GROUP] = leave
    run_blocking(groups.remove_group_members("g", ["one"], reason="moved"))
    (request,) = cluster.requests(LeaveGroupRequest)
    assert request == LeaveGroupRequest(
        group_id="g", members=[MemberIdentity(group_instance_id="one", reason="moved")]
    )
    with pytest.raises(UnknownMemberId, match="member 'two'"):
        run_blocking(groups.remove_group_members("g", ["one", "two"]))
    run_blocking(groups.remove_group_members("g", []))
    assert len(cluster.requests(LeaveGroupRequest)) == 2


def test_all_members_are_removed() -> None:
    cluster, groups = describing()
    cluster.handlers[ApiKey.LEAVE_GROUP] = leave
    run_blocking(groups.remove_group_members("old"))
    (request,) = cluster.requests(LeaveGroupRequest)
    assert isinstance(request, LeaveGroupRequest)
    assert [one.member_id for one in request.members] == ["m", "odd"]
    with pytest.raises(GroupIdNotFound):
        run_blocking(groups.remove_group_members("unknown"))


def test_a_coordinator_that_is_too_old_to_remove_members() -> None:
    cluster, groups = describing(LEAVE_GROUP=2)
    cluster.handlers[ApiKey.LEAVE_GROUP] = leave
    with pytest.raises(NotSupported, match=r"too old to remove members \(before Kafka 2\.4\)"):
        run_blocking(groups.remove_group_members("g", ["one"]))
