"""The commands `raylog brokers stop` and `start`, for clusters that run on an existing Ray."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.asking import RayAddress, ask_actors, wanted_of
from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_DATA, Data
from raylog.cli.output import print_done
from raylog.cli.progress import Progress
from raylog.cli.ray_cluster import (
    cluster_to_change,
    desired_clusters,
    is_on,
    name_cluster,
    on_ray,
    until_ready,
)

if TYPE_CHECKING:
    from pathlib import Path

    from raylog.actors.supervisor.rules.desired import DesiredCluster

Brokers = Annotated[
    list[int] | None, typer.Argument(metavar="BROKER...", min=0, help="Broker ids.")
]
Here = Annotated[bool, typer.Option("--here", help="All brokers on this machine.")]


def stop(
    brokers: Brokers = None,
    here: Here = False,
    address: RayAddress = "auto",
    data: Data = DEFAULT_DATA,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.1,
            metavar="SECONDS",
            help="How long all brokers together may take to hand leadership over and close their "
            "logs before they are killed.",
        ),
    ] = 25.0,
) -> None:
    """Stop brokers of a multi-machine cluster.

    They stay stopped until you run `raylog brokers start`. They first hand
    leadership over to other brokers and close their logs. Use --here before you
    shut a machine down: its brokers also start again when Ray next starts there.

    raylog brokers stop --here && ray stop
    """
    from raylog.actors.supervisor.rolling import stop_held
    from raylog.actors.supervisor.rules.holds import Hold

    deadline = time.monotonic() + timeout_s
    failures: list[str] = []
    left: dict[int, tuple[str, ...]] = {}
    with on_ray(address), Progress() as progress:
        desired, chosen, node_id = _chosen(address, data, brokers or [], here=here)
        if desired is None or not chosen:
            print_done("no broker runs on this machine")
            return
        why = "its machine is going down" if here else "it was stopped by command"
        for broker_id in chosen:
            held = Hold(broker_id, why, node_id, time.time_ns() // 1_000_000)
            left_ms = max(100, round(1_000 * (deadline - time.monotonic())))
            with progress.waiting(
                f"broker {broker_id} is handing leadership over and closing its logs"
            ):
                stopped = ask_actors(
                    desired,
                    lambda runtime, held=held, left_ms=left_ms: stop_held(  # type: ignore[misc]
                        runtime, desired, held, timeout_ms=left_ms
                    ),
                )
            if stopped.unclean is not None:
                failures.append(f"broker {broker_id}: {stopped.unclean}")
            if stopped.left:
                left[broker_id] = stopped.left
                continue
            print_done(
                f"broker {broker_id} is stopped; start it with: raylog brokers start {broker_id}"
            )
    _refuse(left, failures, timeout_s)


def _refuse(left: dict[int, tuple[str, ...]], failures: list[str], timeout_s: float) -> None:
    """Raise CommandFailed if processes have not ended, or not cleanly."""
    if left:
        lost_text = "; ".join(f"broker {one}: {', '.join(names)}" for one, names in left.items())
        raise CommandFailed(
            f"some processes have not ended within {timeout_s:g} s: {lost_text}",
            "Repeat the command, or stop Ray on that machine: ray stop",
        )
    if failures:
        raise CommandFailed(
            f"stopped, but not cleanly: {'; '.join(failures)}",
            "The next start will recover the logs",
        )


def start(
    brokers: Brokers = None,
    here: Here = False,
    address: RayAddress = "auto",
    data: Data = DEFAULT_DATA,
) -> None:
    """Start brokers stopped by `raylog brokers stop`, and wait until they serve."""
    from raylog.actors.supervisor.notes import release

    with on_ray(address), Progress() as progress:
        desired, chosen, _ = _chosen(address, data, brokers or [], here=here)
        if desired is None or not chosen:
            print_done("no broker runs on this machine")
            return
        if desired.stopped:
            raise CommandFailed(
                "the cluster is stopped", f"Start it: raylog up --address {address}"
            )
        wanted = [wanted_of(desired, one) for one in chosen]
        for one in wanted:
            broker_id = one.broker_id
            ask_actors(
                desired,
                lambda runtime, broker_id=broker_id: release(  # type: ignore[misc]
                    runtime, desired.cluster_id, broker_id
                ),
            )
        ask_actors(desired, lambda runtime: until_ready(runtime, desired, wanted, progress.tell))
    for broker_id in chosen:
        print_done(f"broker {broker_id} serves")


def meant(clusters: list[DesiredCluster], data: Path) -> list[DesiredCluster]:
    """Return the clusters that are not stopped, or all if all are stopped.

    If some of them keep their data in `data`, return only those.
    """
    running = [one for one in clusters if not one.stopped] or clusters
    return [one for one in running if is_on(one, data)] or running


def _chosen(
    address: str, data: Data, asked: list[int], *, here: bool
) -> tuple[DesiredCluster | None, list[int], str]:
    """Return the cluster, the chosen broker ids, and the id of this machine's Ray node.

    With `here`, there may be no cluster and no brokers; without it, the node id is "". Raises
    BadParameter and CommandFailed.
    """
    if here == bool(asked):
        raise typer.BadParameter("give broker ids, or --here")
    if not here:
        desired = cluster_to_change(address, data)
        chosen = list(dict.fromkeys(asked))
        for broker_id in chosen:
            wanted_of(desired, broker_id)
        return desired, chosen, ""
    from raylog.actors.runtime.ray_places import this_node
    from raylog.actors.supervisor.rolling import brokers_on

    node = this_node()
    on_it = meant([one for one in desired_clusters() if brokers_on(one, node)], data)
    if len(on_it) > 1:
        ids = ", ".join(one.cluster_id for one in on_it)
        raise CommandFailed(
            f"this machine has brokers of the clusters {ids}",
            "Select one by its directory: --data DIR",
        )
    if not on_it:
        return None, [], node.node_id
    name_cluster(on_it[0])
    return on_it[0], brokers_on(on_it[0], node), node.node_id
