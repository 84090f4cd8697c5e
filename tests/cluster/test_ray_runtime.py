"""The Ray runtime keeps the contract of `Runtime`: names, calls, refusals, links, deaths."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from raylog.actors.endpoints import Endpoint
from raylog.actors.names import colocated_name
from raylog.actors.places import NODE_ID_LABEL, Place, Share
from raylog.actors.runtime.base import ActorGone, ActorRef, ActorSpec, PeerLost, PeerTimeout
from raylog.actors.runtime.processes import ProcessRecord, is_running
from raylog.actors.runtime.ray_node import actors_named
from raylog.wire.errors import UnknownTopicOrPartition, UnsupportedVersion
from tests.worlds.decorators import in_loop

if TYPE_CHECKING:
    from raylog.actors.runtime.ray import RayRuntime

Driver = Callable[[], "RayRuntime"]


def replica(cluster_id: str, number: int = 0, *, restarts: bool = False) -> ActorSpec:
    name = f"{cluster_id}/replica/0/{number}"
    args = {"name": name, "cluster_id": cluster_id, "broker_id": 0}
    return ActorSpec(name, "replica", args, restarts=restarts)


async def until_gone(runtime: RayRuntime, name: str) -> None:
    """Ray forgets the name of a dead actor when it has noticed."""
    async with asyncio.timeout(20):
        while True:
            try:
                await runtime.find(name)
            except ActorGone:
                return


@in_loop
async def test_an_actor_is_found_called_linked_and_killed(driver: Driver, cluster_id: str) -> None:
    runtime = driver()
    spec = replica(cluster_id)
    ref = await runtime.spawn(spec)
    assert await runtime.find(spec.name) == ref
    assert ref.pid != os.getpid()
    status = await runtime.call(ref, "ping", timeout_ms=5000)
    assert (status["name"], status["pid"]) == (spec.name, ref.pid)
    link = await runtime.connect(ref)
    with pytest.raises(UnknownTopicOrPartition, match="not open here"):
        await link.ask("offset_for", [b"t" * 16, 0, -1, -1, 0])
    lost: asyncio.Future[ActorRef] = asyncio.get_running_loop().create_future()
    runtime.watch(ref, lost.set_result)
    held = link.ask("fetch", [1, False, False, 0, 100, 1, True, [], []])
    await runtime.kill(ref)
    with pytest.raises(PeerLost):
        await held
    assert await asyncio.wait_for(lost, 10) == ref
    with pytest.raises(PeerLost):
        await runtime.call(ref, "ping", timeout_ms=5000)
    await until_gone(runtime, spec.name)


@in_loop
async def test_an_actor_that_restarts_is_another_instance(driver: Driver, cluster_id: str) -> None:
    runtime = driver()
    spec = replica(cluster_id, restarts=True)
    first = await runtime.spawn(spec)
    os.kill(first.pid, signal.SIGKILL)
    second = first
    async with asyncio.timeout(30):
        while second.instance == first.instance:
            try:
                second = await runtime.find(spec.name)
            except ActorGone:
                continue
    assert second.pid != first.pid
    await runtime.end_for_good(spec.name)
    await until_gone(runtime, spec.name)


def test_a_share_is_kept_free_until_it_is_released(
    driver: Driver, cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while no actor is in it; and an actor shows its role."""
    import ray

    from raylog.actors.runtime import ray_places

    def free_cpus() -> float:
        found = ray.available_resources()  # type: ignore[no-untyped-call]  # Ray's
        return float(found.get("CPU", 0.0))

    async def cpus(expected: float) -> None:
        async with asyncio.timeout(20):
            while free_cpus() != expected:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.05)

    async def main() -> None:
        runtime = driver()
        free = free_cpus()
        here = {NODE_ID_LABEL: ray.get_runtime_context().get_node_id()}
        place = Place(here, Share(cluster_id, 0.5, 1_000_000))
        ref = await runtime.spawn(replace(replica(cluster_id), place=place))
        assert ref.node_id == here[NODE_ID_LABEL]
        (entry,) = actors_named(ref.name)
        assert entry.class_name == "Replica"
        await cpus(free - 0.5)
        await runtime.kill(ref)
        await until_gone(runtime, ref.name)
        await cpus(free - 0.5)
        ray_places.release(cluster_id)
        await cpus(free)
        monkeypatch.setattr(ray_places, "SHARE_TIMEOUT_S", 0.2)
        large = Place(here, Share(f"{cluster_id}-large", 10_000, 1))
        with pytest.raises(PeerTimeout, match="has 10000 CPUs"):
            await runtime.spawn(replace(replica(cluster_id, 1), place=large))
        ray_places.release(f"{cluster_id}-large")

    asyncio.run(main())


@in_loop
async def test_finding_an_unknown_name_raises_actor_gone(driver: Driver, cluster_id: str) -> None:
    runtime = driver()
    with pytest.raises(ActorGone):
        await runtime.find(f"{cluster_id}/replica/0/99")


@in_loop
async def test_a_call_past_its_deadline_is_a_timeout(driver: Driver, cluster_id: str) -> None:
    runtime = driver()
    ref = await runtime.spawn(replica(cluster_id))
    os.kill(ref.pid, signal.SIGSTOP)
    try:
        with pytest.raises(PeerTimeout):
            await runtime.call(ref, "ping", timeout_ms=200)
    finally:
        os.kill(ref.pid, signal.SIGCONT)
    assert (await runtime.call(ref, "ping", timeout_ms=10_000))["pid"] == ref.pid
    await runtime.kill(ref)


def process_of(ref: ActorRef) -> ProcessRecord:
    return ProcessRecord(ref.name, ref.pid, ref.started)


async def until_nobody(cluster_id: str) -> None:
    """Ray's own table has no living actor of the cluster, nor one that is to come."""
    async with asyncio.timeout(20):
        while actors_named(f"{cluster_id}/"):  # noqa: ASYNC110 - Ray raises no event for it
            await asyncio.sleep(0.05)


@in_loop
async def test_a_mistake_in_a_call_ends_the_callee_and_not_the_caller(
    driver: Driver, cluster_id: str
) -> None:
    runtime = driver()
    ref = await runtime.spawn(replica(cluster_id))
    with pytest.raises(PeerLost):
        await runtime.call(ref, "configure", 5, timeout_ms=10_000)
    await until_gone(runtime, ref.name)
    assert not is_running(process_of(ref))


@in_loop
async def test_unknown_method_or_signature_is_unsupported_version(
    driver: Driver, cluster_id: str
) -> None:
    runtime = driver()
    ref = await runtime.spawn(replica(cluster_id))
    for asked in (("sing",), ("ping", 1), ("_refusal", "k", None)):
        with pytest.raises(UnsupportedVersion):
            await runtime.call(ref, *asked, timeout_ms=5_000)
    assert (await runtime.call(ref, "ping", timeout_ms=5_000))["pid"] == ref.pid
    await runtime.kill(ref)


@pytest.mark.parametrize("restarts", [False, True])
@in_loop
async def test_a_start_that_fails_leaves_nobody(
    driver: Driver, cluster_id: str, restarts: bool
) -> None:
    runtime = driver()
    spec = replica(cluster_id, restarts=restarts)
    with pytest.raises(PeerLost, match="replica/0/0: TypeError: "):
        await runtime.spawn(replace(spec, args={}))
    await until_nobody(cluster_id)


def test_a_start_that_took_too_long_is_ended_for_good(
    driver: Driver, cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raylog.actors.runtime import ray as ray_runtime

    async def main() -> None:
        runtime = driver()
        in_time = []
        for number, timeout_s in enumerate((0.001, 0.05, 0.2, 0.4)):
            monkeypatch.setattr(ray_runtime, "START_TIMEOUT_S", timeout_s)
            with suppress(PeerTimeout):
                in_time.append(await runtime.spawn(replica(cluster_id, number, restarts=True)))
        monkeypatch.undo()
        assert len(in_time) < 3, "no process starts in 0.05 s"
        for ref in in_time:
            await runtime.end_for_good(ref.name)
        await until_nobody(cluster_id)
        await runtime.end_for_good((await runtime.spawn(replica(cluster_id, 0))).name)

    asyncio.run(main())


@in_loop
async def test_a_stranger_who_has_inherited_the_pid_is_left_alone(
    driver: Driver, cluster_id: str
) -> None:
    runtime = driver()
    ref = await runtime.spawn(replica(cluster_id))
    boot, _, _ = ref.started.rpartition(":")
    await runtime.kill(replace(ref, started=f"{boot}:1"))
    assert is_running(process_of(ref))
    await runtime.kill(ref)
    assert not is_running(process_of(ref))


@in_loop
async def test_an_actor_on_another_machine_is_ended_by_ray(driver: Driver, cluster_id: str) -> None:
    runtime = driver()
    ref = await runtime.spawn(replica(cluster_id))
    await runtime.kill(replace(ref, started="another boot:1", pid=os.getpid()))
    await until_nobody(cluster_id)


def test_deadlines_hold_while_ray_does_not_answer(
    driver: Driver, cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    answers = threading.Event()
    find = ray.get_actor

    def stalled(*args: Any) -> Any:
        answers.wait(60)
        return find(*args)

    async def main() -> None:
        runtime = driver()
        ref = await runtime.spawn(replica(cluster_id))
        other = driver()
        monkeypatch.setattr(ray, "get_actor", stalled)
        before = threading.active_count()
        for _ in range(5):
            calls = (other.call(ref, "ping", timeout_ms=20) for _ in range(5))
            late = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(one) for one in late] == [PeerTimeout] * 5
        assert threading.active_count() <= before + 1, "one look-up for all"
        answers.set()
        assert (await other.call(ref, "ping", timeout_ms=10_000))["pid"] == ref.pid
        await runtime.kill(ref)

    asyncio.run(main())


@pytest.mark.long
@in_loop
async def test_a_process_that_keeps_ending_is_restarted_ever_more_slowly(
    driver: Driver, cluster_id: str, local_ray: Path
) -> None:
    runtime = driver()
    ref = await runtime.spawn(replica(cluster_id, restarts=True))
    (noted,) = (local_ray.parent / "starts").glob(f"{cluster_id}*.json")
    known = json.loads(noted.read_text())
    assert known["losses"] == 0
    noted.write_text(json.dumps(known | {"losses": 1_000}))
    with pytest.raises(PeerLost):
        await runtime.call(ref, "configure", 5, timeout_ms=10_000)
    async with asyncio.timeout(20):
        while True:
            try:
                await runtime.find(ref.name)
            except ActorGone as gone:
                if "starts again within 10000 ms: TypeError: " in str(gone):
                    break
    await runtime.end_for_good(ref.name)
    await until_nobody(cluster_id)


# ---- co-located actors -------------------------------------------------------------------------


def colocated(host: str, number: int = 1) -> ActorSpec:
    """A second replica that lives in the process of the first."""
    own, _, _ = host.rpartition("/")
    name = colocated_name(f"{own}/{number}", host)
    args = {"name": name, "cluster_id": host.partition("/")[0], "broker_id": 0}
    return ActorSpec(name, "replica", args)


async def names_of(runtime: RayRuntime, *refs: ActorRef) -> list[str]:
    """The actors as they name themselves; each must be in the process that its ref says."""
    found = [await runtime.call(ref, "ping", timeout_ms=5000) for ref in refs]
    assert [one["pid"] for one in found] == [ref.pid for ref in refs]
    return [one["name"] for one in found]


@in_loop
async def test_a_lodger_lives_in_its_hosts_process_and_leaves_it(
    driver: Driver, cluster_id: str
) -> None:
    runtime = driver()
    host = await runtime.spawn(replica(cluster_id))
    guest = await runtime.spawn(colocated(host.name))
    assert (guest.pid, guest.node_id) == (host.pid, host.node_id)
    assert guest.address != host.address
    assert guest.instance != host.instance
    assert await names_of(runtime, host, guest) == [host.name, guest.name]
    other = driver()
    assert await other.find(guest.name) == guest
    lost: asyncio.Future[ActorRef] = asyncio.get_running_loop().create_future()
    runtime.watch(guest, lost.set_result)
    link = await runtime.connect(guest)
    held = link.ask("fetch", [1, False, False, 0, 100, 1, True, [], []])
    await runtime.call(guest, "stop", timeout_ms=5000)
    await runtime.dismiss(guest)
    with pytest.raises(PeerLost):
        await held
    assert await asyncio.wait_for(lost, 10) == guest
    with pytest.raises(PeerLost, match="does not live here"):
        await runtime.call(guest, "ping", timeout_ms=5000)
    with pytest.raises(ActorGone):
        await runtime.find(guest.name)
    with pytest.raises(PeerLost):
        await runtime.connect(guest)
    assert await names_of(runtime, host) == [host.name]
    await runtime.kill(host)


@in_loop
async def test_lodger_and_host_end_together(driver: Driver, cluster_id: str) -> None:
    runtime = driver()
    host = await runtime.spawn(replica(cluster_id))
    guest = await runtime.spawn(colocated(host.name))
    lost: asyncio.Queue[str] = asyncio.Queue()
    for ref in (host, guest):
        runtime.watch(ref, lambda peer: lost.put_nowait(peer.name))
    await runtime.kill(guest)
    async with asyncio.timeout(10):
        assert {await lost.get(), await lost.get()} == {host.name, guest.name}
    for ref in (host, guest):
        with pytest.raises(PeerLost):
            await runtime.call(ref, "ping", timeout_ms=5000)
    with pytest.raises(PeerLost):
        await runtime.spawn(colocated(host.name, 2))


@in_loop
async def test_a_lodger_is_ended_for_good_without_its_host(driver: Driver, cluster_id: str) -> None:
    runtime = driver()
    host = await runtime.spawn(replica(cluster_id))
    guest = await runtime.spawn(colocated(host.name))
    for _ in range(2):
        await runtime.end_for_good(guest.name)
        with pytest.raises(ActorGone):
            await runtime.find(guest.name)
    assert await names_of(runtime, host) == [host.name]
    await runtime.end_for_good(host.name)
    await until_gone(runtime, host.name)
    await runtime.end_for_good(guest.name)


def test_a_host_that_does_not_let_its_lodger_go_ends(
    driver: Driver, cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raylog.actors.runtime import ray as ray_runtime

    monkeypatch.setattr(ray_runtime, "LEAVE_TIMEOUT_S", 0.2)

    async def main() -> None:
        runtime = driver()
        for end in (runtime.dismiss, lambda ref: runtime.end_for_good(ref.name)):
            host = await runtime.spawn(replica(cluster_id))
            guest = await runtime.spawn(colocated(host.name))
            os.kill(host.pid, signal.SIGSTOP)
            await end(guest)
            await until_gone(runtime, host.name)

    asyncio.run(main())


@in_loop
async def test_failed_start_of_a_colocated_actor_is_raised_and_can_be_retried(
    driver: Driver, cluster_id: str
) -> None:
    runtime = driver()
    host = await runtime.spawn(replica(cluster_id))
    taken = socket.create_server(("127.0.0.1", 0))
    name = colocated_name(f"{cluster_id}/gateway/0/1", host.name)
    address = {"listening": (Endpoint("PLAINTEXT", *taken.getsockname()),)}
    args = {"name": name, "cluster_id": cluster_id, "broker_id": 0, "settings": {}, **address}
    with pytest.raises(PeerLost, match=r": OSError: .*in use"):
        await runtime.spawn(ActorSpec(name, "gateway", args))
    taken.close()
    guest = await runtime.spawn(ActorSpec(name, "gateway", args))
    assert guest.pid == host.pid
    await runtime.kill(host)
