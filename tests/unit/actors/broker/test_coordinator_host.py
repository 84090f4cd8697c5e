"""A coordinator in a warm spare Replica process: no group waits for a process to start."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from raylog.actors.controller.messages import NewTopic
from raylog.actors.names import (
    GROUP,
    OFFSETS_TOPIC,
    TRANSACTION,
    TRANSACTIONS_TOPIC,
    broker_name,
    host_of,
)
from tests.worlds.broker.recording import (
    CLUSTER,
    FailingOnce,
    RecordingCluster,
    RecordingCoordinator,
)
from tests.worlds.decorators import TMP_PATH, in_world

Story = Callable[[RecordingCluster], Awaitable[None]]
PLACES = pytest.mark.parametrize("gateway_is_colocated", ["true", "false"])


def tell(story: Story, directory: Path, gateway_is_colocated: str = "true") -> None:
    async def main() -> None:
        settings = {"gateway.in.replica.process": gateway_is_colocated, "replica.actors.spare": "1"}
        cluster = RecordingCluster(directory, 1, **settings)
        await cluster.up()
        await cluster.create(NewTopic("t", 2, 1))
        await cluster.routes(2)
        await spare_of(cluster)
        await story(cluster)
        await cluster.down()
        assert not cluster.replicas()
        assert not cluster.coordinators()

    asyncio.run(main())


def names_in(cluster: RecordingCluster, state: str) -> Callable[[], Awaitable[list[str]]]:
    async def found() -> list[str]:
        children = (await cluster.describe()).children
        return [one.name for one in children if one.role == "replica" and one.state == state]

    return found


async def spare_of(cluster: RecordingCluster) -> str:
    """The spare, once there is one."""
    named = names_in(cluster, "spare")
    while len(names := await named()) != 1:  # noqa: ASYNC110 - the cluster has no event for it
        await asyncio.sleep(0.005)
    return names[0]


async def coordinator(cluster: RecordingCluster, role: str = GROUP) -> RecordingCoordinator:
    """The broker's coordinator, once the gateway knows it."""
    await cluster.until(
        lambda: (
            len(cluster.coordinators(0, role)) == 1
            and cluster.gateways()[0].coordinators.get(role) is not None
        )
    )
    return cluster.coordinators(0, role)[0]


@PLACES
def test_coordinator_moves_into_the_spare_and_a_new_spare_starts(
    tmp_path: Path, gateway_is_colocated: str
) -> None:
    async def story(cluster: RecordingCluster) -> None:
        spare = await spare_of(cluster)
        await cluster.create(NewTopic(OFFSETS_TOPIC, 3, 1))
        assert host_of((await coordinator(cluster)).name) == spare
        assert await spare_of(cluster) != spare
        assert await names_in(cluster, "host")() == [spare]
        await cluster.create(NewTopic("u", 4, 1))
        assert spare not in (await cluster.routes(9)).values()

    tell(story, tmp_path, gateway_is_colocated)


@in_world(tell, TMP_PATH)
async def test_each_coordinator_has_a_process_of_its_own(cluster: RecordingCluster) -> None:
    await cluster.create(NewTopic(OFFSETS_TOPIC, 1, 1))
    groups = await coordinator(cluster)
    await spare_of(cluster)
    await cluster.create(NewTopic(TRANSACTIONS_TOPIC, 1, 1))
    transactions = await coordinator(cluster, TRANSACTION)
    assert host_of(groups.name) != host_of(transactions.name)


@PLACES
def test_successor_of_the_coordinator_moves_into_the_next_spare(
    tmp_path: Path, gateway_is_colocated: str
) -> None:
    async def story(cluster: RecordingCluster) -> None:
        await cluster.create(NewTopic(OFFSETS_TOPIC, 3, 1))
        first = await coordinator(cluster)
        spare = await spare_of(cluster)
        await cluster.kill(first.name)
        await cluster.until(lambda: cluster.coordinators() not in ([], [first]))
        assert host_of((await coordinator(cluster)).name) == spare
        await spare_of(cluster)
        assert await names_in(cluster, "host")() == [spare]

    tell(story, tmp_path, gateway_is_colocated)


@in_world(tell, TMP_PATH)
async def test_failed_coordinator_start_is_retried_in_the_same_process(
    cluster: RecordingCluster,
) -> None:
    class Failing(FailingOnce): ...

    cluster.roles[GROUP] = Failing
    spare = await spare_of(cluster)
    await cluster.create(NewTopic(OFFSETS_TOPIC, 3, 1))
    assert host_of((await coordinator(cluster)).name) == spare
    assert await names_in(cluster, "host")() == [spare]


@PLACES
def test_a_restarted_broker_adopts_it_with_its_host(
    tmp_path: Path, gateway_is_colocated: str
) -> None:
    async def story(cluster: RecordingCluster) -> None:
        await cluster.create(NewTopic(OFFSETS_TOPIC, 3, 1))
        first = await coordinator(cluster)
        await spare_of(cluster)
        children = cluster.replicas()
        await cluster.kill(broker_name(CLUSTER, 0))
        await cluster.spawn()
        await cluster.ready()
        assert await coordinator(cluster) is first
        assert cluster.replicas() == children
        assert await names_in(cluster, "host")() == [host_of(first.name)]
        await cluster.create(NewTopic("u", 4, 1))
        assert host_of(first.name) not in (await cluster.routes(9)).values()

    tell(story, tmp_path, gateway_is_colocated)
