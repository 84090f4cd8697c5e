"""The commands `raylog configs`: list all settings; describe and alter those of a cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.acting import Facts, acting
from raylog.cli.connecting import connect
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, parse_pairs
from raylog.cli.output import Row, print_done, print_json, print_rows, print_table

if TYPE_CHECKING:
    from raylog.actors.config import ConfigKey
    from raylog.client import Resource

app = typer.Typer(help="List all settings; describe and alter settings of a live cluster.")


class Kind(StrEnum):
    """Kind of resource that a setting belongs to."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


KindArgument = Annotated[Kind, typer.Argument(help="Kind of resource.")]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help='Name of the topic, group or client metrics subscription, or a broker id ("": all '
        "brokers).",
    ),
]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """List all settings; describe and alter settings of a live cluster."""
    if context.invoked_subcommand is None:
        list_documented(None, None, as_json=False)


@app.command(name="list")
def list_documented(
    pattern: Annotated[
        str | None, typer.Argument(help="Only settings whose key or description contains this.")
    ] = None,
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="Only settings of this kind of resource.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List all settings with their types, defaults, ranges and meanings."""
    from raylog.actors.config import KEYS_OF, ResourceType

    rows = {
        each: [
            _documented(key)
            for key in KEYS_OF[ResourceType[each.name]].values()
            if not key.internal and _matches(key, pattern)
        ]
        for each in Kind
        if kind in (None, each)
    }
    if as_json:
        print_json({each.value: found for each, found in rows.items()})
        return
    for each, found in rows.items():
        if found:
            print_table(
                f"{each.value} settings",
                ["key", "type", "default", "values", "meaning"],
                [list(row.values()) for row in found],
            )
    if not any(rows.values()):
        print_done(f"no setting contains {pattern!r}")


def _documented(key: ConfigKey) -> dict[str, str | None]:
    """Return the row of one key."""
    values = "|".join(key.choices)
    if not values and (key.low is not None or key.high is not None):
        values = f"{_number(key.low)}..{_number(key.high)}"
    return {
        "key": key.name,
        "type": key.type.name.lower(),
        "default": key.default,
        "values": values,
        "documentation": key.documentation,
    }


def _number(bound: float | None) -> str:
    """Format a bound; whole numbers have no decimal point."""
    if bound is None:
        return ""
    return str(int(bound)) if bound == int(bound) else str(bound)


def _matches(key: ConfigKey, pattern: str | None) -> bool:
    """Whether a key's name or description contains the pattern."""
    text = f"{key.name} {key.documentation}".lower()
    return pattern is None or pattern.lower() in text


@app.command()
def describe(
    kind: KindArgument,
    name: NameArgument = "",
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Show settings that have their default values too.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the settings in force for a topic, broker, group or client metrics subscription."""
    from raylog.client import ConfigSource

    with connect(bootstrap) as client:
        entries = client.describe_configs(_resource(kind, name))
    shown: list[Row] = [
        {"key": entry.name, "value": entry.value, "source": entry.source.name.lower()}
        for entry in entries
        if everything or entry.source is not ConfigSource.DEFAULT
    ]
    left = f"{len(entries) - len(shown)} settings have their default values (--all shows them)"
    note = "" if everything else left
    print_rows(["key", "value", "source"], shown, as_json=as_json, note=note)


@app.command()
@acting
def alter(
    kind: KindArgument,
    name: NameArgument = "",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting to change; repeatable."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", "-u", metavar="KEY", help="A setting to reset to its default; repeatable."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> Facts:
    """Change settings of a topic, broker, group or client metrics subscription."""
    wanted: dict[str, str | None] = {
        **parse_pairs(changes, "--set"),
        **dict.fromkeys(unset or ()),
    }
    if not wanted:
        raise typer.BadParameter("give --set KEY=VALUE or --unset KEY")
    with connect(bootstrap) as client:
        client.alter_configs(_resource(kind, name), wanted)
    whose = f"{kind.value} {name!r}" if name else f"all {kind.value}s"
    print_done(f"{whose}: {', '.join(wanted)} changed")
    return {"kind": kind.value, "name": name, "changed": wanted}


def _resource(kind: Kind, name: str) -> Resource:
    """Return the client's resource for a kind and a name."""
    from raylog.client import Resource, ResourceType

    return Resource(ResourceType[kind.name], name)
