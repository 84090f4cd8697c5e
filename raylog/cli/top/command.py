"""The command `raylog top`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.connecting import client_settings
from raylog.cli.failures import EXIT_UNREACHABLE
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json

if TYPE_CHECKING:
    from raylog.cli.progress import Progress
    from raylog.cli.top.events import Event
    from raylog.cli.top.machine import Watch
    from raylog.client import ClientSettings

DEFAULT_INTERVAL_S = 3.0
_ONCE_S = 1.0
_PATIENCE_S = 2.0
"""Time after which --once prints what it is waiting for."""


@dataclass(frozen=True, slots=True)
class Of:
    """The cluster to show, and how often to query it."""

    bootstrap: str
    where: str
    """Options that commands need to reach it, with a leading space; empty for the default."""
    settings: ClientSettings
    interval_s: float
    metrics: tuple[tuple[str, int], ...] = ()
    """Addresses of brokers' `/metrics`, in addition to those that brokers report."""


def top(
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval", "-i", metavar="SECONDS", min=0.5, help="Time between two refreshes."
        ),
    ] = DEFAULT_INTERVAL_S,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Take two samples, a second apart, print the result, and exit."
        ),
    ] = False,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="A broker's health.listener, if the broker does not report it; repeatable.",
        ),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Live view of a cluster, problems first.

    Shows brokers, topics, partitions, groups with their lag, and open
    transactions of any Kafka cluster. Press ? for the keys. --once prints one
    snapshot and exits; --json prints it as JSON. The exit code is 0 if the
    cluster answered, otherwise 3.

    Each refresh sends one Metadata request, one ListOffsets to each broker, and
    a few requests for groups, transactions and the metadata quorum. On a large
    cluster it refreshes less often than --interval, so that it takes at most a
    quarter of a core.

    `raylog health` checks whether brokers serve, with an exit code for probes.
    `raylog doctor` looks for causes, also on this machine.
    """
    settings = client_settings(bootstrap)
    addresses = tuple(map(_address, metrics or ()))
    bootstrap = ",".join(one.strip() for one in bootstrap.split(",") if one.strip())
    where = "" if bootstrap == DEFAULT_BOOTSTRAP else f" -b {bootstrap}"
    of = Of(bootstrap, where, settings, interval_s, addresses)
    if once or as_json:
        _once(of, as_json=as_json)
        return
    from raylog.extras import needs

    with needs("cli", "raylog top"):
        from raylog.cli.top.screen import TopApp

    failure = TopApp(of).run()
    if failure is not None:
        raise failure


def _address(text: str) -> tuple[str, int]:
    from raylog.cli.metrics_listeners import address_of

    found = address_of(text, "")
    if found is None or not found[0]:
        raise typer.BadParameter(f"expected HOST:PORT, found {text!r}", param_hint="--metrics")
    return found


def _once(of: Of, *, as_json: bool) -> None:
    """Print one snapshot."""
    import asyncio  # most commands do not need it

    from raylog.cli.output import print_json
    from raylog.cli.progress import Progress
    from raylog.cli.top.machine import Watch
    from raylog.cli.top.reader import now_ms
    from raylog.cli.top.text import document, print_plain
    from raylog.cli.top.troubles import troubles

    watch = Watch(of.where)
    with Progress() as progress:
        asyncio.run(_look_twice(of, watch, progress))
    found = troubles(watch.known, now_ms())
    if as_json:
        print_json(document(watch.known, found))
    else:
        print_plain(watch.known, found, _ONCE_S)
    if watch.known.at_ms is None:
        raise typer.Exit(EXIT_UNREACHABLE)


async def _look_twice(of: Of, watch: Watch, progress: Progress) -> None:
    """Query the cluster twice, for the rates; only once if it cannot be reached."""
    import asyncio

    from raylog.cli.top.reader import Reader, now_ms
    from raylog.cli.top.troubles import waiting

    def tell(event: Event) -> None:
        watch.handle(event)

    reader = Reader(of.settings, tell, now=True, metrics=of.metrics)
    try:
        look = asyncio.ensure_future(reader.look())
        await asyncio.wait({look}, timeout=_PATIENCE_S)
        if not look.done():
            progress.tell(f"asking {of.bootstrap}: {waiting(watch.known, now_ms())}")
        await look
        if watch.known.at_ms is not None:
            await asyncio.sleep(_ONCE_S)
            await reader.look()
    finally:
        await reader.close()
