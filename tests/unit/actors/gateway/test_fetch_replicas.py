"""Fetch from followers, and consumers sent to the replica in their own rack (KIP-392)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raylog.actors.gateway.rules.replica_selection import replica_in_rack
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import BrokerRegistered, BrokerShuttingDown, PartitionChanged
from raylog.actors.replica.messages import FETCH, Interest
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.fetch import FetchRequest
from tests.worlds.decorators import Fixture, in_world
from tests.worlds.gateway.actor import World, run
from tests.worlds.gateway.fetching import CONTENT, Cluster, T, errors, fetch, opened, part, records
from tests.worlds.runtime import settle

RACK_AWARE = {"replica_selector_class": "rack"}


async def spread(
    world: World, tmp_path: Path, *, leads: bool = True, partitions: int = 1
) -> Cluster:
    """Broker 1 in rack r1 and broker 2 in rack r2 hold the topic; this is broker 1."""
    cluster = Cluster(world, tmp_path)
    await cluster.serve(partitions, leads=leads)
    for index in range(partitions):
        leader = None if leads else 2
        await world.apply(PartitionChanged(T, index, leader=leader, replicas=(1, 2), isr=(1, 2)))
    return cluster


def from_rack(rack: str, *asked: tuple[int, int], **more: Any) -> FetchRequest:
    request = fetch(*asked, **more)
    request.rack_id = rack
    return request


# ---- sent to another replica -----------------------------------------------------------------


@pytest.mark.parametrize("version", range(11, 19))
@pytest.mark.parametrize(
    "selector", ["rack", "org.apache.kafka.common.replica.RackAwareReplicaSelector"]
)
@in_world(run, replica_selector_class=Fixture("selector"))
async def test_a_consumer_is_sent_to_the_replica_in_its_rack(
    world: World, *, version: int, tmp_path: Path
) -> None:
    cluster = await spread(world, tmp_path)
    cluster.send(from_rack("r2", (0, 3)), version)
    request = cluster.even.take(FETCH)
    assert not request.header.wait
    request.reply([part(length=20)])
    answer = cluster.answer()
    (data,) = answer.responses[0].partitions
    assert (data.preferred_read_replica, data.error_code) == (2, 0)
    assert (data.high_watermark, data.last_stable_offset) == (9, 9)
    assert records(answer) == {}


@in_world(run, **RACK_AWARE)
async def test_only_those_partitions_are_reported_that_can_be_read_nearer(
    world: World, *, tmp_path: Path
) -> None:
    cluster = await spread(world, tmp_path, partitions=2)
    await world.apply(PartitionChanged(T, 1, isr=(1,)))
    session = await opened(cluster, part(0), part(1))
    cluster.send(from_rack("r2", (0, 9), (1, 9), session=(session, 1)))
    cluster.even.take(FETCH).reply([part(0), part(1)])
    (topic,) = cluster.answer().responses
    found = {data.partition_index: data.preferred_read_replica for data in topic.partitions}
    assert found == {0: 2}
    assert world.runtime.pending_timers() == 0


@pytest.mark.parametrize(
    ("version", "rack", "settings"),
    [
        (10, "r2", RACK_AWARE),
        (11, "", RACK_AWARE),
        (11, "r1", RACK_AWARE),
        (11, "r3", RACK_AWARE),
        (11, "r2", {}),
        (
            11,
            "r2",
            {"replica_selector_class": "org.apache.kafka.common.replica.LeaderSelector"},
        ),
    ],
)
def test_consumer_without_a_near_replica_reads_from_the_leader(
    version: int, rack: str, settings: dict[str, str], tmp_path: Path
) -> None:
    async def scenario(world: World) -> None:
        cluster = await spread(world, tmp_path)
        cluster.send(from_rack(rack, (0, 3)), version)
        request = cluster.even.take(FETCH)
        assert request.header.wait
        request.reply([part(length=20)])
        answer = cluster.answer()
        assert answer.responses[0].partitions[0].preferred_read_replica == -1
        assert records(answer) == {0: CONTENT[10:30]}

    run(scenario, **settings)


@pytest.mark.parametrize(
    ("offset", "found", "expected"),
    [
        (10, part(), ErrorCode.NONE),
        (3, part(error=ErrorCode.OFFSET_OUT_OF_RANGE), ErrorCode.OFFSET_OUT_OF_RANGE),
        (3, part(diverging=[0, 2]), ErrorCode.NONE),
        (3, part()._replace(log_start_offset=4), ErrorCode.NONE),
    ],
)
@in_world(run, **RACK_AWARE)
async def test_an_offset_that_the_other_replica_may_not_have(
    world: World, *, offset: int, found: object, expected: ErrorCode, tmp_path: Path
) -> None:
    cluster = await spread(world, tmp_path)
    cluster.send(from_rack("r2", (0, offset), max_wait_ms=0), 12)
    cluster.even.take(FETCH).reply([found])
    answer = cluster.answer()
    assert errors(answer) == {0: expected}
    assert answer.responses[0].partitions[0].preferred_read_replica == -1


@pytest.mark.parametrize("offset", [4, 9])
@in_world(run, **RACK_AWARE)
async def test_the_other_replica_has_all_from_the_start_of_the_log_to_what_is_committed(
    world: World, *, offset: int, tmp_path: Path
) -> None:
    cluster = await spread(world, tmp_path)
    cluster.send(from_rack("r2", (0, offset), isolation_level=1), 12)
    found = part(0, 20, aborted=[[77, 4]])
    cluster.even.take(FETCH).reply([found._replace(log_start_offset=4)])
    answer = cluster.answer()
    (data,) = answer.responses[0].partitions
    assert (data.preferred_read_replica, data.aborted_transactions) == (2, None)
    assert records(answer) == {}


@in_world(run, **RACK_AWARE)
async def test_a_partition_that_is_forgotten_while_it_is_looked_at_is_sent_nowhere(
    world: World, *, tmp_path: Path
) -> None:
    cluster = await spread(world, tmp_path, partitions=2)
    await world.apply(PartitionChanged(T, 0, isr=(1,)))
    session = await opened(cluster, part(0), part(1))
    cluster.send(from_rack("r2", (1, 9), session=(session, 1)))
    cluster.send(fetch(session=(session, 2), forgotten=(1,), max_wait_ms=0))
    first, second = (one for one in cluster.even.requests if one.kind == FETCH and one.open)
    first.reply([part(0, 20), part(1)])
    second.reply([])
    answers = cluster.client.received()
    assert [list(errors(one)) for one in answers] == [[0], []]


def test_replica_in_rack_skips_fenced_and_unreachable_replicas() -> None:
    image = MetadataImage()
    for broker_id, rack in ((1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "b")):
        image.apply(BrokerRegistered(broker_id, 1, "h", 1, rack, "d", "i", broker_id == 4))
    state = PartitionState((1, 2, 3, 4, 5), (1, 2, 3, 4), 1, 0, 0, {})
    assert [replica_in_rack(image, state, index, "b", "PLAINTEXT") for index in range(3)] == [
        2,
        3,
        2,
    ]
    assert replica_in_rack(image, state, 0, "a", "PLAINTEXT") is None
    assert replica_in_rack(image, state, 0, "c", "PLAINTEXT") is None  # fenced
    assert replica_in_rack(image, state, 0, "d", "PLAINTEXT") is None
    endpoints = (("PLAINTEXT", "h", 1), ("X", "h", 2))
    image.apply(BrokerRegistered(3, 1, "h", 1, "b", "d", "i", fenced=False, endpoints=endpoints))
    assert [replica_in_rack(image, state, index, "b", "X") for index in range(2)] == [3, 3]
    image.apply(BrokerShuttingDown(2, 1))
    assert replica_in_rack(image, state, 0, "b", "PLAINTEXT") == 3
    assert replica_in_rack(image, state._replace(leader=-1), 0, "b", "PLAINTEXT") is None


# ---- followers -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [11, 12, 13, 18])
@in_world(run, **RACK_AWARE)
async def test_a_follower_serves_consumers(world: World, *, version: int, tmp_path: Path) -> None:
    cluster = await spread(world, tmp_path, leads=False)
    cluster.send(from_rack("r1", (0, 3)), version)
    request = cluster.even.take(FETCH)
    (change,) = request.header.changes
    assert Interest(*change).any_replica
    request.reply([part(length=20)])
    answer = cluster.answer()
    assert records(answer) == {0: CONTENT[10:30]}
    assert answer.responses[0].partitions[0].preferred_read_replica == -1


@in_world(run)
async def test_a_follower_serves_no_consumer_that_knows_leaders_only(
    world: World, *, tmp_path: Path
) -> None:
    cluster = await spread(world, tmp_path, leads=False)
    cluster.send(fetch((0, 3)), 10)
    assert errors(cluster.answer()) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert not cluster.even.requests


@in_world(run)
async def test_a_route_to_a_follower_is_none_for_anything_but_reading(
    world: World, *, tmp_path: Path
) -> None:
    await spread(world, tmp_path, leads=False)
    cluster = world.gateway.cluster
    topic = cluster.image.topics[T]
    assert cluster.any_route(topic, 0).leads is False
    with pytest.raises(Exception, match="broker 1 does not serve t-0, 2 leads it"):
        cluster.route(topic, 0)
    await world.apply(PartitionChanged(T, 0, incarnations={2: "log"}))
    assert cluster.serves(topic)
    await world.apply(PartitionChanged(T, 0, leader=1))
    await settle()
    assert not cluster.serves(topic)
