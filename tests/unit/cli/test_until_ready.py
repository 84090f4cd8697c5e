"""Waiting for the brokers of a cluster on a Ray: who is missing is told, and why."""

from __future__ import annotations

import pytest

from raylog.actors.names import broker_name, supervisor_name
from raylog.actors.runtime.base import ActorRef, ActorSpec, PeerTimeout
from raylog.cli.ray_cluster import until_ready
from raylog.wire.errors import BrokerNotAvailable
from tests.support.supervised import CLUSTER, LABEL, Site, labelled, tell


def test_brokers_that_do_not_serve_in_time_are_told_with_the_reason() -> None:
    async def story(site: Site) -> None:
        desired, told = site.desired(), list[str]()
        site.world.end_for_good(broker_name(CLUSTER, 1))
        site.machine_of(1).labels.pop(LABEL)
        began_ms = site.runtime.monotonic_ms()
        missing = "1 of 3 brokers after 30 s: broker 1: no live node carries raylog-broker=1"
        with pytest.raises(BrokerNotAvailable, match=missing):
            await until_ready(site.runtime, desired, desired.brokers, told.append, 30)
        assert 30_000 <= site.runtime.monotonic_ms() - began_ms < 40_000
        assert "broker 0 serves, 2 of 3 do" in told or "broker 0 serves, 1 of 3 do" in told
        assert sum("broker 1: no live node carries" in line for line in told) >= 2

    tell(story)


def test_what_a_broker_failed_to_start_with_is_told_while_it_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(site: Site) -> None:
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

    tell(story)


def test_brokers_that_serve_are_waited_for_no_longer() -> None:
    async def story(site: Site) -> None:
        told = list[str]()
        await until_ready(site.runtime, site.desired(), site.desired().brokers, told.append)
        assert told == [f"broker {one} serves, {one + 1} of 3 do" for one in range(3)]

    tell(story)
