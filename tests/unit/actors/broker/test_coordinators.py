"""The coordinator process of a broker: started on first use, told its topic, restarted, adopted."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from raylog.actors.controller.api import DeleteTopics, NewTopic
from raylog.actors.names import (
    BROKER,
    GROUP,
    OFFSETS_TOPIC,
    TRANSACTION,
    TRANSACTIONS_TOPIC,
    broker_name,
)
from raylog.wire.errors import CoordinatorNotAvailable
from tests.support.brokers import CLUSTER, NotingCluster, NotingCoordinator

Story = Callable[[NotingCluster], Awaitable[None]]
PARTITIONS = 3


def tell(story: Story, directory: Path, brokers: int = 1) -> None:
    async def main() -> None:
        cluster = NotingCluster(directory, brokers)
        await cluster.up()
        await story(cluster)
        await cluster.down()

    asyncio.run(main())


async def coordinator(cluster: NotingCluster, routes: int = PARTITIONS) -> NotingCoordinator:
    """The broker's coordinator once it has its routes and the gateway knows it."""

    def is_told() -> bool:
        found = cluster.coordinators()
        return (
            len(found) == 1
            and len(found[0].routes) == routes
            and cluster.gateways()[0].coordinators.get(GROUP) is not None
        )

    await cluster.until(is_told)
    return cluster.coordinators()[0]


async def make_offsets_topic(cluster: NotingCluster) -> None:
    await cluster.create(NewTopic(OFFSETS_TOPIC, PARTITIONS, 1))


def test_it_starts_with_the_first_partition_of_its_topic(tmp_path: Path) -> None:
    async def story(cluster: NotingCluster) -> None:
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

    tell(story, tmp_path)


def test_metadata_and_routes_reach_it(tmp_path: Path) -> None:
    async def story(cluster: NotingCluster) -> None:
        await make_offsets_topic(cluster)
        found = await coordinator(cluster)
        await cluster.create(NewTopic("later", 1, 1))
        await cluster.until(lambda: "later" in found.image.topic_ids)
        await cluster.ask_controller("delete_topics", DeleteTopics([OFFSETS_TOPIC], []))
        await cluster.until(lambda: not found.routes)

    tell(story, tmp_path)


def test_a_lost_one_is_replaced_and_gateways_are_told(tmp_path: Path) -> None:
    async def story(cluster: NotingCluster) -> None:
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

    tell(story, tmp_path)


def test_one_that_cannot_start_is_tried_again(tmp_path: Path) -> None:
    async def story(cluster: NotingCluster) -> None:
        failures = 1

        class Failing(NotingCoordinator):
            async def start(self) -> None:
                nonlocal failures
                if failures:
                    failures -= 1
                    raise OSError("no memory")

        cluster.roles[GROUP] = Failing
        await make_offsets_topic(cluster)
        await coordinator(cluster)

    tell(story, tmp_path)


def test_a_restarted_broker_adopts_it(tmp_path: Path) -> None:
    async def story(cluster: NotingCluster) -> None:
        await make_offsets_topic(cluster)
        first = await coordinator(cluster)
        await cluster.kill(broker_name(CLUSTER, 0))
        await cluster.spawn()
        await cluster.ready()
        assert await coordinator(cluster) is first
        names = [one.name for one in (await cluster.describe()).children if one.role == GROUP]
        assert names == [first.name]
        assert BROKER not in names

    tell(story, tmp_path)


def test_a_new_gateway_is_told_where_it_is(tmp_path: Path) -> None:
    async def story(cluster: NotingCluster) -> None:
        await make_offsets_topic(cluster)
        await coordinator(cluster)
        (old,) = cluster.gateways()
        await cluster.kill(old.name)
        await cluster.until(lambda: cluster.gateways() not in ([], [old]))
        await coordinator(cluster)
        assert cluster.gateways()[0].coordinators == old.coordinators

    tell(story, tmp_path)


def test_one_that_is_being_started_ends_with_its_broker(tmp_path: Path) -> None:
    started = asyncio.Event()

    class Slow(NotingCoordinator):
        async def start(self) -> None:
            started.set()
            await asyncio.sleep(0.05)

    async def main() -> None:
        cluster = NotingCluster(tmp_path)
        cluster.roles[GROUP] = Slow
        await cluster.up()
        await make_offsets_topic(cluster)
        await started.wait()
        await cluster.down()
        assert cluster.coordinators() == []

    asyncio.run(main())


def test_transactions_have_a_coordinator_that_every_broker_finds(tmp_path: Path) -> None:
    async def story(cluster: NotingCluster) -> None:
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

    tell(story, tmp_path, brokers=2)


def test_producer_ids_come_in_blocks_that_differ(tmp_path: Path) -> None:
    async def story(cluster: NotingCluster) -> None:
        blocks = [await cluster.call(one, "allocate_producer_ids") for one in (0, 1, 0)]
        ids = [number for block in blocks for number in range(block.first, block.first + 3)]
        assert len(set(ids)) == len(ids)
        assert all(block.count >= 3 for block in blocks)

    tell(story, tmp_path, brokers=2)
