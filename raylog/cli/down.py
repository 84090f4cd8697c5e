"""`raylog down`: stop a cluster that `raylog up` started."""

from __future__ import annotations

from typing import Annotated

import typer

from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_DATA, Data
from raylog.cli.output import print_done
from raylog.cli.progress import Progress


def down(
    data: Data = DEFAULT_DATA,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.0,
            metavar="SECONDS",
            help="How long brokers may take to close their logs; then they are ended. Default: 60.",
        ),
    ] = None,
) -> None:
    """Stop the cluster that was started on a data directory; its data stays."""
    from raylog.cli.local_cluster import STOP_TIMEOUT_S, stop

    with Progress() as progress:
        failures = stop(data, progress.tell, STOP_TIMEOUT_S if timeout_s is None else timeout_s)
    if failures:
        told = "; ".join(f"broker {broker}: {failure}" for broker, failure in failures.items())
        raise CommandFailed(
            f"stopped, but not cleanly: {told}", "The next `raylog up` recovers their logs"
        )
    print_done("stopped")
