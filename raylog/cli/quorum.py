"""`raylog quorum`: show the metadata quorum; add or remove voters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.acting import acting
from raylog.cli.connecting import connect
from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import confirm, print_done, print_rows
from raylog.cli.status import ago, quorum_rows

if TYPE_CHECKING:
    from raylog.client import BlockingClient, QuorumMember, QuorumView

app = typer.Typer(
    no_args_is_help=True,
    help="Show the metadata quorum; add or remove voters.",
)
SILENT_MS = 10_000
"""A voter that has been silent for longer counts as lost."""
Broker = Annotated[int, typer.Argument(metavar="BROKER", min=0, help="Broker id.")]
Directory = Annotated[
    str | None,
    typer.Option(
        "--directory",
        metavar="ID",
        help="Id of the directory, as `raylog quorum status` shows it; needed only if the broker "
        "has two.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command()
def status(as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show the copies of the metadata log: voters, observers, epoch, and lag.

    A change of topics, settings or leaders is committed once a majority of
    the voters has it. Observers follow but do not vote. A voter that has
    been silent for long is lost, or its broker is down.
    """
    with connect(bootstrap) as client:
        quorum = client.describe_quorum()
    members = [*quorum.voters, *quorum.observers]
    rows = [
        {**row, "directory": one.directory_id or None}
        for row, one in zip(quorum_rows(quorum), members, strict=True)
    ]
    now_ms = time.time() * 1_000
    silent = [
        one.broker_id for one in quorum.voters if 0 <= one.last_contact_ms < now_ms - SILENT_MS
    ]
    print_rows(
        ["broker#", "role", "epoch#", "end#", "lag#", "seen", "directory"],
        rows,
        as_json=as_json,
        cells=lambda row: (*list(row.values())[:5], ago(row["last_contact_ms"]), row["directory"]),
        note=_tolerance(len(quorum.voters), silent),
    )


@app.command()
@acting
def add(
    broker: Broker,
    directory: Directory = None,
    listeners: Annotated[
        list[str] | None,
        typer.Option(
            "--listener",
            metavar="NAME=HOST:PORT",
            help="Address of the new controller, for Apache Kafka. Raylog does not need it.",
        ),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Make a broker a voter. It first catches up with the metadata log.

    A broker that lost its directory and came back with a new one replaces its
    own old voter, which can never vote again.
    """
    with connect(bootstrap) as client:
        quorum = client.describe_quorum()
        observer = _one(quorum.observers, broker, directory)
        voter = _one(quorum.voters, broker, None)
        if observer is None and voter is not None and directory in (None, voter.directory_id):
            print_done(f"broker {broker} is already a voter")
            return
        if observer is None:
            raise CommandFailed(
                f"broker {broker} is not known" + (f" with {directory}" if directory else ""),
                "List the brokers with: raylog quorum status",
            )
        if voter is not None:
            confirm(
                f"The voter of broker {broker} has the directory {voter.directory_id}, which the "
                "broker no longer has. Replace the voter?",
                yes=yes,
            )
            client.remove_voter(broker, voter.directory_id)
        client.add_voter(broker, observer.directory_id, _addresses(listeners or []))
        _tell(client, f"broker {broker} is now a voter")


@app.command()
@acting
def remove(
    broker: Broker,
    directory: Directory = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove a voter, whether its broker runs or is lost. It remains a broker.

    Refused for the last voter, and if too few of the other voters answer.
    """
    with connect(bootstrap) as client:
        quorum = client.describe_quorum()
        voter = _one(quorum.voters, broker, directory)
        if voter is None:
            raise CommandFailed(
                f"broker {broker} is not a voter" + (f" with {directory}" if directory else ""),
                "List the voters with: raylog quorum status",
            )
        if len(quorum.voters) == 1:
            raise CommandFailed(
                f"broker {broker} is the last voter",
                "Add another voter first: raylog quorum add BROKER",
            )
        left = _tolerance(len(quorum.voters) - 1)
        confirm(f"Remove the voter of broker {broker}? Then {left}.", yes=yes)
        client.remove_voter(broker, voter.directory_id)
        _tell(client, f"broker {broker} is no longer a voter")


def _one(copies: list[QuorumMember], broker: int, directory: str | None) -> QuorumMember | None:
    """Return a broker's copy of the metadata log, in `directory` if that is given, or None."""
    for one in copies:
        if one.broker_id == broker and directory in (None, one.directory_id):
            return one
    return None


def _addresses(listeners: list[str]) -> dict[str, tuple[str, int]]:
    """Parse listeners; raises BadParameter."""
    found = {}
    for one in listeners:
        name, _, address = one.partition("=")
        host, _, port = address.rpartition(":")
        if not (name and host and port.isdecimal()):
            raise typer.BadParameter(f"expected NAME=HOST:PORT, found {one!r}")
        found[name] = (host, int(port))
    return found


def _tell(client: BlockingClient, done: str) -> None:
    quorum: QuorumView = client.describe_quorum()
    print_done(f"{done}; {_tolerance(len(quorum.voters))}")


def _tolerance(voters: int, silent: Sequence[int] = ()) -> str:
    """Describe how many voters may be lost, besides the silent ones."""
    spare = (voters - 1) // 2 - len(silent)
    names = "1 broker votes" if voters == 1 else f"{voters} brokers vote"
    if silent:
        gone = " and ".join(map(str, silent))
        more = "no other one may" if spare <= 0 else f"{spare} more may"
        return f"{names}; {gone} has been silent for {SILENT_MS // 1_000} s: {more} be lost"
    lost = "none of them may be lost" if spare == 0 else f"{spare} of them may be lost"
    return f"{names}; {lost}"
