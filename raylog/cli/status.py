"""The command `raylog status`: shows every actor and every partition."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.failures import EXIT_UNREACHABLE, Failure
from raylog.cli.logs import crash_rows
from raylog.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_DATA, Address, Data, Json
from raylog.cli.output import counted, human_bytes, print_done, print_json, print_table
from raylog.cli.progress import within
from raylog.cli.status_disks import disk_lines, disk_rows
from raylog.cli.status_listeners import http_rows, listener_rows

if TYPE_CHECKING:
    from raylog.actors.broker.messages import BrokerStatus, ChildStatus
    from raylog.actors.common_messages import PartitionStatus
    from raylog.cli.local_cluster import Standing
    from raylog.client import PartitionReplicas, QuorumView
    from raylog.cluster_record import ClusterRecord

_CLIENT_TIMEOUT_MS = 5_000
_RAY_TIMEOUT_S = 30
"""By itself, Ray's driver would wait for minutes."""

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The status of a cluster."""

    cluster_id: str
    bootstrap: list[str]
    listeners: list[Row]
    """Where clients connect, for each broker that answers."""
    http: list[Row]
    """Where brokers serve metrics and health."""
    actors: list[Row]
    partitions: list[Row]
    quorum: list[Row]
    """Copies of the metadata log; empty if no broker answered."""
    health: dict[str, int] | None
    """Counts of partitions as in `_health`; None if no broker answered."""
    strays: list[Row]
    """Unused directories that belonged to no partition when their brokers checked."""
    disks: list[Row]
    """The disk of each broker that answers."""
    failures: list[str]
    """Problems, such as actors that did not answer, and why."""


def status(
    data: Data = DEFAULT_DATA,
    address: Address = None,
    as_json: Json = False,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also show each partition of internal topics.")
    ] = False,
) -> None:
    """Show the actors, the metadata quorum and the partitions of a cluster.

    Healthy partitions of internal topics are summed up in one line, unless
    --all is given. The exit code is 3 if no cluster runs.
    """
    unanswered = Failure(
        f"Ray did not answer within {_RAY_TIMEOUT_S} s",
        f"Its logs are under {data / 'run' / 'ray'}; stop it with: raylog down --data {data}",
        EXIT_UNREACHABLE,
    )
    with within(_RAY_TIMEOUT_S, unanswered):
        found = read_status(data) if address is None else _status_on_ray(address, data)
        crashes = crash_rows(data, address)
    if as_json:
        document = asdict(found)
        failures = document.pop("failures")
        print_json({**document, "crashes": crashes, "failures": failures})
        return
    _show(found, folded(found.partitions) if not every else found.partitions, data)
    if crashes:
        last = crashes[-1]
        typer.echo(
            f"{counted(len(crashes), 'process')} ended unexpectedly, the last one "
            f"{last['process']} (process {last['pid']}) at {last['at']}: raylog logs --crashes"
        )


def _show(found: ClusterStatus, partitions: list[Row], data: Path) -> None:
    """Print the status, with these rows of partitions."""
    for failure in found.failures:
        print_done(failure)
    typer.echo(f"cluster {found.cluster_id} at {','.join(found.bootstrap)}")
    print_table(
        "listeners",
        ["broker#", "listener", "listening", "advertised"],
        [list(row.values()) for row in found.listeners],
    )
    print_table(
        "metrics and health",
        ["broker#", "address", "metrics"],
        [list(row.values()) for row in found.http],
    )
    print_table(
        "metadata quorum",
        ["broker#", "role", "epoch#", "end#", "lag#", "seen"],
        [(*list(row.values())[:-1], ago(row["last_contact_ms"])) for row in found.quorum],
    )
    print_table(
        "actors",
        ["role", "broker#", "pid#", "state", "restarts#", "partitions#", "node", "name"],
        [list(row.values()) for row in found.actors],
    )
    print_table(
        "partitions",
        [
            "topic",
            "partition#",
            "leader#",
            "epoch#",
            "replicas",
            "in sync",
            "first#",
            "end#",
            "size#",
        ],
        [(*list(row.values())[:8], human_bytes(int(str(row["size_bytes"])))) for row in partitions],
    )
    for line in (*health_lines(found.health, found.bootstrap), *disk_lines(found.disks, data)):
        typer.echo(line)
    _show_strays(found.strays)


def folded(partitions: list[Row]) -> list[Row]:
    """Return the rows with the healthy partitions of each internal topic folded into one row."""
    from raylog.actors.coordinator_kinds import KIND_OF_TOPIC

    whole: dict[str, list[Row]] = {topic: [] for topic in KIND_OF_TOPIC}
    rows = []
    for row in partitions:
        topic = str(row["topic"])
        if topic in whole and row["leader"] is not None and row["isr"] == _sorted(row["replicas"]):
            whole[topic].append(row)
        else:
            rows.append(row)
    for topic, of_topic in whole.items():
        if len(of_topic) > 1:
            size = sum(max(0, int(str(row["size_bytes"]))) for row in of_topic)
            fold = dict.fromkeys(of_topic[0]) | {"topic": topic, "size_bytes": size}
            rows.append(fold | {"partition": f"{len(of_topic)} of them", "isr": "all"})
        else:
            rows.extend(of_topic)
    return rows


def _sorted(brokers: object) -> list[int]:
    assert isinstance(brokers, list)
    return sorted(brokers)


def _show_strays(strays: list[Row]) -> None:
    """Print the directories that belong to no partition, if there are any."""
    if not strays:
        return
    sizes = [human_bytes(int(str(row["size_bytes"]))) for row in strays]
    print_table(
        "strays",
        ["broker#", "size#", "directory"],
        [(row["broker"], size, row["directory"]) for row, size in zip(strays, sizes, strict=True)],
    )
    typer.echo(
        f"{len(strays)} directories belong to partitions that their broker does not have. They "
        "are kept until you remove them: docs/operations.md, Stray directories"
    )


def health_lines(health: dict[str, int] | None, bootstrap: list[str]) -> list[str]:
    """Return lines about the partitions' health, and how to list those with problems."""
    if health is None:
        return ["The state of the partitions is not known: no broker answers"]
    count = health["partitions"]
    if not count:
        return ["There are no partitions yet"]
    where = "" if DEFAULT_BOOTSTRAP in bootstrap else f" -b {bootstrap[0]}"
    see = f"List them with: raylog topics describe{where}"
    lines = [
        f"Partitions {what}: {health[key]:,} of {count:,}. {hint}"
        for key, what, hint in (
            ("unavailable", "without a leader, unavailable", f"{see} --unavailable"),
            ("under_replicated", "with a replica out of sync", f"{see} --under-replicated"),
        )
        if health[key]
    ]
    if not lines:
        lines = [f"Partitions: {count:,}, all with a leader and with all replicas in sync"]
    if health["single_replica"]:
        lines.append(
            "Partitions with a single replica, unavailable while its broker is down: "
            f"{health['single_replica']:,} of {count:,}. Add replicas with: raylog topics "
            f"reassign{where} -t TOPIC -r {min(3, len(bootstrap))}"
        )
    return lines


def ago(at_ms: object) -> str | None:
    """Format how long ago a time was; None if it is not known."""
    if not isinstance(at_ms, int) or at_ms < 0:
        return None
    return f"{max(0.0, time.time() - at_ms / 1000):.1f} s ago"


def read_status(data: Path) -> ClusterStatus:
    """Return the status of the cluster that runs on a data directory. Raises CommandFailed."""
    from raylog.cli.local_cluster import running_record

    return _status_of(running_record(data), data)


def _status_on_ray(address: str, data: Path) -> ClusterStatus:
    """Return the status of the cluster on a Ray that already runs."""
    from raylog.cli.ray_cluster import on_ray, record_of, the_cluster, troubles_of

    with on_ray(address):
        desired = the_cluster(address, data)
        found = _status_of(record_of(address, desired), data)
        return replace(found, failures=[*troubles_of(address, desired), *found.failures])


def _status_of(record: ClusterRecord, data: Path) -> ClusterStatus:
    from raylog.cli.local_cluster import standing

    stands = standing(record)
    view = _ask_as_client(record)
    return ClusterStatus(
        record.cluster_id,
        record.bootstrap,
        listener_rows(stands.brokers),
        http_rows(stands.brokers),
        _actor_rows(stands),
        _partition_rows(stands.brokers, view.replicas),
        quorum_rows(view.quorum),
        None if view.failures else _health(view.replicas, len(record.broker_ids)),
        stray_rows(stands.brokers),
        disk_rows(stands.brokers),
        [*unanswered(stands, data), *view.failures],
    )


def unanswered(stands: Standing, data: Path) -> list[str]:
    """Return a line for each broker and controller that did not answer."""
    pids = {actor.name: actor.pid for actor in stands.actors}
    lines = []
    for name, why in sorted(stands.failures.items()):
        role, broker_id = _role_of(name)
        who = role if broker_id is None else f"{role} {broker_id}"
        if name not in stands.silent:
            lines.append(f"{who}: {why}")
            continue
        hint = "a voter's broker will start another controller"
        if broker_id is not None:
            where = "" if data == DEFAULT_DATA else f" --data {data}"
            hint = f"restart it with: raylog brokers restart {broker_id}{where}"
        lines.append(f"{who} does not answer (process {pids.get(name, 'unknown')}); {hint}")
    return lines


def summary(record: ClusterRecord) -> str:
    """Return the status in one line, for `raylog up` in the foreground."""
    from raylog.cli.local_cluster import standing

    stands = standing(record)
    running = sum(broker.state == "running" for broker in stands.brokers)
    led = [at for broker in stands.brokers for at in broker.partitions if at.is_leader]
    restarts = sum(int(str(row["restarts"])) for row in _actor_rows(stands))
    return (
        f"{running} of {len(record.broker_ids)} brokers running, {len(led)} partitions, "
        f"{human_bytes(sum(at.size_bytes for at in led))}, {restarts} restarts"
    )


def _actor_rows(stands: Standing) -> list[Row]:
    """Return a row for each actor, from Ray and from the brokers: Ray lists no co-located actors.

    Ray reports a hung process as alive. An actor that does not answer is `silent`, and its
    children are `unknown`.
    """
    from raylog.actors.names import BROKER, host_of

    children = {child.name: child for broker in stands.brokers for child in broker.children}
    brokers = {broker.pid: broker for broker in stands.brokers}
    silent = {_role_of(name) for name in stands.silent}
    rows: list[Row] = []
    for actor in stands.actors:
        role, broker_id = _role_of(actor.name)
        row: Row = {
            "role": role,
            "broker": broker_id,
            "pid": actor.pid,
            "state": _STATES.get(actor.state, actor.state.lower()),
            "restarts": actor.restarts,
            "partitions": None,
            "node": actor.node_id[:8],
            "name": actor.name,
        }
        child, broker = children.get(actor.name), brokers.get(actor.pid)
        if actor.name in stands.silent:
            row["state"] = "silent"
        elif broker_id is not None and (BROKER, broker_id) in silent:
            row["state"] = "unknown"
        if child is not None:
            row |= {"state": child.state, "restarts": child.restarts}
            row["partitions"] = child.partitions
        elif broker is not None:
            row |= {"state": broker.state, "partitions": len(broker.partitions)}
        rows.append(row)
    colocated = [child for name, child in children.items() if host_of(name) != name]
    return sorted([*rows, *map(_colocated_row, colocated)], key=lambda row: str(row["name"]))


def _colocated_row(child: ChildStatus) -> Row:
    """Return the row of an actor that runs in another actor's process."""
    role, broker_id = _role_of(child.name)
    return {
        "role": role,
        "broker": broker_id,
        "pid": child.pid,
        "state": child.state,
        "restarts": child.restarts,
        "partitions": child.partitions,
        "node": child.node_id[:8],
        "name": child.name,
    }


_STATES = {"ALIVE": "running", "PENDING_CREATION": "starting", "DEPENDENCIES_UNREADY": "starting"}


def _role_of(name: str) -> tuple[str, int | None]:
    """Return role and broker id from an actor's name (`raylog.actors.names`).

    A controller has no broker id.
    """
    from raylog.actors.names import CONTROLLER

    _, role, *rest = name.split("/")
    return role, int(rest[0]) if rest and role != CONTROLLER else None


@dataclass(slots=True)
class _ClientView:
    """What brokers report to clients."""

    replicas: list[PartitionReplicas] = field(default_factory=list)
    quorum: QuorumView | None = None
    failures: list[str] = field(default_factory=list)


def _ask_as_client(record: ClusterRecord) -> _ClientView:
    """Ask for each partition's replicas and the metadata quorum; failures are in `failures`."""
    from raylog.client import BlockingClient, ClientError, ClientSettings, parse_bootstrap
    from raylog.wire.errors import KafkaError

    view = _ClientView()
    if not record.bootstrap:
        view.failures.append("no broker answers")
        return view
    settings = ClientSettings(
        parse_bootstrap(record.bootstrap), operation_timeout_ms=_CLIENT_TIMEOUT_MS
    )
    try:
        with BlockingClient(record.bootstrap, settings) as client:
            view.replicas = sorted(client.describe_partitions().values(), key=lambda one: one.key)
            view.quorum = client.describe_quorum()
    except (ClientError, KafkaError) as failure:
        view.failures.append(str(failure))
    return view


def stray_rows(brokers: list[BrokerStatus]) -> list[Row]:
    """Return a row for each stray directory of each broker that answers."""
    return [
        {"broker": broker.broker_id, "size_bytes": one.size_bytes, "directory": one.directory}
        for broker in brokers
        for one in broker.strays
    ]


def quorum_rows(quorum: QuorumView | None) -> list[Row]:
    """Return a row for each copy of the metadata log, voters first."""
    if quorum is None:
        return []
    copies = [("voter", one) for one in quorum.voters] + [("observer", o) for o in quorum.observers]
    return [
        {
            "broker": one.broker_id,
            "role": "leader" if role == "voter" and one.broker_id == quorum.leader else role,
            "epoch": quorum.epoch,
            "log_end_offset": one.log_end_offset if one.log_end_offset >= 0 else None,
            "lag": quorum.lag(one),
            "last_contact_ms": one.last_contact_ms,
        }
        for role, one in copies
    ]


def _health(replicas: list[PartitionReplicas], brokers: int) -> dict[str, int]:
    """Count partitions. A single replica is not a problem if there is only one broker."""
    return {
        "partitions": len(replicas),
        "under_replicated": sum(one.is_under_replicated for one in replicas),
        "single_replica": sum(len(one.replicas) == 1 for one in replicas) if brokers > 1 else 0,
        "unavailable": sum(one.leader < 0 for one in replicas),
    }


def partition_counts(record: ClusterRecord) -> dict[str, int] | None:
    """Count partitions as `_health` does; None if the brokers do not answer."""
    view = _ask_as_client(record)
    return None if view.failures else _health(view.replicas, len(record.broker_ids))


def _partition_rows(brokers: list[BrokerStatus], replicas: list[PartitionReplicas]) -> list[Row]:
    """Return a row for each partition, as its leader reports it."""
    led: dict[tuple[str, int], PartitionStatus] = {
        (at.topic, at.partition): at
        for broker in brokers
        for at in broker.partitions
        if at.is_leader
    }
    rows: list[Row] = []
    for one in replicas:
        at = led.get(one.key)
        rows.append(
            {
                "topic": one.topic,
                "partition": one.partition,
                "leader": one.leader if one.leader >= 0 else None,
                "leader_epoch": at.leader_epoch if at else None,
                "replicas": list(one.replicas),
                "isr": sorted(one.isr),
                "log_start_offset": at.log_start_offset if at else None,
                "high_watermark": at.high_watermark if at else None,
                "size_bytes": at.size_bytes if at else -1,
                "segments": at.segments if at else None,
            }
        )
    return rows
