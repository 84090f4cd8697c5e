"""Stopping a broker for a while leaves nothing of it on its node, whatever was in progress."""

from __future__ import annotations

import pytest

from raylog.actors.cluster import replace_controller
from raylog.actors.names import (
    CONTROLLER,
    GATEWAY,
    SUPERVISOR,
    broker_name,
    controller_name,
    rival_name,
    supervisor_name,
)
from raylog.actors.runtime.base import ActorRef, ActorSpec
from raylog.actors.supervisor.rolling import Stopped, stop_held
from raylog.actors.supervisor.rules.desired import place_of
from raylog.actors.supervisor.rules.holds import Hold
from raylog.simulation.runtime import SimRuntime
from tests.worlds.broker.supervised import CLUSTER, Site, labelled, tell
from tests.worlds.decorators import in_world

HELD = Hold(1, "its machine goes down", "machine-1")


def stand_in(broker_id: int, name: str) -> ActorSpec:
    """What runs under the name of a controller in the share of a broker, and ends when told to."""
    place = place_of(CLUSTER, labelled(broker_id))
    return ActorSpec(name, SUPERVISOR, {"cluster_id": "none"}, place, restarts=True)


def names_on(site: Site, broker_id: int) -> list[str]:
    return [one.ref.name for one in site.world.on(site.machine_of(broker_id))]


async def stopped(site: Site, runtime: SimRuntime | None = None) -> Stopped:
    return await stop_held(runtime or site.runtime, site.desired(), HELD, timeout_ms=25_000)


@in_world(tell)
async def test_a_controller_that_a_broker_has_begun_ends_with_it(site: Site) -> None:
    rival = rival_name(CLUSTER, 1, 7)
    await site.runtime.spawn(stand_in(1, rival))
    assert await stopped(site) == Stopped()
    assert rival not in await site.runtime.names(CLUSTER)
    assert names_on(site, 1) == []
    await site.all_serve(0, 2)


@in_world(tell)
async def test_a_rival_that_runs_near_another_broker_by_now_goes_on(site: Site) -> None:
    rival = rival_name(CLUSTER, 1, 7)
    await site.runtime.spawn(stand_in(2, rival))
    assert await stopped(site) == Stopped()
    assert rival in names_on(site, 2)


@in_world(tell)
async def test_a_controller_on_the_node_of_a_broker_that_is_gone_goes_on_elsewhere(
    site: Site,
) -> None:
    await replace_controller(site.runtime, CLUSTER, [1])
    site.world.end_for_good(broker_name(CLUSTER, 1))
    assert (await stopped(site)).left == ()
    assert names_on(site, 1) == []
    assert controller_name(CLUSTER) in await site.runtime.names(CLUSTER)
    await site.all_serve(0, 2)


@in_world(tell)
async def test_processes_that_have_outlived_their_broker_end(site: Site) -> None:
    site.world.end_for_good(broker_name(CLUSTER, 1))
    assert any(f"/{GATEWAY}/1/" in name for name in names_on(site, 1))
    found = await stopped(site)
    assert found.unclean is not None
    assert found.left == ()
    assert names_on(site, 1) == []


@in_world(tell)
async def test_a_broker_that_is_held_after_it_was_decided_to_start_it_does_not_run(
    site: Site, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = site.world.resident(supervisor_name(CLUSTER))
    spawn = supervisor.runtime.spawn
    held: list[Stopped] = []

    async def spawn_late(spec: ActorSpec) -> ActorRef:
        if spec.name == broker_name(CLUSTER, 1):
            held.append(await stopped(site))
        started: ActorRef = await spawn(spec)
        return started

    monkeypatch.setattr(supervisor.runtime, "spawn", spawn_late)
    site.world.end_for_good(broker_name(CLUSTER, 1))
    await site.until(lambda: bool(held))
    await site.runtime.sleep(30)
    assert broker_name(CLUSTER, 1) not in await site.runtime.names(CLUSTER)
    assert names_on(site, 1) == []
    await site.until_trouble(1, "is held: its machine goes down")


def test_actor_that_does_not_end_in_time_is_reported() -> None:
    class Deaf(SimRuntime):
        """A runtime that does not end controllers."""

        async def end_for_good(self, name: str) -> None:
            if CONTROLLER not in name:
                await super().end_for_good(name)

    async def story(site: Site) -> None:
        rival = rival_name(CLUSTER, 1, 7)
        await site.runtime.spawn(stand_in(1, rival))
        began_ms = site.runtime.monotonic_ms()
        assert await stopped(site, Deaf(site.world)) == Stopped(None, (rival,))
        assert site.runtime.monotonic_ms() - began_ms < 30_000

    tell(story)
