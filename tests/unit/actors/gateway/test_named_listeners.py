"""Clients get the brokers' addresses for the listener that they used themselves."""

from typing import Any

import pytest

from raylog.actors.endpoints import Endpoint
from raylog.actors.metadata.records import BrokerRegistered, PartitionChanged
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.describe_cluster import DescribeClusterRequest
from raylog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import World, run

IN, OUT = "INTERNAL", "EXTERNAL"


def registered(broker_id: int, *listeners: str, fenced: bool = False) -> BrokerRegistered:
    """Broker n has its listeners at in-n:9092 and out-n:9093."""
    endpoints = tuple(
        Endpoint(name, f"{'in' if name == IN else 'out'}-{broker_id}", 9092 + (name == OUT))
        for name in listeners
    )
    return BrokerRegistered(
        broker_id, 50 + broker_id, "", 0, "r", "d", "i", fenced, endpoints=endpoints
    )


async def apply(world: World) -> None:
    """Brokers 1 and 2 have both listeners, 3 the internal one; each leads a partition of t."""
    await world.apply(
        registered(1, IN, OUT),
        registered(2, IN, OUT),
        registered(3, IN),
        registered(4, IN, OUT, fenced=True),
    )
    for leader in (1, 2, 3):
        await world.topic(f"t{leader}", leader=leader, replicas=(leader,))


async def ask(world: World, listener: str, request: Any, version: int) -> Any:
    return await world.client(listener=listener).ask(request, version)


@in_world(run)
async def test_metadata_names_the_brokers_that_have_the_listener(world: World) -> None:
    await apply(world)
    for listener, expected in (
        (IN, [(1, "in-1", 9092), (2, "in-2", 9092), (3, "in-3", 9092)]),
        (OUT, [(1, "out-1", 9093), (2, "out-2", 9093)]),
        ("PLAINTEXT", []),
    ):
        answer = await ask(world, listener, MetadataRequest(topics=[]), 12)
        assert [(one.node_id, one.host, one.port) for one in answer.brokers] == expected
        assert answer.controller_id == 1


@pytest.mark.parametrize(
    ("version", "expected"),
    [(1, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.LEADER_NOT_AVAILABLE)]
    + [(version, ErrorCode.LISTENER_NOT_FOUND) for version in (6, 12)],
)
def test_a_leader_without_the_listener_is_none(version: int, expected: ErrorCode) -> None:
    topics = [MetadataRequestTopic(name=f"t{leader}") for leader in (1, 2, 3)]

    async def scenario(world: World) -> None:
        await apply(world)
        for _ in range(2):  # the second answer was built before
            for listener, code, leader, offline in (
                (IN, ErrorCode.NONE, 3, []),
                (OUT, expected, -1, [3]),
            ):
                answer = await ask(world, listener, MetadataRequest(topics=topics), version)
                (last,) = answer.topics[2].partitions
                assert (last.error_code, last.leader_id) == (code, leader)
                assert last.offline_replicas == (offline if version >= 5 else [])
                assert [one.partitions[0].leader_id for one in answer.topics] == [1, 2, leader]

    run(scenario)


@pytest.mark.parametrize("version", [5, 6])
@in_world(run)
async def test_each_partition_is_reported_by_itself(world: World, *, version: int) -> None:
    await apply(world)
    new_id = await world.topic("mixed", 3)
    await world.apply(PartitionChanged(new_id, 1, leader=3), PartitionChanged(new_id, 2, leader=-1))
    request = MetadataRequest(topics=[MetadataRequestTopic(name="mixed")])
    answer = await ask(world, OUT, request, version)
    unavailable = ErrorCode.LEADER_NOT_AVAILABLE
    assert [one.error_code for one in answer.topics[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.LISTENER_NOT_FOUND if version >= 6 else unavailable,
        unavailable,
    ]
    assert [one.leader_id for one in answer.topics[0].partitions] == [1, -1, -1]


def test_described_partitions_have_no_leader_and_offline_replicas_instead() -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t3")])

    async def scenario(world: World) -> None:
        await apply(world)
        answer = await ask(world, OUT, request, 0)
        (part,) = answer.topics[0].partitions
        assert (part.error_code, part.leader_id) == (0, -1)
        assert part.offline_replicas == [3]

    run(scenario)


@in_world(run)
async def test_described_clusters_have_the_brokers_with_the_listener(world: World) -> None:
    await apply(world)
    request = DescribeClusterRequest(include_fenced_brokers=True, endpoint_type=1)
    for listener, expected in (
        (IN, ["in-1", "in-2", "in-3", "in-4"]),
        (OUT, ["out-1", "out-2", "out-4"]),
    ):
        answer = await ask(world, listener, request, 2)
        assert [one.host for one in answer.brokers] == expected


@in_world(run)
async def test_a_coordinator_without_the_listener_is_not_available(world: World) -> None:
    await apply(world)
    await world.topic("__consumer_offsets", leader=3, replicas=(3,))
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    (found,) = (await ask(world, IN, request, 4)).coordinators
    assert (found.node_id, found.host, found.port) == (3, "in-3", 9092)
    (found,) = (await ask(world, OUT, request, 4)).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
