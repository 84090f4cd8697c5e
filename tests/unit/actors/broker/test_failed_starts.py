"""What a broker does about children that fail to start, keep ending or hang, and about refusals."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.backoff import LONGEST_MS, LOSSES_AT_ONCE
from raylog.actors.broker.identity import DataDirectory
from raylog.actors.cluster import stop_cluster
from raylog.actors.common_messages import LogDirStatus, PartitionStatus
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import RegisterBroker
from raylog.actors.names import BROKER, CONTROLLER, GATEWAY, GROUP, OFFSETS_TOPIC, REPLICA
from raylog.actors.runtime.base import PeerLost
from raylog.storage.disk import OsDisk
from raylog.wire.errors import DuplicateBrokerRegistration
from tests.worlds.broker import virtual_brokers
from tests.worlds.broker.recording import RecordingCoordinator, RecordingGateway, RecordingReplica
from tests.worlds.broker.virtual_brokers import VirtualBrokers, play

A_WHILE_S = 120
STARTS_MAX = 1 + LOSSES_AT_ONCE + 4 + A_WHILE_S * 1_000 // LONGEST_MS
"""In that while: some at once, four whose waits double, then one for each longest wait."""
ROLES: dict[str, type[Any]] = {
    GATEWAY: RecordingGateway,
    REPLICA: RecordingReplica,
    GROUP: RecordingCoordinator,
}


async def want(role: str, cluster: VirtualBrokers) -> None:
    """Have the broker need a child of a role: one of each but the coordinators is there anyway."""
    await cluster.create(OFFSETS_TOPIC if role == GROUP else "t", at=0, replicas=1)


def starting_by(role: str, start: Callable[[object], Awaitable[None]]) -> type[Any]:
    """A class of a role whose `start` is another."""
    return type(role, (ROLES[role],), {"start": start})


def children(cluster: VirtualBrokers, role: str) -> list[str]:
    begin = f"{cluster.plan.cluster_id}/{role}/"
    return [one.ref.name for one in cluster.world.residents() if one.ref.name.startswith(begin)]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("failure", [OSError("in use"), PeerLost("gone")])
def test_failed_start_is_retried_forever_with_backoff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, failure: Exception
) -> None:
    broken = True
    starts = 0

    async def start(_: object) -> None:
        nonlocal starts
        starts += 1
        if broken:
            raise failure

    async def story(cluster: VirtualBrokers) -> None:
        nonlocal broken
        monkeypatch.setitem(virtual_brokers.ROLES, role, starting_by(role, start))
        await want(role, cluster)
        for name in children(cluster, role):
            cluster.world.drop(name)
        await asyncio.sleep(A_WHILE_S)
        assert LOSSES_AT_ONCE < starts <= STARTS_MAX
        broken = False
        await cluster.until(lambda: bool(children(cluster, role)), 2 * LONGEST_MS / 1000)

    play(story, tmp_path, 0, brokers=1)


@pytest.mark.parametrize("role", ROLES)
def test_actor_that_keeps_ending_is_restarted_with_backoff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    starts = 0

    async def start(_: object) -> None:
        nonlocal starts
        starts += 1

    async def story(cluster: VirtualBrokers) -> None:
        monkeypatch.setitem(virtual_brokers.ROLES, role, starting_by(role, start))
        await want(role, cluster)
        loop = asyncio.get_running_loop()
        end = loop.time() + A_WHILE_S
        while loop.time() < end:
            for name in children(cluster, role):
                cluster.world.drop(name)
            await asyncio.sleep(0.2)
        assert LOSSES_AT_ONCE < starts <= STARTS_MAX

    play(story, tmp_path, 0, brokers=1)


def test_a_status_comes_though_replicas_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging: set[str] = set()

    class Hanging(RecordingReplica):
        async def describe(self) -> list[PartitionStatus]:
            if self.name in hanging:
                await asyncio.Event().wait()
            return await super().describe()

    async def story(cluster: VirtualBrokers) -> None:
        for name in ("a", "b", "c"):
            await cluster.create(name, at=0, replicas=1)
        names = children(cluster, REPLICA)
        await cluster.until(lambda: len(cluster.broker(0)._children.describe()) >= 1 + len(names))
        assert len(names) > 1
        hanging.update(names[1:])
        loop = asyncio.get_running_loop()
        began = loop.time()
        status = await cluster.broker(0).describe()
        assert loop.time() - began < 4
        states = {one.name: one.state for one in status.children if one.role == REPLICA}
        assert {name for name, state in states.items() if state == "silent"} == hanging
        assert {one.topic for one in status.partitions} < {"a", "b", "c"}
        hanging.clear()
        status = await cluster.broker(0).describe()
        assert {one.topic for one in status.partitions} == {"a", "b", "c"}
        assert "silent" not in {one.state for one in status.children}

    monkeypatch.setitem(virtual_brokers.ROLES, REPLICA, Hanging)
    monkeypatch.setattr("raylog.actors.broker.actor.cores_here", lambda: 4)
    play(story, tmp_path, 0, brokers=1)


def test_a_broker_that_is_refused_says_why_and_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = 3

    class Refusing(ControllerActor):
        async def register_broker(self, asked: RegisterBroker) -> int:
            nonlocal refusals
            if asked.broker_id == 1 and refusals:
                refusals -= 1
                raise DuplicateBrokerRegistration("broker id 1 is another's")
            return await super().register_broker(asked)

    async def story(cluster: VirtualBrokers) -> None:
        nonlocal refusals
        refusals = 3
        cluster.lose(1)
        await cluster.come_back(1)
        broker = cluster.broker(1)
        with pytest.raises(DuplicateBrokerRegistration, match="another's"):
            await broker.ready(60_000)
        await cluster.until(lambda: not refusals)
        await cluster.until(lambda: broker._state == "running")
        await broker.ready(1_000)

    refusals = 0
    monkeypatch.setitem(virtual_brokers.ROLES, CONTROLLER, Refusing)
    play(story, tmp_path, 0, brokers=2)


def test_a_controller_that_does_not_start_is_tried_ever_more_rarely_and_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = False
    starts = 0

    class Failing(ControllerActor):
        async def start(self) -> None:
            nonlocal starts
            starts += 1
            if broken:
                raise OSError("no memory")
            await super().start()

    async def story(cluster: VirtualBrokers) -> None:
        nonlocal broken, starts
        broken, starts = True, 0
        cluster.world.drop(cluster.first)
        await asyncio.sleep(A_WHILE_S)
        assert LOSSES_AT_ONCE < starts <= STARTS_MAX
        broken = False
        await cluster.until(lambda: bool(cluster.serving()), 2 * LONGEST_MS / 1000)

    monkeypatch.setitem(virtual_brokers.ROLES, CONTROLLER, Failing)
    play(story, tmp_path, 0, brokers=1)


def test_a_full_disk_at_the_end_is_reported_and_the_end_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: DataDirectory) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    async def story(cluster: VirtualBrokers) -> None:
        monkeypatch.setattr(DataDirectory, "note_end", full)
        broker = cluster.broker(0)
        left = await stop_cluster(cluster.runtime, cluster.plan.cluster_id, [0])
        assert "no space left" in left[0]
        assert cluster.world.failures == []
        assert children(cluster, BROKER) == []
        await broker.stop()  # what the end of its process would let go
        cluster.plan = cluster.plan.__class__(cluster.plan.cluster_id, (), ())

    play(story, tmp_path, 0, brokers=1)


def test_a_directory_that_is_gone_is_an_offline_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "no such directory")

    async def story(cluster: VirtualBrokers) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(OsDisk, "space", gone)
            ask: Callable[[], Any] = cluster.broker(0).describe_log_dirs
            (status,) = await ask()
        assert isinstance(status, LogDirStatus)
        assert (status.offline, status.total_bytes, status.usable_bytes) == (True, -1, -1)

    play(story, tmp_path, 0, brokers=1)
