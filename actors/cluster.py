"""Starting and stopping a cluster: the same steps on Ray and in one process.

A cluster is the data directories of its brokers, `<data>/broker-<id>`. What they say (cluster id,
broker ids, voters) is kept; only a directory that is new is given an identity.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from raylog.actors.broker.actor import broker_spec
from raylog.actors.broker.api import BrokerStatus
from raylog.actors.broker.health import address_of
from raylog.actors.broker.identity import Identity, read_identity
from raylog.actors.broker.links import read_links
from raylog.actors.broker.listeners import check_reach, for_broker
from raylog.actors.config import BrokerSettings
from raylog.actors.names import broker_name, controller_name
from raylog.actors.runtime.base import (
    ActorSpec,
    PeerLost,
    PeerTimeout,
    Place,
    Runtime,
    on_node,
)
from raylog.wire.errors import (
    BrokerNotAvailable,
    InconsistentClusterId,
    InvalidConfig,
    KafkaError,
    KafkaStorageError,
)
from raylog.wire.uuids import random_uuid, to_base64

log = logging.getLogger(__name__)
VOTERS_MAX = 3
"""Copies of the metadata log in a new cluster that has as many brokers; else there is one."""
READY_TIMEOUT_MS = 60_000
CALL_TIMEOUT_MS = 5_000
TELL_EVERY_MS = 5_000
"""How often it is told what a broker that starts waits for."""
STOP_TIMEOUT_MS = 90_000
LOOK_S = 0.1
_PREFIX = "broker-"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker to be started."""

    broker_id: int
    directory: Path
    settings: dict[str, str]
    """Its own settings, `listeners` among them."""
    place: Place | None = None
    """Where its processes are held."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster to be started."""

    cluster_id: str
    brokers: tuple[BrokerPlan, ...]
    initial_voters: tuple[tuple[int, str], ...]
    """(broker id, directory id) of who holds the metadata log of a new cluster."""


def plan_cluster(
    data: Path,
    runtime: Runtime,
    *,
    host: str,
    ports: Sequence[int],
    first_broker_id: int = 0,
    settings: Mapping[str, str] | None = None,
    nodes: Sequence[str] = (),
    racks: Sequence[str] = (),
    advertised_host: str | None = None,
    insecure: bool = False,
) -> ClusterPlan:
    """A plan for one broker per port (0: a free one) on `data`; brokers there already come first.

    `nodes` are Ray node ids that the brokers are spread over, `racks` where they stand, in turn
    (broker.rack). Clients are told `advertised_host`, if it is given, instead of `host`; neither
    counts where `settings` have `listeners`, of which each broker has the next ports. Raises
    InvalidConfig when there are fewer ports than brokers, or when other machines could reach the
    brokers and that is not asked for by `insecure`; InconsistentClusterId when directories of
    different clusters lie beside one another.
    """
    known = identities(data)
    ids = sorted(known)
    if len(ids) > len(ports):
        raise InvalidConfig(
            f"{data} holds brokers {ids}: at least {len(ids)} brokers must be started, "
            f"not {len(ports)}"
        )
    fresh = (n for n in range(first_broker_id, first_broker_id + 2 * len(ports)) if n not in known)
    ids += [next(fresh) for _ in range(len(ports) - len(ids))]
    brokers = tuple(
        BrokerPlan(
            broker_id,
            data / f"{_PREFIX}{broker_id}",
            {
                **listeners_of(host, port, advertised_host),
                **({"broker.rack": racks[at % len(racks)]} if racks else {}),
                **for_broker(settings or {}, at),
            },
            on_node(nodes[at % len(nodes)]) if nodes else None,
        )
        for at, (broker_id, port) in enumerate(zip(ids, ports, strict=True))
    )
    for broker in brokers:
        check_reach(BrokerSettings(broker.settings), insecure=insecure)
        read_links(BrokerSettings(broker.settings))
        address_of(BrokerSettings(broker.settings))
    if known:
        first = next(iter(known.values()))
        return ClusterPlan(first.cluster_id, brokers, first.voters)
    cluster_id = to_base64(random_uuid(runtime.random))
    voters = ids[: VOTERS_MAX if len(ids) >= VOTERS_MAX else 1]
    directories = tuple((one, to_base64(random_uuid(runtime.random))) for one in voters)
    return ClusterPlan(cluster_id, brokers, directories)


def listeners_of(host: str, port: int, advertised_host: str | None) -> dict[str, str]:
    """The settings of a broker that listens there, and is known there or under another name."""
    listeners = {"listeners": f"PLAINTEXT://{host}:{port}"}
    if advertised_host is not None:
        listeners["advertised.listeners"] = f"PLAINTEXT://{advertised_host}:{port}"
    return listeners


def identities(data: Path) -> dict[int, Identity]:
    """The brokers that have a directory in `data`.

    Raises InconsistentClusterId for brokers of different clusters, and KafkaStorageError for a
    directory that holds another broker than its name says: a copy, say, of which nothing is read.
    """
    found = {}
    for directory in _directories(data):
        identity = read_identity(directory)
        if identity is None:
            continue
        if directory.name != f"{_PREFIX}{identity.broker_id}":
            raise KafkaStorageError(
                f"{directory} holds broker {identity.broker_id}, which is expected in "
                f"{_PREFIX}{identity.broker_id}. Rename it, or move it out of {data}"
            )
        found[identity.broker_id] = identity
    if len({identity.cluster_id for identity in found.values()}) > 1:
        owners = (f"{_PREFIX}{one} of {found[one].cluster_id}" for one in sorted(found))
        raise InconsistentClusterId(
            f"{data} holds brokers of different clusters: {', '.join(owners)}. Leave those of one "
            "cluster there, and move the others out"
        )
    return found


def _directories(data: Path) -> list[Path]:
    """What may be brokers' directories."""
    return [path for path in sorted(data.glob(f"{_PREFIX}*")) if path.is_dir()]


def missing_voters(known: Mapping[int, Identity]) -> list[int]:
    """Voters without which these brokers have no majority, whichever of them is right; else none.

    What a directory says of the voters may be old: one that names enough of the others is believed.
    """
    missing: set[int] = set()
    for identity in known.values():
        absent = [
            broker_id
            for broker_id, directory_id in identity.voters
            if broker_id not in known or known[broker_id].directory_id != directory_id
        ]
        if not absent or 2 * len(absent) < len(identity.voters):
            return []
        missing.update(absent)
    return sorted(missing)


def nameless(data: Path) -> list[Path]:
    """Brokers' directories in `data` that hold something, and do not say whose they are."""
    return [
        directory
        for directory in _directories(data)
        if read_identity(directory) is None
        and any(one.parent.name in ("topics", "metadata") for one in directory.glob("*/*"))
    ]


async def start_cluster(
    runtime: Runtime,
    plan: ClusterPlan,
    timeout_ms: int = READY_TIMEOUT_MS,
    *,
    tell: Tell | None = None,
) -> list[BrokerStatus]:
    """Start every broker of the plan and wait until all of them serve; raises why one does not.

    `tell` takes in words what is reached, and what is still waited for.
    """
    ids = [broker.broker_id for broker in plan.brokers]
    specs = [
        broker_spec(
            cluster_id=plan.cluster_id,
            broker_id=broker.broker_id,
            data=broker.directory,
            settings=broker.settings,
            broker_ids=ids,
            initial_voters=list(plan.initial_voters),
            place=broker.place,
        )
        for broker in plan.brokers
    ]
    if tell is None:
        await asyncio.gather(*map(runtime.spawn, specs))
        await asyncio.gather(
            *(_ready(runtime, spec.name, timeout_ms, timeout_ms) for spec in specs)
        )
    else:
        await _start_telling(runtime, specs, timeout_ms, tell)
    return await describe_cluster(runtime, plan.cluster_id, ids)


async def _start_telling(
    runtime: Runtime, specs: Sequence[ActorSpec], timeout_ms: int, tell: Tell
) -> None:
    """Start brokers and wait until they serve; `tell` how far that is."""
    started, serving = itertools.count(1), itertools.count(1)

    async def spawn(spec: ActorSpec) -> None:
        await runtime.spawn(spec)
        tell(f"{next(started)} of {len(specs)} broker processes started")

    async def wait(spec: ActorSpec) -> None:
        await _ready(runtime, spec.name, timeout_ms, TELL_EVERY_MS, tell)
        tell(f"{next(serving)} of {len(specs)} brokers serve")

    await asyncio.gather(*map(spawn, specs))
    tell("waiting for the controller and the metadata")
    await asyncio.gather(*map(wait, specs))


async def _ready(
    runtime: Runtime,
    name: str,
    timeout_ms: int,
    ask_every_ms: int,
    tell: Tell = lambda _: None,
) -> None:
    """Wait until a broker serves; `tell` why it does not yet, each time it has been asked."""
    began_ms = asked_ms = runtime.monotonic_ms()
    deadline_ms = began_ms + timeout_ms
    while True:
        wait_ms = round(min(ask_every_ms, deadline_ms - asked_ms))
        try:
            await runtime.call(name, "ready", wait_ms, timeout_ms=wait_ms + CALL_TIMEOUT_MS)
        except BrokerNotAvailable as not_yet:
            now_ms = runtime.monotonic_ms()
            if now_ms >= deadline_ms or now_ms - asked_ms < wait_ms:
                raise  # the time is up, or it is a refusal, for which nobody has waited
            asked_ms = now_ms
            tell(f"after {(now_ms - began_ms) / 1000:.0f} s {not_yet}")
        else:
            return


async def describe_cluster(
    runtime: Runtime, cluster_id: str, broker_ids: Sequence[int]
) -> list[BrokerStatus]:
    """How the brokers stand; raises PeerLost for one that is gone."""
    return list(
        await asyncio.gather(
            *(
                runtime.call(broker_name(cluster_id, one), "describe", timeout_ms=CALL_TIMEOUT_MS)
                for one in broker_ids
            )
        )
    )


async def stop_cluster(
    runtime: Runtime,
    cluster_id: str,
    broker_ids: Sequence[int],
    *,
    timeout_ms: int = STOP_TIMEOUT_MS,
) -> dict[int, str]:
    """Shut every broker down cleanly, then end the actors; returns what did not end cleanly.

    `timeout_ms` is for closing the logs; a broker that takes longer is ended as it is.
    """
    failures: dict[int, str] = {}

    async def tell(method: str, broker_id: int) -> None:
        if broker_id in failures:
            return
        failure = await _told(runtime, broker_name(cluster_id, broker_id), method, timeout_ms)
        if failure is not None:
            failures[broker_id] = failure

    await asyncio.gather(*(tell("shutdown", broker_id) for broker_id in broker_ids))
    for name in await _controllers(runtime, cluster_id, broker_ids):
        await runtime.end_for_good(name)
    await asyncio.gather(*(tell("stop", broker_id) for broker_id in broker_ids))
    for broker_id in broker_ids:
        await runtime.end_for_good(broker_name(cluster_id, broker_id))
    return failures


async def restart_broker(
    runtime: Runtime, plan: ClusterPlan, broker_id: int, *, timeout_ms: int = STOP_TIMEOUT_MS
) -> str | None:
    """Shut one broker of a running cluster down and start it again as planned.

    Returns when it serves: None, or why it did not shut down cleanly. Its leadership moves to
    others before its logs are closed; `timeout_ms` is for both. A broker that is gone is started.
    """
    failure = await stop_broker(runtime, plan.cluster_id, broker_id, timeout_ms=timeout_ms)
    alone = tuple(broker for broker in plan.brokers if broker.broker_id == broker_id)
    await start_cluster(runtime, replace(plan, brokers=alone))
    return failure


async def stop_broker(
    runtime: Runtime, cluster_id: str, broker_id: int, *, timeout_ms: int = STOP_TIMEOUT_MS
) -> str | None:
    """Shut one broker down, and end it for good; None, or why it did not shut down cleanly."""
    name = broker_name(cluster_id, broker_id)
    failure = await _told(runtime, name, "shutdown", timeout_ms)
    if failure is None:
        failure = await _told(runtime, name, "stop", timeout_ms)
    await runtime.end_for_good(name)
    return failure


async def replace_controller(
    runtime: Runtime,
    cluster_id: str,
    broker_ids: Sequence[int],
    *,
    timeout_ms: int = READY_TIMEOUT_MS,
) -> str:
    """Have another process be the controller, near the first of the brokers that can.

    Returns its name once it serves. Raises BrokerNotAvailable where no broker starts one, or where
    it does not serve within the timeout.
    """
    deadline_ms = runtime.monotonic_ms() + timeout_ms
    why = "no broker was asked"
    for broker_id in broker_ids:
        asked = broker_name(cluster_id, broker_id)
        try:
            await runtime.call(asked, "replace_controller", timeout_ms=timeout_ms)
            break
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            why = str(failure)
    else:
        raise BrokerNotAvailable(f"no broker starts a controller: {why}")
    while True:
        try:
            name: str = await runtime.call(asked, "controller", timeout_ms=CALL_TIMEOUT_MS)
            await runtime.call(name, "describe_quorum", timeout_ms=CALL_TIMEOUT_MS)
        except (PeerLost, PeerTimeout, KafkaError) as not_yet:
            if runtime.monotonic_ms() > deadline_ms:
                raise BrokerNotAvailable(f"no controller serves: {not_yet}") from not_yet
            await runtime.sleep(LOOK_S)
        else:
            return name


async def _told(runtime: Runtime, name: str, method: str, timeout_ms: int) -> str | None:
    """Have an actor do something; returns why it did not."""
    try:
        await runtime.call(name, method, timeout_ms=timeout_ms)
    except (PeerLost, PeerTimeout, KafkaError) as failure:
        return str(failure)
    return None


async def _controllers(
    runtime: Runtime, cluster_id: str, broker_ids: Sequence[int]
) -> dict[str, None]:
    """The names of controllers that the brokers know of."""
    names = dict.fromkeys([controller_name(cluster_id)])
    for broker_id in broker_ids:
        name = broker_name(cluster_id, broker_id)
        try:
            names[await runtime.call(name, "controller", timeout_ms=CALL_TIMEOUT_MS)] = None
        except (PeerLost, PeerTimeout) as gone:
            log.info("broker %d cannot say who the controller is: %s", broker_id, gone)
    return names
