"""Connections, versions, retries."""

import asyncio

import pytest

from raylog.client.admin.replicas import ReplicaAdmin
from raylog.client.admin.topics import TopicAdmin
from raylog.client.cluster import TopicPartition
from raylog.client.errors import (
    ClientError,
    ConnectionLost,
    NotConnected,
    NotSupported,
    RequestTimedOut,
)
from raylog.client.io import run_blocking
from raylog.client.offsets import EARLIEST, list_offsets
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, LeaderNotAvailable, UnknownTopicOrPartition
from raylog.wire.messages.describe_cluster import DescribeClusterResponse
from raylog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from raylog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from raylog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.worlds.client.cluster import LOST, NOTHING, FakeCluster, core_of


def offsets(request: object, errors: dict[int, int] | None = None) -> ListOffsetsResponse:
    assert isinstance(request, ListOffsetsRequest)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index,
                        error_code=(errors or {}).get(asked.partition_index, 0),
                        offset=100 + asked.partition_index,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_the_newest_version_both_know_is_used() -> None:
    cluster = FakeCluster(newest={ApiKey.METADATA: 9})
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    assert cluster.versions == [(ApiKey.METADATA, 9)]


def test_missing_common_version_is_reported() -> None:
    core = core_of(FakeCluster(newest={ApiKey.LIST_OFFSETS: 0}))
    request = core.ask(-2, ListOffsetsRequest(), ListOffsetsResponse)
    with pytest.raises(NotSupported, match="LIST_OFFSETS: the client speaks versions 1 to 11"):
        run_blocking(request)


def test_all_bootstrap_addresses_are_named_when_none_answers() -> None:
    core = core_of(FakeCluster(down={1}))
    with pytest.raises(NotConnected, match="fake:9001 refused"):
        run_blocking(core.refresh(None))


def test_an_overdue_request_ends_its_connection_and_the_next_opens_another() -> None:
    cluster = FakeCluster(handlers={ApiKey.LIST_OFFSETS: lambda *_: NOTHING})
    core = core_of(cluster)
    request = core.ask(-2, ListOffsetsRequest(), ListOffsetsResponse, timeout_ms=500)
    before = core.io.now_ms()
    with pytest.raises(RequestTimedOut, match="LIST_OFFSETS was not answered in time"):
        run_blocking(request)
    assert 500 <= core.io.now_ms() - before < 510
    run_blocking(core.refresh([]))
    assert 1 in core.cluster.nodes


def test_a_lost_connection_fails_the_request() -> None:
    core = core_of(FakeCluster(handlers={ApiKey.METADATA: lambda *_: LOST}))
    with pytest.raises(ConnectionLost):
        run_blocking(core.ask(-2, MetadataRequest(), MetadataResponse))


def test_each_leader_is_asked_about_its_own_partitions() -> None:
    cluster = FakeCluster(2, {"t": {0: 1, 1: 2, 2: 1}})
    cluster.handlers[ApiKey.LIST_OFFSETS] = lambda _, request: offsets(request)
    core = core_of(cluster)
    wanted = {TopicPartition("t", index): EARLIEST for index in range(3)}
    found = run_blocking(list_offsets(core, wanted))
    assert {key.partition: answer.offset for key, answer in found.items()} == {
        0: 100,
        1: 101,
        2: 102,
    }
    asked = [
        (broker, [at.partition_index for at in request.topics[0].partitions])
        for broker, request in cluster.seen
        if isinstance(request, ListOffsetsRequest)
    ]
    assert sorted(asked) == [(1, [0, 2]), (2, [1])]


def test_a_moved_leader_is_found_and_only_what_failed_is_asked_again() -> None:
    cluster = FakeCluster(2, {"t": {0: 1, 1: 1}})

    def answer(broker: int, request: object) -> ListOffsetsResponse:
        cluster.topics["t"] = {0: 1, 1: 2}
        cluster.epochs["t"] = 1
        refusal = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return offsets(request, {1: refusal} if broker == 1 else None)

    cluster.handlers[ApiKey.LIST_OFFSETS] = answer
    core = core_of(cluster)
    wanted = {TopicPartition("t", index): EARLIEST for index in range(2)}
    found = run_blocking(list_offsets(core, wanted))
    assert sorted(key.partition for key in found) == [0, 1]
    requests = [
        (broker, [at.partition_index for at in request.topics[0].partitions])
        for broker, request in cluster.seen
        if isinstance(request, ListOffsetsRequest)
    ]
    assert requests == [(1, [0, 1]), (2, [1])]


def test_fatal_list_offsets_error_is_raised_at_once() -> None:
    cluster = FakeCluster(1, {"t": {0: 1, 1: 1}})
    refusals = {0: int(ErrorCode.NOT_LEADER_OR_FOLLOWER), 1: int(ErrorCode.UNKNOWN_SERVER_ERROR)}
    cluster.handlers[ApiKey.LIST_OFFSETS] = lambda _, request: offsets(request, refusals)
    core = core_of(cluster)
    wanted = {TopicPartition("t", index): EARLIEST for index in range(2)}
    with pytest.raises(Exception, match="t-1"):
        run_blocking(list_offsets(core, wanted))
    assert len(cluster.requests(ListOffsetsRequest)) == 1


def test_repeats_end_when_time_is_up() -> None:
    core = core_of(FakeCluster(1, {"t": {0: -1}}))
    before = core.io.now_ms()
    with pytest.raises(LeaderNotAvailable):
        run_blocking(list_offsets(core, {TopicPartition("t", 0): EARLIEST}))
    assert 55_000 < core.io.now_ms() - before < 61_000


def test_an_operation_ends_in_time_though_a_request_began_just_before() -> None:
    """The broker refuses for 55 of 60 s, then hangs: requests alone would be given 30 s more."""
    cluster = FakeCluster(1, {"t": {0: 1}})
    core = core_of(cluster)
    began_ms = core.io.now_ms()

    def answer(broker: int, request: object) -> object:
        if core.io.now_ms() - began_ms > 55_000:
            return NOTHING
        return offsets(request, {0: int(ErrorCode.NOT_LEADER_OR_FOLLOWER)})

    cluster.handlers[ApiKey.LIST_OFFSETS] = answer
    with pytest.raises(RequestTimedOut):
        run_blocking(list_offsets(core, {TopicPartition("t", 0): EARLIEST}))
    assert core.io.now_ms() - began_ms == pytest.approx(60_000, abs=1)


def test_a_hanging_broker_is_not_ended_for_one_who_had_little_time() -> None:
    """Its answer may still come to others on the same connection."""
    cluster = FakeCluster(1, {"t": {0: 1}})
    core = core_of(cluster)
    run_blocking(core.refresh(["t"]))
    cluster.handlers[ApiKey.LIST_OFFSETS] = lambda _, request: NOTHING
    with pytest.raises(RequestTimedOut):
        run_blocking(list_offsets(core, {TopicPartition("t", 0): EARLIEST}, timeout_ms=100))
    assert core.io.now_ms() == pytest.approx(1_100, abs=5)
    assert core.in_flight(1) == 1


def test_an_operation_within_another_ends_with_it() -> None:
    cluster = FakeCluster(1, {"t": {0: -1}})
    core = core_of(cluster)

    async def look() -> object:
        return await list_offsets(core, {TopicPartition("t", 0): EARLIEST})

    before_ms = core.io.now_ms()
    with pytest.raises(LeaderNotAvailable):
        run_blocking(core.repeat(look, timeout_ms=5_000))
    assert 4_000 < core.io.now_ms() - before_ms <= 5_000


def test_a_task_that_an_operation_starts_does_not_end_with_it() -> None:
    """Tasks inherit the context of whoever starts them, deadlines that are kept there included."""
    cluster = FakeCluster(1, {"t": {0: 1}}, {ApiKey.LIST_OFFSETS: lambda *_: NOTHING})
    core = core_of(cluster)
    tasks: list[asyncio.Task[object]] = []

    async def ask() -> object:
        request = core.ask(1, ListOffsetsRequest(), ListOffsetsResponse, timeout_ms=20_000)
        with pytest.raises(RequestTimedOut):
            await request
        return core.io.now_ms()

    async def start() -> None:
        await core.refresh([])
        tasks.append(asyncio.get_running_loop().create_task(ask()))

    async def main() -> None:
        began_ms = core.io.now_ms()
        await core.repeat(start, timeout_ms=1_000)
        ended_ms = await tasks[0]
        assert isinstance(ended_ms, float)
        assert ended_ms - began_ms == pytest.approx(20_000, abs=10)

    asyncio.run(main())


def test_a_connection_that_comes_after_the_end_is_not_kept() -> None:
    cluster = FakeCluster(1)
    core = core_of(cluster)

    def answer(broker_id: int, request: object) -> object:
        core.close_for_good()
        return cluster._api_versions()

    cluster.handlers[ApiKey.API_VERSIONS] = answer
    with pytest.raises(ClientError, match="the client is closed"):
        run_blocking(core.api_versions(-2))
    assert not core._channels


def test_connecting_takes_no_longer_than_the_operation_may() -> None:
    """A broker that takes connections and never answers has 10 s of them otherwise."""
    cluster = FakeCluster(1, {"t": {0: 1}})
    core = core_of(cluster)
    cluster.handlers[ApiKey.API_VERSIONS] = lambda _, request: NOTHING
    with pytest.raises(NotConnected, match="API_VERSIONS"):
        run_blocking(core.repeat(lambda: core.refresh([]), timeout_ms=2_000))
    assert core.io.now_ms() == pytest.approx(3_000, abs=5)


def test_the_controller_is_reached_and_answers_within_one_operation() -> None:
    cluster = FakeCluster(1)
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    cluster.down.add(1)
    core.close()
    began_ms = core.io.now_ms()
    core.io.later(50_000, lambda: cluster.down.discard(1))  # type: ignore[attr-defined]  # the fake's
    cluster.handlers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _, request: NOTHING
    with pytest.raises(RequestTimedOut):
        run_blocking(ReplicaAdmin(core).list_reassignments())
    assert core.io.now_ms() - began_ms <= 61_000


def test_an_unknown_topic_is_retried_then_raised() -> None:
    core = core_of(FakeCluster())
    with pytest.raises(UnknownTopicOrPartition, match="topic 'u'"):
        run_blocking(list_offsets(core, {TopicPartition("u", 0): EARLIEST}))


def test_a_look_is_repeated_elsewhere_when_its_broker_is_lost() -> None:
    cluster = FakeCluster(brokers=2)
    lost: list[int] = []

    def answer(broker_id: int, request: object) -> object:
        if not lost:
            lost.append(broker_id)
            cluster.down.add(broker_id)
            return LOST
        assert isinstance(request, DescribeTopicPartitionsRequest)
        return DescribeTopicPartitionsResponse()

    cluster.handlers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = answer
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    assert run_blocking(ReplicaAdmin(core).describe_partitions()) == {}
    asked = [one for one, kind in cluster.seen if isinstance(kind, DescribeTopicPartitionsRequest)]
    assert asked == [*lost, 3 - lost[0]]


def test_a_description_of_the_cluster_is_asked_for_again_elsewhere() -> None:
    cluster = FakeCluster(brokers=2)
    lost: list[int] = []

    def answer(broker_id: int, request: object) -> object:
        if not lost:
            lost.append(broker_id)
            cluster.down.add(broker_id)
            return LOST
        return DescribeClusterResponse(cluster_id="fake")

    cluster.handlers[ApiKey.DESCRIBE_CLUSTER] = answer
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    assert run_blocking(TopicAdmin(core).describe_cluster()).cluster_id == "fake"


def test_broker_error_of_a_single_attempt_is_not_retried() -> None:
    core = core_of(FakeCluster())
    attempts: list[int] = []

    async def attempt() -> None:
        attempts.append(1)
        raise UnknownTopicOrPartition("a retriable error of a broker")

    with pytest.raises(UnknownTopicOrPartition):
        run_blocking(core.look(attempt))
    assert len(attempts) == 1


def test_another_controller_is_looked_for_when_the_known_one_is_gone() -> None:
    cluster = FakeCluster(brokers=2)
    core = core_of(cluster)
    run_blocking(core.refresh([]))
    core.cluster.controller_id = 2
    cluster.down.add(2)
    cluster.handlers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda *_: (
        ListPartitionReassignmentsResponse()
    )
    assert run_blocking(ReplicaAdmin(core).list_reassignments()) == {}
    (asked,) = (one for one, kind in cluster.seen if not isinstance(kind, MetadataRequest))
    assert asked == 1


def test_all_topics_are_asked_for_without_leader_epochs_going_back() -> None:
    cluster = FakeCluster(2, {"t": {0: 2}, "gone": {0: 1}}, epochs={"t": 7})
    core = core_of(cluster)
    run_blocking(core.refresh(["t", "gone"]))
    cluster.topics, cluster.epochs["t"] = {"t": {0: 1}}, 5
    run_blocking(core.refresh(None))
    assert core.cluster.partition(TopicPartition("t", 0)).leader_epoch == 7
    assert set(core.cluster.topics) == set(core._metadata_at_ms) == {"t"}
