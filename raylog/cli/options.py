"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_DATA = Path("raylog-data")

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="RAYLOG_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Bootstrap servers, separated by commas.",
    ),
]
Data = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="RAYLOG_DATA",
        metavar="DIR",
        help="Data directory of the cluster.",
        file_okay=False,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        envvar="RAYLOG_RAY_ADDRESS",
        metavar="HOST:PORT|auto",
        help="Address of a running Ray cluster; auto: the cluster that this machine is a node of.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Pairs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; repeatable."),
]


def parse_pairs(pairs: Iterable[str] | None, option: str = "--config") -> dict[str, str]:
    """Parse KEY=VALUE options. Raises BadParameter."""
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"expected KEY=VALUE, found {pair!r}", param_hint=option)
        found[key.strip()] = value.strip()
    return found
