"""`raylog brokers restart`: restart brokers one by one, while the cluster is in use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_DATA, Address, Data
from raylog.cli.output import print_done
from raylog.cli.progress import Progress

if TYPE_CHECKING:
    from raylog.client import BlockingClient

_LOOK_S = 0.2
_NAMED_MAX = 3
_SILENT_S = 10.0
"""How long a fenced broker may take to shut down: it hangs, or has ended."""


@dataclass(frozen=True, slots=True)
class Restarts:
    """Functions that restart the parts of one cluster."""

    broker_ids: list[int]
    bootstrap: list[str]
    one: Callable[[int, float], str | None]
    """Restarts a broker, given its shutdown timeout in s; returns why it was unclean, or None."""
    the_rest: Callable[[], None]
    """Restarts everything but brokers."""
    where: str
    """The option that selects the cluster."""
    held: Callable[[], Mapping[int, str]] = dict
    """Returns the brokers that must currently stay stopped, and why."""


def restart(
    brokers: Annotated[
        list[int] | None, typer.Argument(metavar="BROKER...", min=0, help="Broker ids.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Restart all brokers one by one, then the controller.")
    ] = False,
    first: Annotated[
        int | None,
        typer.Option("--from", metavar="BROKER", help="With --all: start with this broker."),
    ] = None,
    data: Data = DEFAULT_DATA,
    address: Address = None,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=1.0,
            metavar="SECONDS",
            help="How long each broker may take to close its logs, and again for its replicas to "
            "get in sync.",
        ),
    ] = 120.0,
) -> None:
    """Restart brokers, one after the other.

    Leadership moves to other brokers first. The next broker is restarted when all
    replicas on this one are in sync again. Partitions without another replica are
    unavailable meanwhile. A broker that hangs is killed and started again. --all
    also restarts the controller and, with --address, the supervisor.

    raylog brokers restart --all
    """
    from raylog.client import BlockingClient

    with Progress() as progress, _restarts(data, address, progress) as restarts:
        chosen = _chosen(brokers or [], restarts.broker_ids, every=every, first=first)
        with BlockingClient(",".join(restarts.bootstrap)) as client:
            for broker_id in chosen:
                held = restarts.held()
                if broker_id in held:
                    print_done(f"broker {broker_id} stays stopped: {held[broker_id]}")
                    continue
                try:
                    _restart_one(client, restarts, broker_id, timeout_s, progress)
                except CommandFailed as failed:
                    if not every:
                        raise
                    failure = failed.failure
                    hint = (f"{failure.hint}. " if failure.hint else "") + (
                        "Continue with: raylog brokers restart --all "
                        f"--from {broker_id} {restarts.where}"
                    )
                    raise CommandFailed(failure.message, hint, failure.exit_code) from failed
        if every:
            with progress.waiting("restarting the controller"):
                restarts.the_rest()
            print_done("the controller serves again")


def _restarts(
    data: Path, address: str | None, progress: Progress
) -> AbstractContextManager[Restarts]:
    if address is None:
        from raylog.cli.local_cluster import restarting

        return restarting(data)
    from raylog.cli.restarting_on_ray import restarting_on_ray

    return restarting_on_ray(address, data, progress)


def _restart_one(
    client: BlockingClient, restarts: Restarts, broker_id: int, timeout_s: float, progress: Progress
) -> None:
    close_s = timeout_s
    if _is_live(client, broker_id):
        with progress.waiting(f"waiting until replicas on broker {broker_id} are in sync"):
            _until_in_sync(client, broker_id, timeout_s)
    else:
        close_s = min(timeout_s, _SILENT_S)
    began = time.monotonic()
    with progress.waiting(f"restarting broker {broker_id}"):
        unclean = restarts.one(broker_id, close_s)
    serves = time.monotonic()
    with progress.waiting(f"broker {broker_id} serves; its replicas are catching up"):
        _until_in_sync(client, broker_id, timeout_s)
    print_done(
        f"broker {broker_id} serves again after {serves - began:.1f} s, "
        f"in sync after {time.monotonic() - began:.1f} s"
    )
    if unclean is not None:
        print_done(f"broker {broker_id} did not shut down cleanly: {unclean}")


def _chosen(
    asked: list[int], known: list[int], *, every: bool, first: int | None = None
) -> list[int]:
    """Return the brokers to restart, in the requested order; raises BadParameter."""
    if every == bool(asked) or (first is not None and not every):
        raise typer.BadParameter("give broker ids, or --all, optionally with --from")
    unknown = sorted({*asked, *(() if first is None else (first,))} - {*known})
    if unknown:
        raise typer.BadParameter(
            f"expected some of the brokers {', '.join(map(str, known))}, found "
            f"{', '.join(map(str, unknown))}"
        )
    begin = 0 if first is None else known.index(first)
    return list(dict.fromkeys(asked)) or known[begin:]


def _is_live(client: BlockingClient, broker_id: int) -> bool:
    """Whether the broker is registered and not fenced. A fenced broker serves nothing."""
    brokers = client.describe_cluster().brokers
    return any(one.broker_id == broker_id and not one.is_fenced for one in brokers)


def _until_in_sync(client: BlockingClient, broker_id: int, timeout_s: float) -> None:
    """Wait until all partitions on a broker have all replicas in sync; raises CommandFailed."""
    deadline = time.monotonic() + timeout_s
    while lacking := _lacking(client, broker_id):
        if time.monotonic() > deadline:
            more = "" if len(lacking) <= _NAMED_MAX else f" and {len(lacking) - _NAMED_MAX} more"
            raise CommandFailed(
                f"not all replicas of {', '.join(lacking[:_NAMED_MAX])}{more} "
                f"are in sync within {timeout_s:g} s",
                "List them with: raylog topics describe --under-replicated",
            )
        time.sleep(_LOOK_S)


def _lacking(client: BlockingClient, broker_id: int) -> list[str]:
    """Return the partitions on a broker that have a replica out of sync."""
    return [
        f"{one.key.topic}:{one.key.partition}"
        for one in client.describe_partitions().values()
        if broker_id in one.replicas and {*one.replicas} != {*one.isr}
    ]
