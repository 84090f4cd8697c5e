"""Starts and stops a cluster, on Ray or in one process.

A cluster consists of the data directories of its brokers, `<data>/broker-<id>`. The identity stored
in them (cluster id, broker ids, voters) is kept; only new directories get one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from raylog.actors.broker.actor import broker_spec
from raylog.actors.broker.health import address_of
from raylog.actors.broker.identity import Identity, read_identity
from raylog.actors.broker.links import read_links
from raylog.actors.broker.listeners import check_reach, for_broker
from raylog.actors.broker.messages import BrokerStatus
from raylog.actors.config import BrokerSettings
from raylog.actors.names import broker_name, controller_name
from raylog.actors.places import Place, on_node
from raylog.actors.remote import Broker, Controller, Method, call
from raylog.actors.runtime.base import ActorSpec, PeerLost, PeerTimeout, Runtime
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
"""Replicas of the metadata log in a new cluster with at least this many brokers; smaller ones
have 1."""
READY_TIMEOUT_MS = 60_000
CALL_TIMEOUT_MS = 5_000
TELL_EVERY_MS = 5_000
"""How often to report what a starting broker is waiting for."""
STOP_TIMEOUT_MS = 90_000
LOOK_S = 0.1
_PREFIX = "broker-"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """A broker to start."""

    broker_id: int
    directory: Path
    settings: dict[str, str]
    """Its start-up settings, including `listeners`."""
    place: Place | None = None
    """Where its processes must run."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster to start."""

    cluster_id: str
    brokers: tuple[BrokerPlan, ...]
    initial_voters: tuple[tuple[int, str], ...]
    """(broker id, directory id) of the voters of the metadata log in a new cluster."""


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
    """Plan one broker per port (0 for a free one) on `data`, existing brokers first.

    `nodes` are the ids of Ray nodes to spread the brokers over, `racks` their racks in turn
    (broker.rack). `advertised_host` is advertised to clients instead of `host`; both are ignored if
    `settings` contain `listeners`, in which case each broker gets the next ports.

    Raises InvalidConfig if there are fewer ports than brokers, or if other machines could reach the
    brokers and `insecure` is not set, and InconsistentClusterId if `data` holds directories of
    different clusters.
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
    """Return the settings of a broker that listens at `host`, advertised as such or otherwise."""
    listeners = {"listeners": f"PLAINTEXT://{host}:{port}"}
    if advertised_host is not None:
        listeners["advertised.listeners"] = f"PLAINTEXT://{advertised_host}:{port}"
    return listeners


def identities(data: Path) -> dict[int, Identity]:
    """Return the brokers that have a directory in `data`, by id.

    Raises InconsistentClusterId if they belong to different clusters, and KafkaStorageError if a
    directory holds another broker than its name says, such as a copy: nothing is read from it.
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
    """Return the directories that may belong to brokers."""
    return [path for path in sorted(data.glob(f"{_PREFIX}*")) if path.is_dir()]


def missing_voters(known: Mapping[int, Identity]) -> list[int]:
    """Return voters that these brokers lack for a majority, or [] if some identity lists enough.

    The voters stored in a directory may be outdated: one that lists enough of the others is
    trusted.
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
    """Return brokers' directories in `data` that hold partitions but no identity."""
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
    """Start every broker of the plan and wait until all of them serve.

    Raises the error of a broker that does not. `tell` is called with progress messages.
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
        await _start_and_report(runtime, specs, timeout_ms, tell)
    return await describe_cluster(runtime, plan.cluster_id, ids)


async def _start_and_report(
    runtime: Runtime, specs: Sequence[ActorSpec], timeout_ms: int, tell: Tell
) -> None:
    """Start brokers and wait until they serve, reporting progress to `tell`."""
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
    """Wait until a broker serves, telling why it does not yet each time it was asked."""
    began_ms = asked_ms = runtime.monotonic_ms()
    deadline_ms = began_ms + timeout_ms
    while True:
        wait_ms = round(min(ask_every_ms, deadline_ms - asked_ms))
        try:
            await call(runtime, name, Broker.ready, wait_ms, timeout_ms=wait_ms + CALL_TIMEOUT_MS)
        except BrokerNotAvailable as not_yet:
            now_ms = runtime.monotonic_ms()
            if now_ms >= deadline_ms or now_ms - asked_ms < wait_ms:
                raise  # timed out, or an error that waiting does not help against
            asked_ms = now_ms
            tell(f"after {(now_ms - began_ms) / 1000:.0f} s {not_yet}")
        else:
            return


async def describe_cluster(
    runtime: Runtime, cluster_id: str, broker_ids: Sequence[int]
) -> list[BrokerStatus]:
    """Return the status of the brokers; raises PeerLost if one is gone."""
    return list(
        await asyncio.gather(
            *(
                call(
                    runtime,
                    broker_name(cluster_id, one),
                    Broker.describe,
                    timeout_ms=CALL_TIMEOUT_MS,
                )
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
    """Shut every broker down cleanly, then end the actors; return why some did not end cleanly.

    `timeout_ms` is for closing the logs; a broker that takes longer is killed.
    """
    failures: dict[int, str] = {}

    async def tell(method: Method[object], broker_id: int) -> None:
        if broker_id in failures:
            return
        failure = await _try_call(runtime, broker_name(cluster_id, broker_id), method, timeout_ms)
        if failure is not None:
            failures[broker_id] = failure

    await asyncio.gather(*(tell(Broker.shutdown, broker_id) for broker_id in broker_ids))
    for name in await _controllers(runtime, cluster_id, broker_ids):
        await runtime.end_for_good(name)
    await asyncio.gather(*(tell(Broker.stop, broker_id) for broker_id in broker_ids))
    for broker_id in broker_ids:
        await runtime.end_for_good(broker_name(cluster_id, broker_id))
    return failures


async def restart_broker(
    runtime: Runtime, plan: ClusterPlan, broker_id: int, *, timeout_ms: int = STOP_TIMEOUT_MS
) -> str | None:
    """Shut down one broker of a running cluster and start it again as planned.

    Returns once it serves: None, or why it did not shut down cleanly. Its leaderships move to other
    brokers before its logs are closed; `timeout_ms` covers both. A broker that is gone is just
    started.
    """
    failure = await stop_broker(runtime, plan.cluster_id, broker_id, timeout_ms=timeout_ms)
    alone = tuple(broker for broker in plan.brokers if broker.broker_id == broker_id)
    await start_cluster(runtime, replace(plan, brokers=alone))
    return failure


async def stop_broker(
    runtime: Runtime, cluster_id: str, broker_id: int, *, timeout_ms: int = STOP_TIMEOUT_MS
) -> str | None:
    """Shut down one broker and end it for good; return why it did not shut down cleanly, if so."""
    name = broker_name(cluster_id, broker_id)
    failure = await _try_call(runtime, name, Broker.shutdown, timeout_ms)
    if failure is None:
        failure = await _try_call(runtime, name, Broker.stop, timeout_ms)
    await runtime.end_for_good(name)
    return failure


async def replace_controller(
    runtime: Runtime,
    cluster_id: str,
    broker_ids: Sequence[int],
    *,
    timeout_ms: int = READY_TIMEOUT_MS,
) -> str:
    """Have another process take over as the controller, near the first broker that can start one.

    Returns its name once it serves. Raises BrokerNotAvailable if no broker starts one, or if it
    does not serve within the timeout.
    """
    deadline_ms = runtime.monotonic_ms() + timeout_ms
    why = "no broker was asked"
    for broker_id in broker_ids:
        asked = broker_name(cluster_id, broker_id)
        try:
            await call(runtime, asked, Broker.replace_controller, timeout_ms=timeout_ms)
            break
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            why = str(failure)
    else:
        raise BrokerNotAvailable(f"no broker starts a controller: {why}")
    while True:
        try:
            name = await call(runtime, asked, Broker.controller, timeout_ms=CALL_TIMEOUT_MS)
            await call(runtime, name, Controller.describe_quorum, timeout_ms=CALL_TIMEOUT_MS)
        except (PeerLost, PeerTimeout, KafkaError) as not_yet:
            if runtime.monotonic_ms() > deadline_ms:
                raise BrokerNotAvailable(f"no controller serves: {not_yet}") from not_yet
            await runtime.sleep(LOOK_S)
        else:
            return name


async def _try_call(
    runtime: Runtime, name: str, method: Method[object], timeout_ms: int
) -> str | None:
    """Have an actor do something; returns why it did not."""
    try:
        await call(runtime, name, method, timeout_ms=timeout_ms)
    except (PeerLost, PeerTimeout, KafkaError) as failure:
        return str(failure)
    return None


async def _controllers(
    runtime: Runtime, cluster_id: str, broker_ids: Sequence[int]
) -> dict[str, None]:
    """Return the names of the controllers that the brokers know."""
    names = dict.fromkeys([controller_name(cluster_id)])
    for broker_id in broker_ids:
        name = broker_name(cluster_id, broker_id)
        try:
            names[await call(runtime, name, Broker.controller, timeout_ms=CALL_TIMEOUT_MS)] = None
        except (PeerLost, PeerTimeout) as gone:
            log.info("broker %d cannot say who the controller is: %s", broker_id, gone)
    return names
