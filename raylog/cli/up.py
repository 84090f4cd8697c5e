"""The command `raylog up`: starts a cluster."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.failures import EXIT_INTERRUPTED, CommandFailed, last_line
from raylog.cli.options import DEFAULT_DATA, Address, Data
from raylog.cli.output import console, print_answer, print_done
from raylog.cli.progress import Progress
from raylog.extras import check

if TYPE_CHECKING:
    from rich.status import Status

    from raylog.actors.supervisor.placing import PlacementAsked
    from raylog.cli.local_cluster import Wanted
    from raylog.cluster_record import ClusterRecord

_LOOK_S = 2.0
"""Time between two checks of the cluster in the foreground."""


Brokers = Annotated[
    int | None,
    typer.Option(
        "--brokers",
        "-n",
        min=1,
        help="Number of brokers. Default: those that have data in --data, at least one.",
    ),
]
Port = Annotated[
    int,
    typer.Option(
        "--port",
        "-p",
        min=0,
        max=65_535,
        help="Port of the first broker; the others get the next ones. 0: free ports. For several "
        "listeners: --set listeners=…",
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host",
        help="Address to listen on and to advertise to clients. Default: 127.0.0.1, or with "
        "--address the address of each node.",
    ),
]
AdvertisedHost = Annotated[
    str | None,
    typer.Option(
        "--advertised-host",
        metavar="HOST",
        help="Name or address to advertise to clients instead of --host. {external.host} stands "
        "for the label raylog-external-host of the Ray node, or RAYLOG_EXTERNAL_HOST there.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Allow access from other machines, without encryption and logins."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A broker setting; repeatable."),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="File with broker settings: TOML or properties.",
        exists=True,
        dir_okay=False,
    ),
]
FirstBrokerId = Annotated[
    int,
    typer.Option(
        "--first-broker-id", min=0, help="Id of the first new broker; the others get the next ones."
    ),
]
Nodes = Annotated[
    int, typer.Option("--nodes", min=1, help="Number of Ray nodes to start, all on this machine.")
]
Racks = Annotated[
    str | None,
    typer.Option("--racks", metavar="A,B,C", help="Racks of the brokers, in turn: broker.rack."),
]
SameNode = Annotated[
    bool,
    typer.Option("--same-node", help="With --address: accept several brokers on one node."),
]
InsecureRay = Annotated[
    bool,
    typer.Option(
        "--insecure-ray",
        help="With --address: accept a Ray cluster without tokens, where anyone who reaches "
        "Ray's port can run programs.",
    ),
]
BrokerCpus = Annotated[
    float,
    typer.Option(
        "--broker-cpus", min=0.0, help="With --address: CPUs that Ray reserves for each broker."
    ),
]
BrokerMemory = Annotated[
    int,
    typer.Option(
        "--broker-memory",
        min=1,
        metavar="MIB",
        help="With --address: memory that Ray reserves for each broker.",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=1.0,
        metavar="SECONDS",
        help="With --address: how long to wait until all brokers serve. Default: 120.",
    ),
]
Metrics = Annotated[
    bool,
    typer.Option("--metrics", help="Let Ray collect its own metrics and the brokers' (costs CPU)."),
]
Detach = Annotated[
    bool,
    typer.Option("--detach", "-d", help="Run in the background: return when all brokers serve."),
]


def up(
    brokers: Brokers = None,
    port: Port = 9092,
    host: Host = None,
    advertised_host: AdvertisedHost = None,
    insecure: Insecure = False,
    data: Data = DEFAULT_DATA,
    setting: Settings = None,
    config: SettingsFile = None,
    first_broker_id: FirstBrokerId = 0,
    nodes: Nodes = 1,
    racks: Racks = None,
    address: Address = None,
    same_node: SameNode = False,
    insecure_ray: InsecureRay = False,
    broker_cpus: BrokerCpus = 0.5,
    broker_memory: BrokerMemory = 300,
    timeout_s: Timeout = None,
    metrics: Metrics = False,
    detach: Detach = False,
) -> None:
    """Start Ray and a cluster of brokers on it. Ctrl-C stops both, unless --detach is given.

    With --address, start brokers on the nodes of a running Ray cluster: one on
    each node with a label raylog-broker=ID, or on every node if no node has
    one. The command then returns. Existing data is served again.

    `raylog configs list` shows all settings.
    """
    from raylog.cli.broker_settings import read_settings

    check("ray", "raylog up")
    settings = read_settings(config, setting)
    in_turn = tuple(racks.split(",")) if racks else ()
    if address is not None:
        from raylog.actors.supervisor.placing import PlacementAsked

        if nodes != 1 or metrics:
            raise typer.BadParameter("--nodes and --metrics cannot be combined with --address")
        asked = PlacementAsked(
            data=str(data.absolute()),
            port=port,
            brokers=brokers,
            first_broker_id=first_broker_id,
            host=host,
            advertised_host=advertised_host,
            racks=in_turn,
            settings=settings,
            insecure=insecure,
            same_node=same_node,
            cpus=broker_cpus,
            memory_bytes=broker_memory << 20,
        )
        _up_on_ray(address, asked, insecure_ray=insecure_ray, timeout_s=timeout_s)
        return
    from raylog.cli.local_cluster import Wanted, count_brokers

    if timeout_s is not None:
        raise typer.BadParameter("--timeout needs --address")
    wanted = Wanted(
        data=data,
        brokers=count_brokers(data, brokers),
        host=host or "127.0.0.1",
        port=port,
        first_broker_id=first_broker_id,
        settings=settings,
        nodes=nodes,
        racks=in_turn,
        metrics=metrics,
        advertised_host=advertised_host,
        insecure=insecure,
    )
    _up_here(wanted, detach=detach)


def _up_here(wanted: Wanted, *, detach: bool) -> None:
    """Start Ray and brokers on this machine, and stay in the foreground unless `detach` is set."""
    from raylog.cli.local_cluster import start

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_INTERRUPTED))
    with Progress() as progress:
        record = start(wanted, progress.tell)
    if wanted.metrics:
        _tell_metrics(wanted.data)
    if detach:
        _disconnect()
        print_answer(",".join(record.bootstrap), _facts(record))
        print_done(f"Stop it with: raylog down --data {wanted.data}")
        return
    _stay(record, wanted.data)


def _up_on_ray(
    address: str, asked: PlacementAsked, *, insecure_ray: bool, timeout_s: float | None
) -> None:
    """Start brokers on the nodes of a running Ray, and print their addresses."""
    from raylog.cli.ray_cluster import READY_S, start_on_ray

    with Progress() as progress:
        record = start_on_ray(
            address,
            asked,
            insecure_ray=insecure_ray,
            tell=progress.tell,
            timeout_s=READY_S if timeout_s is None else timeout_s,
        )
    print_answer(",".join(record.bootstrap), _facts(record))
    print_done(f"Stop it with: raylog down --address {address}")


def _facts(record: ClusterRecord) -> dict[str, object]:
    """Return what --json prints once all brokers serve."""
    return {
        "cluster_id": record.cluster_id,
        "brokers": record.broker_ids,
        "bootstrap": record.bootstrap,
    }


def _tell_metrics(data: Path) -> None:
    """Print where Prometheus finds its targets."""
    from raylog.actors.runtime.ray_node import running_nodes
    from raylog.cluster_record import run_directory

    for node in running_nodes(run_directory(data))[:1]:
        found = Path(node.directory) / "prom_metrics_service_discovery.json"
        print_done(f"For Prometheus (file_sd_configs): {found}")


def _disconnect() -> None:
    from raylog.actors.runtime.ray_node import disconnect

    disconnect()


def _stay(record: ClusterRecord, data: Path) -> None:
    """Show the cluster's state until a signal arrives or Ray ends, then stop the cluster."""
    from raylog.cli.local_cluster import stop

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopping.set())
    print_answer(f"bootstrap servers: {','.join(record.bootstrap)}", _facts(record))
    print_done("Ctrl-C stops the cluster")
    ended = not _watch(record, data, stopping)
    with Progress() as progress:
        failures = stop(data, progress.tell)
    if ended:
        raise CommandFailed("Ray ended unexpectedly", f"Its logs are under {data / 'run' / 'ray'}")
    for broker_id, failure in failures.items():
        print_done(f"broker {broker_id} did not shut down cleanly: {failure}")


def _watch(record: ClusterRecord, data: Path, stopping: threading.Event) -> bool:
    """Show a status line on a terminal; return whether the cluster ran until the signal."""
    from raylog.cli.local_cluster import is_up
    from raylog.cluster_record import run_directory

    line = console(stderr=True).status("") if sys.stderr.isatty() else None
    if line is not None:
        line.start()
        # Not in the thread that handles Ctrl-C: a Ray that hangs may never answer.
        threading.Thread(
            target=_keep_up, args=(line, record, stopping), name="summary", daemon=True
        ).start()
    try:
        while not stopping.wait(_LOOK_S):
            if not is_up(run_directory(data)):
                return False
    finally:
        if line is not None:
            line.stop()
    return True


def _keep_up(line: Status, record: ClusterRecord, stopping: threading.Event) -> None:
    """Update the status line."""
    from ray.exceptions import RayError

    from raylog.cli.status import summary

    while not stopping.wait(_LOOK_S):
        try:
            line.update(summary(record))
        except RayError as failure:
            line.update(f"Ray did not answer: {last_line(failure)}")
