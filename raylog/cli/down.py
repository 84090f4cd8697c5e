"""The command `raylog down`: stops a cluster that `raylog up` started."""

from __future__ import annotations

from typing import Annotated

import typer

from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_DATA, Address, Data
from raylog.cli.output import print_done
from raylog.cli.progress import Progress


def down(
    data: Data = DEFAULT_DATA,
    address: Address = None,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.0,
            metavar="SECONDS",
            help="How long brokers may take to close their logs before they are killed. Default: "
            "60.",
        ),
    ] = None,
) -> None:
    """Stop the cluster of a data directory, or on a Ray cluster. Its data stays.

    A Ray cluster that Raylog did not start keeps running.
    """
    from raylog.cli.local_cluster import STOP_TIMEOUT_S, stop
    from raylog.cli.ray_cluster import stop_on_ray

    close_s = STOP_TIMEOUT_S if timeout_s is None else timeout_s
    with Progress() as progress:
        if address is None:
            failures = stop(data, progress.tell, close_s)
        else:
            failures = stop_on_ray(address, data, close_s, progress.tell)
    if failures:
        failures_text = "; ".join(
            f"broker {broker}: {failure}" for broker, failure in failures.items()
        )
        raise CommandFailed(
            f"stopped, but not cleanly: {failures_text}",
            "The next `raylog up` will recover their logs",
        )
    print_done("stopped")
