"""Waiting for the brokers of a cluster on Ray: missing brokers are named, with reasons."""

from __future__ import annotations

import pytest

from raylog.actors.names import broker_name, supervisor_name
from raylog.actors.runtime.base import ActorRef, ActorSpec, PeerTimeout
from raylog.cli.ray_cluster import until_ready
from raylog.wire.errors import BrokerNotAvailable
from tests.worlds.broker.supervised import CLUSTER, LABEL, Site, labelled, tell
from tests.worlds.decorators import in_world


@in_world(tell)
async def test_brokers_that_do_not_serve_in_time_are_reported_with_the_reason(site: Site) -> None:
    desired, messages = site.desired(), list[str]()
    site.world.end_for_good(broker_name(CLUSTER, 1))
    site.machine_of(1).labels.pop(LABEL)
    began_ms = site.runtime.monotonic_ms()
    missing = "1 of 3 brokers after 30 s: broker 1: no live node carries raylog-broker=1"
    with pytest.raises(BrokerNotAvailable, match=missing):
        await until_ready(site.runtime, desired, desired.brokers, messages.append, 30)
    assert 30_000 <= site.runtime.monotonic_ms() - began_ms < 40_000
    assert "broker 0 serves (2 of 3)" in messages or "broker 0 serves (1 of 3)" in messages
    assert sum("broker 1: no live node carries" in line for line in messages) >= 2


@in_world(tell)
async def test_start_error_of_a_broker_is_reported_during_its_restart(
    site: Site, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def spawn(spec: ActorSpec) -> ActorRef:
        await site.runtime.sleep(20)
        raise PeerTimeout(f"no node has room for {spec.name}")

    supervisor = site.world.resident(supervisor_name(CLUSTER))
    monkeypatch.setattr(supervisor.runtime, "spawn", spawn)
    site.world.end_for_good(broker_name(CLUSTER, 1))
    for timeout_s in (31, 36):
        with pytest.raises(BrokerNotAvailable, match="broker 1: no node has room for"):
            await until_ready(
                site.runtime, site.desired(), [labelled(1)], lambda _: None, timeout_s
            )


@in_world(tell)
async def test_brokers_that_serve_are_waited_for_no_longer(site: Site) -> None:
    messages = list[str]()
    await until_ready(site.runtime, site.desired(), site.desired().brokers, messages.append)
    assert messages == [f"broker {one} serves ({one + 1} of 3)" for one in range(3)]
