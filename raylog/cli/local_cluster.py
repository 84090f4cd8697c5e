"""Starts, inspects and stops a cluster on this machine: Ray, and the actors on it.

`ray_cluster` does so for clusters on a Ray that already runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from raylog.cli.failures import EXIT_UNREACHABLE, CommandFailed, last_line, of_the_system
from raylog.cli.output import counted
from raylog.cli.shutting_down import shut_down
from raylog.cli.start_checks import (
    check_listeners,
    check_listening,
    check_metrics,
    check_reach,
)
from raylog.cluster_record import (
    BrokerRecord,
    ClusterRecord,
    forget_record,
    read_record,
    run_directory,
    secret_path,
)

if TYPE_CHECKING:
    from raylog.actors.broker.identity import Identity
    from raylog.actors.broker.messages import BrokerHealth, BrokerStatus
    from raylog.actors.cluster import BrokerPlan, ClusterPlan
    from raylog.actors.endpoints import Endpoint
    from raylog.actors.runtime.ray_node import ActorEntry
    from raylog.cli.restarting import Restarts

T = TypeVar("T")
Report = Callable[[str], None]

_ROOM_BYTES = 1024 * 1024
"""A disk with less free space counts as full."""
STOP_TIMEOUT_S = 60.0
"""How long brokers may take to close their logs."""
OWN_DEFAULTS = {"health.listener": "127.0.0.1:0"}
"""Default settings of brokers that all run on this machine."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The cluster that `raylog up` was asked to start."""

    data: Path
    brokers: int
    host: str
    port: int
    first_broker_id: int
    settings: dict[str, str] = field(default_factory=dict)
    nodes: int = 1
    """Ray nodes to start on this machine; the brokers are spread over them."""
    racks: tuple[str, ...] = ()
    """Racks of the brokers, in turn."""
    metrics: bool = False
    advertised_host: str | None = None
    """The host advertised to clients, if not `host`."""
    insecure: bool = False
    """Whether other machines may reach the brokers without encryption and logins."""


def count_brokers(data: Path, asked: int | None) -> int:
    """Return how many brokers to start: `asked`, or all that have data, but at least one.

    Raises CommandFailed if a broker with data would not start, or if the metadata is lost.
    """
    from raylog.actors.cluster import missing_voters, nameless

    identities = known_brokers(data)
    known = sorted(identities)
    lost = nameless(data.absolute())
    if asked is None and lost:
        raise CommandFailed(
            f"{lost[0]} holds a broker's data, but its meta.json is missing: only the other "
            "brokers would start",
            "Restore the file; with --brokers, the broker says what the file must contain",
        )
    missing = missing_voters(identities)
    if asked is None and missing:
        raise CommandFailed(
            f"{data} holds broker {', '.join(map(str, known))}, but the metadata is lost: the "
            f"directories of the voters {', '.join(map(str, missing))} are missing",
            "Restore them. If they are lost for good, see docs/operations.md, Lost directories: "
            f"raylog metadata rebuild --data {data}",
        )
    if asked is not None and asked < len(known):
        raise CommandFailed(
            f"{data} holds the brokers {', '.join(map(str, known))}, but --brokers is {asked}",
            f"Omit --brokers, or give at least {len(known)}",
        )
    return asked or len(known) or 1


def known_brokers(data: Path) -> dict[int, Identity]:
    """Return the brokers that have data. Raises CommandFailed if that is not clear."""
    from raylog.actors.cluster import identities
    from raylog.wire.errors import InconsistentClusterId, KafkaStorageError

    try:
        return identities(data.absolute())
    except (InconsistentClusterId, KafkaStorageError) as unclear:
        raise CommandFailed(str(unclear)) from unclear


def start(wanted: Wanted, tell: Report) -> ClusterRecord:
    """Start Ray and the brokers, and wait until all serve. On a failure, stop what was started."""
    check_metrics(wanted)
    check_reach(wanted)
    check_free(wanted, wanted.data.absolute() / "run")
    with _full_disk_named(wanted.data):
        run = run_directory(wanted.data)
        try:
            address, token, nodes = _start_ray(wanted, run, tell)
            record = _start_brokers(wanted, run, address, token, nodes, tell)
            record.write(run)
        except BaseException:
            _end_ray(run)
            raise
    return record


@contextlib.contextmanager
def _full_disk_named(data: Path) -> Iterator[None]:
    """Name the directory in errors of a full or failing disk: a failed write does not name it."""
    try:
        yield
    except OSError as failure:
        if failure.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        problem = of_the_system(failure, data)
        raise CommandFailed(problem.message, problem.hint) from failure


def stop(data: Path, tell: Report, timeout_s: float = STOP_TIMEOUT_S) -> dict[int, str]:
    """Shut down the brokers within `timeout_s`, then end Ray; return why some did not end cleanly.

    Raises CommandFailed if no cluster was started on `data`, or if processes of Ray do not end.
    """
    from raylog.actors.runtime.ray_node import running_nodes

    run = data.absolute() / "run"
    record = read_record(run)
    nodes = running_nodes(run)
    if record is None and not nodes:
        raise CommandFailed(
            f"no cluster is running on {data}",
            "Name the directory that `raylog up` was started with: --data DIR",
            EXIT_UNREACHABLE,
        )
    failures: dict[int, str] = {}
    if record is not None and all(node.is_running for node in nodes):
        failures = shut_down(run, record.broker_ids, timeout_s, tell)
    tell("stopping Ray")
    _end_ray(run)
    forget_record(run)
    return failures


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a cluster's actors."""

    actors: list[ActorEntry]
    """The cluster's actors, as Ray reports them."""
    brokers: list[BrokerStatus]
    """Status of each broker that answers."""
    failures: dict[str, str]
    """Why an actor does not answer, by its name."""
    silent: frozenset[str] = frozenset()
    """Names of actors that did not answer in time: they hang, or get no CPU."""


def standing(record: ClusterRecord) -> Standing:
    """Ask Ray, every broker and every controller."""
    from raylog.actors.names import CONTROLLER
    from raylog.actors.runtime.ray_node import actors_named

    with connected(record):
        controllers = [
            actor.name
            for actor in actors_named(f"{record.cluster_id}/{CONTROLLER}")
            if actor.state == "ALIVE"
        ]
        brokers, failures = _run(_ask(record, controllers))
        return Standing(
            actors_named(f"{record.cluster_id}/"),
            brokers,
            {name: last_line(failure) for name, failure in failures.items()},
            frozenset(name for name, failure in failures.items() if _is_late(failure)),
        )


def _is_late(failure: Exception) -> bool:
    from raylog.actors.runtime.base import PeerTimeout

    return isinstance(failure, PeerTimeout)


async def _ask(
    record: ClusterRecord, controllers: list[str]
) -> tuple[list[BrokerStatus], dict[str, Exception]]:
    """Return the brokers' statuses, and why a broker or controller does not answer, by name."""
    from raylog.actors.cluster import CALL_TIMEOUT_MS, describe_cluster
    from raylog.actors.names import broker_name
    from raylog.actors.runtime.ray import RayRuntime

    runtime = RayRuntime.of_driver(record.secret_path)
    brokers: list[BrokerStatus] = []

    async def describe(broker_id: int) -> None:
        brokers.extend(await describe_cluster(runtime, record.cluster_id, [broker_id]))

    asking: dict[str, Awaitable[object]] = {
        broker_name(record.cluster_id, one): describe(one) for one in record.broker_ids
    }
    for name in controllers:
        asking[name] = runtime.call(name, "ping", timeout_ms=CALL_TIMEOUT_MS)
    failures = await _each(asking)
    return sorted(brokers, key=lambda broker: broker.broker_id), failures


async def _each(asking: dict[str, Awaitable[object]]) -> dict[str, Exception]:
    """Ask all concurrently; return why some did not answer, by name."""
    from ray.exceptions import RayError

    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.wire.errors import KafkaError

    failures: dict[str, Exception] = {}

    async def ask(name: str) -> None:
        try:
            await asking[name]
        except (PeerLost, PeerTimeout, KafkaError, RayError) as failure:
            failures[name] = failure

    await asyncio.gather(*map(ask, asking))
    return failures


def is_up(run: Path) -> bool:
    """Whether a cluster that was started here still has all its Ray processes.

    If no Ray node is recorded, return whether a cluster is recorded.
    """
    from raylog.actors.runtime.ray_node import running_nodes

    nodes = running_nodes(run)
    if not nodes:
        return read_record(run) is not None
    return all(node.is_running for node in nodes)


def running_record(data: Path) -> ClusterRecord:
    """Return the record of the cluster that runs on `data`. Raises CommandFailed if none does."""
    run = data.absolute() / "run"
    record = read_record(run)
    if record is None or not is_up(run):
        raise CommandFailed(
            f"no cluster is running on {data}",
            f"Start it with: raylog up --data {data}",
            EXIT_UNREACHABLE,
        )
    return record


def ask_health(record: ClusterRecord) -> tuple[list[BrokerHealth], dict[int, str]]:
    """Return the brokers' health, and why a broker does not answer, by id."""
    from raylog.actors.cluster import CALL_TIMEOUT_MS
    from raylog.actors.names import broker_name

    with connected(record):
        from raylog.actors.runtime.ray import RayRuntime  # after Ray's environment is set

        runtime = RayRuntime.of_driver(record.secret_path)
        names = {broker_name(record.cluster_id, one): one for one in record.broker_ids}
        healths: list[BrokerHealth] = []

        async def ask(name: str) -> None:
            healths.append(await runtime.call(name, "health", timeout_ms=CALL_TIMEOUT_MS))

        failures = _run(_each({name: ask(name) for name in names}))
        return healths, {names[name]: last_line(failure) for name, failure in failures.items()}


def check_free(wanted: Wanted, run: Path) -> None:
    """Raise CommandFailed if the data or a port is in use; end processes that a crash has left."""
    if read_record(run) is not None and is_up(run):
        raise CommandFailed(
            f"a cluster is running on {wanted.data}",
            f"Show it with: raylog status --data {wanted.data}; stop it with: raylog down --data "
            f"{wanted.data}",
        )
    if run.is_dir():
        _end_ray(run)
        forget_record(run)
    if "listeners" in wanted.settings:
        check_listeners(wanted.settings, wanted.brokers)
    else:
        check_listening(wanted.host, wanted.port, wanted.brokers)


def _start_ray(wanted: Wanted, run: Path, tell: Report) -> tuple[str, str | None, list[str]]:
    """Start our own Ray; return its address, token file and node ids."""
    from raylog.actors.runtime.ray_node import RayNotStarted, connect, start_node

    tell("starting Ray")
    try:
        head = start_node(run, metrics=wanted.metrics)
        others = [
            start_node(run, index=index, join=head.address, metrics=wanted.metrics)
            for index in range(1, wanted.nodes)
        ]
    except RayNotStarted as failure:
        raise CommandFailed(last_line(failure), _logs_hint(run)) from failure
    connect(head.address, head.token_path)
    return head.address, head.token_path, [node.node_id for node in (head, *others)]


def _start_brokers(
    wanted: Wanted, run: Path, address: str, token: str | None, nodes: list[str], tell: Report
) -> ClusterRecord:
    """Plan and start the brokers; return the cluster's record."""
    from ray.exceptions import RayError

    from raylog.actors.cluster import plan_cluster, start_cluster
    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.actors.runtime.ray import RayRuntime
    from raylog.wire.errors import BrokerNotAvailable

    secret = str(secret_path(run))
    runtime = RayRuntime.of_driver(secret)
    plan = plan_cluster(
        wanted.data.absolute(),
        runtime,
        host=wanted.host,
        ports=[wanted.port + n if wanted.port else 0 for n in range(wanted.brokers)],
        first_broker_id=wanted.first_broker_id,
        settings=OWN_DEFAULTS
        | ({"metrics.reporters": "ray"} if wanted.metrics else {})
        | wanted.settings,
        nodes=nodes,
        racks=wanted.racks,
        advertised_host=wanted.advertised_host,
        insecure=wanted.insecure,
    )
    tell(f"starting {counted(wanted.brokers, 'broker')}")
    try:
        brokers = _run(start_cluster(runtime, plan, tell=tell))
    except (PeerLost, PeerTimeout, BrokerNotAvailable, RayError) as failure:
        raise CommandFailed(
            f"the brokers did not start: {last_line(failure)}", _logs_hint(run)
        ) from failure
    return ClusterRecord(
        cluster_id=plan.cluster_id,
        broker_ids=[status.broker_id for status in brokers],
        bootstrap=[status.bootstrap for status in brokers],
        ray_address=address,
        token_path=token,
        secret_path=secret,
        brokers=[
            _recorded(broker, status.listening)
            for broker, status in zip(plan.brokers, brokers, strict=True)
        ],
    )


def _logs_hint(run: Path) -> str:
    """Return a hint for a failed start; check for a full disk, which Ray does not report."""
    if shutil.disk_usage(run).free < _ROOM_BYTES:
        return f"The disk of {run} is full: free space on it"
    return f"The logs of Ray and of the brokers are in {run / 'ray' / 'session_latest' / 'logs'}"


def _recorded(broker: BrokerPlan, bound: Sequence[Endpoint]) -> BrokerRecord:
    """Return the record of a running broker, with the ports it got instead of 0."""
    from raylog.actors.broker.listeners import read_listeners
    from raylog.actors.config import BrokerSettings
    from raylog.actors.places import NODE_ID_LABEL

    listening = read_listeners(BrokerSettings(broker.settings)).listening
    settings = dict(broker.settings)
    if not all(one.port for one in listening):
        settings["listeners"] = ",".join(
            str(one._replace(port=there.port)) for one, there in zip(listening, bound, strict=True)
        )
    node_id = None if broker.place is None else broker.place.labels[NODE_ID_LABEL]
    return BrokerRecord(broker.broker_id, str(broker.directory), settings, node_id)


def _usable(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings that this build accepts; another build may have recorded them."""
    from raylog.actors.config import usable
    from raylog.cli.output import print_done

    taken, refusals = usable(settings)
    for why in refusals:
        print_done(f"ignoring a setting with which the cluster was started: {why}")
    return taken


@contextlib.contextmanager
def restarting(data: Path) -> Iterator[Restarts]:
    """Provide restarts of the parts of the cluster that runs on `data`.

    Raises CommandFailed if none does. The restarts raise it if a part does not come up.
    """
    from raylog.cli.restarting import Restarts

    record = running_record(data)
    with connected(record):
        from raylog.actors.cluster import BrokerPlan, ClusterPlan
        from raylog.actors.places import on_node

        brokers = tuple(
            BrokerPlan(
                one.broker_id,
                Path(one.directory),
                _usable(one.settings),
                None if one.node_id is None else on_node(one.node_id),
            )
            for one in record.brokers
        )
        plan = ClusterPlan(record.cluster_id, brokers, ())
        yield Restarts(
            record.broker_ids,
            record.bootstrap,
            lambda broker_id, timeout_s: _restart(record, plan, broker_id, timeout_s),
            lambda: _replace_controller(record),
            f"--data {data}",
        )


def _replace_controller(record: ClusterRecord) -> None:
    from raylog.actors.cluster import replace_controller
    from raylog.actors.runtime.ray import RayRuntime
    from raylog.wire.errors import BrokerNotAvailable

    runtime = RayRuntime.of_driver(record.secret_path)
    try:
        _run(replace_controller(runtime, record.cluster_id, record.broker_ids))
    except BrokerNotAvailable as failure:
        raise CommandFailed(
            f"the controller did not restart: {last_line(failure)}",
            "Check it with: raylog status",
        ) from failure


def _restart(
    record: ClusterRecord, plan: ClusterPlan, broker_id: int, timeout_s: float
) -> str | None:
    from ray.exceptions import RayError

    from raylog.actors.cluster import restart_broker
    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.actors.runtime.ray import RayRuntime
    from raylog.wire.errors import BrokerNotAvailable

    runtime = RayRuntime.of_driver(record.secret_path)
    timeout_ms = round(timeout_s * 1000)
    try:
        return _run(restart_broker(runtime, plan, broker_id, timeout_ms=timeout_ms))
    except (PeerLost, PeerTimeout, BrokerNotAvailable, RayError) as failure:
        raise CommandFailed(
            f"broker {broker_id} did not restart: {last_line(failure)}",
            "Check it with: raylog status; try again with: raylog brokers restart",
        ) from failure


@contextlib.contextmanager
def connected(record: ClusterRecord) -> Iterator[None]:
    """Connect to Ray as a driver, unless this process is one already. Imports Ray."""
    from raylog.actors.runtime.ray_node import connect, disconnect, is_connected

    if is_connected():
        yield
        return
    connect(record.ray_address, record.token_path)
    try:
        yield
    finally:
        disconnect()


def _end_ray(run: Path) -> None:
    """Disconnect, and end the Ray nodes that were started here. Raises CommandFailed."""
    from raylog.actors.runtime.ray_node import disconnect, stop_nodes

    disconnect()
    left = stop_nodes(run)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise CommandFailed(f"these processes do not stop: {pids}")


def _run(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine on its own event loop."""
    return asyncio.run(coroutine)
