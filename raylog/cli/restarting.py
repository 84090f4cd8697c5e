"""`raylog brokers restart`: one broker after the other, while the cluster is in use."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_DATA, Data
from raylog.cli.output import print_done
from raylog.cli.progress import Progress

if TYPE_CHECKING:
    from raylog.client import BlockingClient

_LOOK_S = 0.2
_NAMED_MAX = 3
_SILENT_S = 10.0
"""How long a broker that is fenced may take to shut down: it hangs, or has ended."""


def restart(
    brokers: Annotated[
        list[int] | None, typer.Argument(metavar="BROKER...", min=0, help="Their ids.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All brokers, in turn.")] = False,
    data: Data = DEFAULT_DATA,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=1.0,
            metavar="SECONDS",
            help="For each: to close its logs, and for its replicas to be in sync.",
        ),
    ] = 120.0,
) -> None:
    """Restart brokers of the cluster on a data directory, one after the other.

    Leadership moves to other brokers first; the next one waits until all replicas
    on this one are in sync again. What has no replica elsewhere is away meanwhile.
    A broker that hangs is ended and started again.

    raylog brokers restart --all
    """
    from raylog.cli.local_cluster import restarting, running_record

    record = running_record(data)
    chosen = _chosen(brokers or [], record.broker_ids, every=every)
    from raylog.client import BlockingClient

    with (
        Progress() as progress,
        BlockingClient(",".join(record.bootstrap)) as client,
        restarting(record) as restart_one,
    ):
        for broker_id in chosen:
            close_s = timeout_s
            if _is_live(client, broker_id):
                with progress.waiting(f"waiting until replicas on broker {broker_id} are in sync"):
                    _until_in_sync(client, broker_id, timeout_s)
            else:
                close_s = min(timeout_s, _SILENT_S)
            began = time.monotonic()
            with progress.waiting(f"restarting broker {broker_id}"):
                unclean = restart_one(broker_id, close_s)
            serves = time.monotonic()
            with progress.waiting(f"broker {broker_id} serves, its replicas catch up"):
                _until_in_sync(client, broker_id, timeout_s)
            print_done(
                f"broker {broker_id} serves again after {serves - began:.1f} s, "
                f"in sync after {time.monotonic() - began:.1f} s"
            )
            if unclean is not None:
                print_done(f"broker {broker_id} did not shut down cleanly: {unclean}")


def _chosen(asked: list[int], known: list[int], *, every: bool) -> list[int]:
    """The brokers to restart, in the order asked; raises BadParameter."""
    if every == bool(asked):
        raise typer.BadParameter("give the ids of brokers, or --all")
    unknown = sorted({*asked} - {*known})
    if unknown:
        raise typer.BadParameter(
            f"expected brokers that were started here ({', '.join(map(str, known))}), found "
            f"{', '.join(map(str, unknown))}"
        )
    return list(dict.fromkeys(asked)) or known


def _is_live(client: BlockingClient, broker_id: int) -> bool:
    """Whether the controller hears the broker. One that it does not hear serves nothing."""
    brokers = client.describe_cluster().brokers
    return any(one.broker_id == broker_id and not one.is_fenced for one in brokers)


def _until_in_sync(client: BlockingClient, broker_id: int, timeout_s: float) -> None:
    """Wait until all partitions with a replica on a broker have all of them in sync."""
    deadline = time.monotonic() + timeout_s
    while lacking := _lacking(client, broker_id):
        if time.monotonic() > deadline:
            more = "" if len(lacking) <= _NAMED_MAX else f" and {len(lacking) - _NAMED_MAX} more"
            raise CommandFailed(
                f"not all replicas of {', '.join(lacking[:_NAMED_MAX])}{more} "
                f"are in sync within {timeout_s:g} s",
                "See them with: raylog topics describe --under-replicated",
            )
        time.sleep(_LOOK_S)


def _lacking(client: BlockingClient, broker_id: int) -> list[str]:
    """Partitions on a broker of which some replica is not in sync."""
    return [
        f"{one.key.topic}:{one.key.partition}"
        for one in client.describe_partitions().values()
        if broker_id in one.replicas and {*one.replicas} != {*one.isr}
    ]
