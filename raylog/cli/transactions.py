"""The commands `raylog transactions`: list, describe, describe-producers, hanging and abort."""

from __future__ import annotations

from typing import Annotated

import typer

from raylog.cli.abort_transaction import abort
from raylog.cli.acting import acting
from raylog.cli.connecting import connect
from raylog.cli.hanging_transactions import describe_producers, hanging
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import Row, print_json, print_rows, print_table

app = typer.Typer(
    no_args_is_help=True, help="List, describe and abort transactions; find hanging ones."
)


@app.command(name="list")
def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only ids in this state, such as Ongoing; repeatable."),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List transactional ids with producer id, state and coordinator."""
    with connect(bootstrap) as client:
        found = client.list_transactions(states=state or ())
    rows: list[Row] = [
        {
            "transactional_id": one.transactional_id,
            "producer_id": one.producer_id,
            "state": one.state,
            "coordinator": one.coordinator,
        }
        for one in found
    ]
    columns = ["transactional id", "producer#", "state", "coordinator#"]
    none = "no such transactions" if state else "no transactions"
    print_rows(columns, rows, as_json=as_json, note="" if rows else none)


@app.command()
def describe(
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="Transactional id.")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the producer of a transactional id, and the partitions of its open transaction."""
    with connect(bootstrap) as client:
        found = client.describe_transaction(transactional_id)
    row = {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_ms": found.start_ms if found.start_ms >= 0 else None,
        "partitions": [f"{one.topic}-{one.partition}" for one in sorted(found.partitions)],
    }
    if as_json:
        print_json(row)
        return
    print_table(None, ["what", "value"], list(row.items()))


app.command(name="describe-producers")(describe_producers)
app.command(name="hanging")(hanging)
app.command(name="abort")(acting(abort))
