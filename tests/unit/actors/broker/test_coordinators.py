"""A broker's coordinator process: started on first use, given its topic, restarted, adopted."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from raylog.actors.controller.messages import DeleteTopics, NewTopic
from raylog.actors.names import (
    BROKER,
    GROUP,
    OFFSETS_TOPIC,
    TRANSACTION,
    TRANSACTIONS_TOPIC,
    broker_name,
)
from raylog.wire.errors import CoordinatorNotAvailable
from tests.worlds.broker.recording import (
    CLUSTER,
    FailingOnce,
    RecordingCluster,
    RecordingCoordinator,
)
from tests.worlds.decorators import TMP_PATH, in_world

Story = Callable[[RecordingCluster], Awaitable[None]]
PARTITIONS = 3


def tell(story: Story, directory: Path, brokers: int = 1) -> None:
    async def main() -> None:
        cluster = RecordingCluster(directory, brokers)
        await cluster.up()
        await story(cluster)
        await cluster.down()

    asyncio.run(main())


async def coordinator(cluster: RecordingCluster, routes: int = PARTITIONS) -> RecordingCoordinator:
    """The broker's coordinator once it has its routes and the gateway knows it."""

    def was_notified() -> bool:
        found = cluster.coordinators()
        return (
            len(found) == 1
            and len(found[0].routes) == routes
            and cluster.gateways()[0].coordinators.get(GROUP) is not None
        )

    await cluster.until(was_notified)
    return cluster.coordinators()[0]


async def make_offsets_topic(cluster: RecordingCluster) -> None:
    await cluster.create(NewTopic(OFFSETS_TOPIC, PARTITIONS, 1))


@in_world(tell, TMP_PATH)
async def test_coordinator_starts_with_the_first_partition_of_its_topic(
    cluster: RecordingCluster,
) -> None:
    await cluster.create(NewTopic("t", 2, 1))
    await cluster.routes(2)
    assert cluster.coordinators() == []
    await make_offsets_topic(cluster)
    found = await coordinator(cluster)
    image = found.image
    assert {key[0] for key in found.routes} == {image.topic_ids[OFFSETS_TOPIC]}
    ref = await cluster.runtime.find(found.name)
    assert cluster.gateways()[0].coordinators == {GROUP: ref.address}
    (child,) = [one for one in (await cluster.describe()).children if one.role == GROUP]
    assert (child.name, child.state, child.restarts) == (found.name, "running", 0)


@in_world(tell, TMP_PATH)
async def test_metadata_and_routes_reach_it(cluster: RecordingCluster) -> None:
    await make_offsets_topic(cluster)
    found = await coordinator(cluster)
    await cluster.create(NewTopic("later", 1, 1))
    await cluster.until(lambda: "later" in found.image.topic_ids)
    await cluster.ask_controller("delete_topics", DeleteTopics([OFFSETS_TOPIC], []))
    await cluster.until(lambda: not found.routes)


@in_world(tell, TMP_PATH)
async def test_a_lost_one_is_replaced_and_gateways_are_notified(cluster: RecordingCluster) -> None:
    await make_offsets_topic(cluster)
    first = await coordinator(cluster)
    gateway = cluster.gateways()[0]
    before = gateway.coordinators[GROUP]
    await cluster.kill(first.name)
    await cluster.until(lambda: gateway.coordinators[GROUP] != before)
    second = await coordinator(cluster)
    assert second.name != first.name
    assert len(second.routes) == PARTITIONS
    (child,) = [one for one in (await cluster.describe()).children if one.role == GROUP]
    assert child.restarts == 1


@in_world(tell, TMP_PATH)
async def test_failed_coordinator_start_is_retried(cluster: RecordingCluster) -> None:
    class Failing(FailingOnce): ...

    cluster.roles[GROUP] = Failing
    await make_offsets_topic(cluster)
    await coordinator(cluster)


@in_world(tell, TMP_PATH)
async def test_a_restarted_broker_adopts_it(cluster: RecordingCluster) -> None:
    await make_offsets_topic(cluster)
    first = await coordinator(cluster)
    await cluster.kill(broker_name(CLUSTER, 0))
    await cluster.spawn()
    await cluster.ready()
    assert await coordinator(cluster) is first
    names = [one.name for one in (await cluster.describe()).children if one.role == GROUP]
    assert names == [first.name]
    assert BROKER not in names


@in_world(tell, TMP_PATH)
async def test_a_new_gateway_is_told_where_it_is(cluster: RecordingCluster) -> None:
    await make_offsets_topic(cluster)
    await coordinator(cluster)
    (old,) = cluster.gateways()
    await cluster.kill(old.name)
    await cluster.until(lambda: cluster.gateways() not in ([], [old]))
    await coordinator(cluster)
    assert cluster.gateways()[0].coordinators == old.coordinators


def test_starting_coordinator_ends_with_its_broker(tmp_path: Path) -> None:
    started = asyncio.Event()

    class Slow(RecordingCoordinator):
        async def start(self) -> None:
            started.set()
            await asyncio.sleep(0.05)

    async def main() -> None:
        cluster = RecordingCluster(tmp_path)
        cluster.roles[GROUP] = Slow
        await cluster.up()
        await make_offsets_topic(cluster)
        await started.wait()
        await cluster.down()
        assert cluster.coordinators() == []

    asyncio.run(main())


@in_world(tell, TMP_PATH, brokers=2)
async def test_transactions_have_a_coordinator_that_every_broker_finds(
    cluster: RecordingCluster,
) -> None:
    with pytest.raises(CoordinatorNotAvailable):
        await cluster.call(0, "find_transaction_coordinator", "x")
    assert await cluster.call(0, "coordinator_address", TRANSACTION) == ""
    await cluster.create(NewTopic(TRANSACTIONS_TOPIC, 2, 1))
    await cluster.until(
        lambda: all(len(cluster.coordinators(one, TRANSACTION)) == 1 for one in (0, 1))
    )
    addresses = [
        (await cluster.runtime.find(cluster.coordinators(one, TRANSACTION)[0].name)).address
        for one in (0, 1)
    ]
    assert cluster.coordinators(0) == []
    found = set()
    for transactional_id in "abcd":
        asked = [
            await cluster.call(one, "find_transaction_coordinator", transactional_id)
            for one in (0, 1)
        ]
        assert asked[0] == asked[1]
        leader, address = asked[0]
        assert address == addresses[leader]
        found.add(leader)
    assert found == {0, 1}


@in_world(tell, TMP_PATH, brokers=2)
async def test_producer_ids_come_in_blocks_that_differ(cluster: RecordingCluster) -> None:
    blocks = [await cluster.call(one, "allocate_producer_ids") for one in (0, 1, 0)]
    ids = [number for block in blocks for number in range(block.first, block.first + 3)]
    assert len(set(ids)) == len(ids)
    assert all(block.count >= 3 for block in blocks)
