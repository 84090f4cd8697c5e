"""Machines lose power only if acknowledged records survive it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from raylog.actors.controller.messages import NewTopic
from raylog.actors.names import BROKER, CONTROLLER
from raylog.simulation.agreement import GivenOut
from raylog.simulation.cluster import Cluster
from raylog.simulation.loop import SimLoop, run_in_virtual_time
from raylog.simulation.losses import Losses
from raylog.simulation.runtime import SimRuntime
from raylog.simulation.simulated_gateway import simulated_role
from raylog.simulation.world import World
from tests.worlds.decorators import in_world
from tests.worlds.metadata import image_of, topic_records

Scene = Callable[[Cluster, Losses], Awaitable[None]]


def play(scene: Scene) -> None:
    """Three brokers that serve a topic with three replicas."""

    async def begin(loop: SimLoop) -> None:
        world = World(loop, 0, simulated_role, SimRuntime)
        cluster = Cluster(world, 3, {"min.insync.replicas": "2"})
        losses = Losses(cluster, GivenOut())
        await cluster.start()
        await cluster.create(NewTopic("t", 2, 3))
        await cluster.runtime.sleep(2)
        assert all(map(losses.may_lose_power, cluster.machines))
        await scene(cluster, losses)

    run_in_virtual_time(begin)


@in_world(play)
async def test_power_losses_wait_until_the_last_broker_is_registered_again(
    cluster: Cluster, losses: Losses
) -> None:
    world, first = cluster.world, cluster.machines[2]
    losses.lost(first)
    world.stop_machine(first, power=True)
    assert not any(map(losses.may_lose_power, cluster.machines))
    await cluster.runtime.sleep(0.1)
    world.start_machine(first)
    while cluster.gateway_of(2) is None:
        back = next((one for number, one in cluster.brokers() if number == 2), None)
        known = cluster.newest_image().brokers[2].incarnation
        if back is None or back._incarnation != known:
            assert not any(map(losses.may_lose_power, cluster.machines))
        await cluster.runtime.sleep(0.01)
    await cluster.runtime.sleep(5)
    assert all(map(losses.may_lose_power, cluster.machines))


@in_world(play)
async def test_not_while_nobody_else_is_in_sync(cluster: Cluster, losses: Losses) -> None:
    cluster.machines[0].disk.failed.add("topics")
    assert losses.may_lose_power(cluster.machines[2])
    cluster.machines[1].disk.full = True
    assert not losses.may_lose_power(cluster.machines[2])


@in_world(play)
async def test_not_while_no_controller_serves(cluster: Cluster, losses: Losses) -> None:
    for one in cluster.of_role(CONTROLLER):
        cluster.world.kill(one.ref.name, restart=False)
    assert not any(map(losses.may_lose_power, cluster.machines))


@pytest.mark.parametrize("is_deposed", [True, False])
@in_world(play)
async def test_not_on_the_word_of_a_controller_that_was_deposed(
    cluster: Cluster, losses: Losses, *, is_deposed: bool
) -> None:
    [controller] = cluster.of_role(CONTROLLER)
    machine = controller.machine
    others = [one for one in cluster.machines if one is not machine]
    cluster.world.pause(controller, 20)
    await cluster.runtime.sleep(8)
    terms = [one.actor._term.quorum.epoch for one in cluster.of_role(CONTROLLER)]
    assert len(terms) == 2, "both take themselves for the one"
    if is_deposed:
        for one in cluster.of_role(CONTROLLER):
            if one is not controller:
                cluster.world.kill(one.ref.name, restart=False)
    assert losses.may_lose_power(others[0]) is not is_deposed


@in_world(play)
async def test_metadata_is_not_lost_while_another_voter_is_not_there(
    cluster: Cluster, losses: Losses
) -> None:
    first, second, third = cluster.machines
    assert losses.may_lose_metadata(first)
    for one in cluster.of_role(BROKER):
        if one.machine is third:
            cluster.world.kill(one.ref.name, restart=False)
    assert not losses.may_lose_metadata(first)
    for one in cluster.of_role(BROKER):
        cluster.world.kill(one.ref.name, restart=False)
    assert not losses.may_lose_metadata(second), "though its own broker is not there either"


@in_world(play)
async def test_a_directory_is_not_lost_with_which_nobody_else_could_lead(
    cluster: Cluster, losses: Losses, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a topic's only live replica when it was created."""
    assert all(map(losses.may_lose_directory, cluster.machines))
    alone = image_of(9, topic_records("t", leader=1))
    monkeypatch.setattr(losses, "_committed_image", lambda: alone)
    assert list(map(losses.may_lose_directory, cluster.machines)) == [True, False, True]
