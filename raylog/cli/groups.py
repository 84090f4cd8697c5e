"""The commands `raylog groups`: list, describe, reset-offsets and delete."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.acting import acting
from raylog.cli.completion import complete_groups, complete_topics
from raylog.cli.connecting import connect
from raylog.cli.failures import EXIT_FAILED
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import (
    Row,
    confirm,
    console,
    print_done,
    print_failure,
    print_json,
    print_rows,
)
from raylog.cli.reset_offsets import reset_offsets

if TYPE_CHECKING:
    from raylog.cli.group_views import GroupView
    from raylog.client import BlockingClient, TopicPartition

app = typer.Typer(
    no_args_is_help=True, help="List, describe and delete consumer groups; reset their offsets."
)

_PATIENCE_MS = 20_000
"""How long to wait for a coordinator to be elected and to load before the command fails."""
_DESCRIBED = ("classic", "consumer")
"""Types of groups that have committed offsets."""


class State(StrEnum):
    """Group states that ListGroups can filter by."""

    STABLE = "Stable"
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    DEAD = "Dead"


class Type(StrEnum):
    """Group types that ListGroups can filter by."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


def _client(bootstrap: str) -> BlockingClient:
    return connect(bootstrap, default_api_timeout_ms=_PATIENCE_MS)


@app.command(name="list")
def list_groups(
    state: Annotated[
        list[State] | None,
        typer.Option(
            "--state", help="Only groups in this state; repeatable.", case_sensitive=False
        ),
    ] = None,
    kind: Annotated[
        list[Type] | None,
        typer.Option("--type", help="Only groups of this type; repeatable.", case_sensitive=False),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List groups with type, state and coordinator."""
    with _client(bootstrap) as client:
        found = client.list_groups(states=state or (), types=kind or ())
    rows: list[Row] = [
        {
            "group": group.group_id,
            "type": group.type or None,
            "protocol_type": group.protocol_type or None,
            "state": group.state or None,
            "coordinator": group.coordinator,
        }
        for group in found
    ]
    columns = ["group", "type", "protocol", "state", "coordinator#"]
    none = "no such groups" if state or kind else "no groups"
    print_rows(columns, rows, as_json=as_json, note="" if rows else none)


@app.command()
def describe(
    groups: Annotated[
        list[str] | None,
        typer.Argument(metavar="GROUP", help="Group ids.", autocompletion=complete_groups),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All groups.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep updating the output until Ctrl-C.")
    ] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, help="Seconds between updates.")
    ] = 2.0,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a group's state, members, committed offsets and lag.

    With --watch --json, each update is one line.
    """
    if bool(groups) == everything:
        raise typer.BadParameter("give groups, or --all")
    with _client(bootstrap) as client:
        if watch:
            _watch(client, groups, interval_s, as_json=as_json)
            return
        _show(_read(client, groups), as_json=as_json)


def _read(client: BlockingClient, groups: list[str] | None) -> list[GroupView]:
    """Read the current state of groups (None: all of types with committed offsets)."""
    from raylog.cli.group_views import read_groups

    if groups is None:
        listed = client.list_groups()
        groups = [group.group_id for group in listed if group.type in ("", *_DESCRIBED)]
    return read_groups(client, groups)


def _show(views: list[GroupView], *, as_json: bool) -> None:
    """Print the groups once."""
    from raylog.cli.group_views import as_json as to_json
    from raylog.cli.group_views import render

    if as_json:
        print_json([to_json(view) for view in views])
    elif views:
        console().print(render(views))
    else:
        print_done("no groups")


def _watch(
    client: BlockingClient, groups: list[str] | None, interval_s: float, *, as_json: bool
) -> None:
    """Print the groups repeatedly: in place on a terminal, one after the other elsewhere."""
    from rich.live import Live

    from raylog.cli.group_views import as_json as to_json
    from raylog.cli.group_views import render

    screen = console()
    try:
        if as_json or not screen.is_terminal:
            for views in _looks(client, groups, interval_s):
                if as_json:
                    typer.echo(json.dumps([to_json(view) for view in views]))
                else:
                    screen.print(render(views))
            return
        with Live(console=screen, auto_refresh=False) as live:
            for views in _looks(client, groups, interval_s):
                live.update(render(views), refresh=True)
    except KeyboardInterrupt:
        return


def _looks(
    client: BlockingClient, groups: list[str] | None, interval_s: float
) -> Iterator[list[GroupView]]:
    """Yield the groups at intervals. Later reads that fail are reported and skipped."""
    from raylog.client import ClientError
    from raylog.wire.errors import GroupIdNotFound, KafkaError

    yield _read(client, groups)
    while True:
        time.sleep(interval_s)
        try:
            views = _read(client, groups)
        except GroupIdNotFound:
            raise
        except (KafkaError, ClientError) as error:
            print_done(f"{type(error).__name__}: {error}")
            continue
        yield views


@app.command()
@acting
def delete(
    groups: Annotated[
        list[str],
        typer.Argument(metavar="GROUP", help="Group ids.", autocompletion=complete_groups),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Delete only the committed offsets of this topic or these partitions; repeatable.",
            autocompletion=complete_topics,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups without members, or only some of their committed offsets."""
    from raylog.cli.offset_reset import parse_partitions

    wanted = [parse_partitions(topic) for topic in topics or ()]
    what = f"the offsets in {', '.join(topics)}" if topics else "all committed offsets"
    confirm(f"Delete {what} of {', '.join(groups)}?", yes=yes)
    failed = False
    with _client(bootstrap) as client:
        for group in groups:
            failed |= not _delete(client, group, wanted)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _delete(client: BlockingClient, group: str, wanted: list[tuple[str, list[int] | None]]) -> bool:
    """Delete one group, or some of its offsets. Print the result; return whether it succeeded."""
    from raylog.cli.failures import explain
    from raylog.wire.errors import KafkaError

    try:
        if not wanted:
            client.delete_groups([group])
            print_done(f"{group} deleted")
            return True
        keys = _committed_in(client.group_offsets(group), wanted)
        client.delete_group_offsets(group, keys)
    except KafkaError as error:
        failure = explain(error)
        assert failure is not None, "a broker's refusal can be explained"
        print_failure(failure)
        return False
    print_done(f"{group}: {len(keys)} committed offsets deleted")
    return True


def _committed_in(
    committed: Iterable[TopicPartition], wanted: list[tuple[str, list[int] | None]]
) -> list[TopicPartition]:
    """Return the committed partitions that are among the wanted ones."""
    return sorted(
        key
        for key in committed
        if any(
            key.topic == topic and (partitions is None or key.partition in partitions)
            for topic, partitions in wanted
        )
    )


app.command(name="reset-offsets")(reset_offsets)
