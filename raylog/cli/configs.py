"""`raylog configs`: what can be configured, and the settings of live topics and brokers."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.acting import Facts, acting
from raylog.cli.connecting import connect
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, parse_pairs
from raylog.cli.output import print_done, print_json, print_table

if TYPE_CHECKING:
    from raylog.actors.config import ConfigKey
    from raylog.client import Resource

app = typer.Typer(help="Show documented settings; describe and alter those of a live cluster.")


class Kind(StrEnum):
    """What a setting belongs to."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


KindArgument = Annotated[Kind, typer.Argument(help="Whose settings.")]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help='A topic, a broker id ("": all brokers), a group, a subscription of client metrics.',
    ),
]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Show documented settings; describe and alter those of a live cluster."""
    if context.invoked_subcommand is None:
        list_documented(None, None, as_json=False)


@app.command(name="list")
def list_documented(
    pattern: Annotated[
        str | None, typer.Argument(help="Only keys or texts that contain this.")
    ] = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Default: all.")] = None,
    as_json: Json = False,
) -> None:
    """Every setting there is, with type, default, range and meaning."""
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
    """One key's line."""
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
    """A bound as people write it."""
    if bound is None:
        return ""
    return str(int(bound)) if bound == int(bound) else str(bound)


def _matches(key: ConfigKey, pattern: str | None) -> bool:
    """Whether a key is asked for."""
    text = f"{key.name} {key.documentation}".lower()
    return pattern is None or pattern.lower() in text


@app.command()
def describe(
    kind: KindArgument,
    name: NameArgument = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Defaults too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Settings of a topic, broker, group or client metrics subscription as they are in force."""
    from raylog.client import ConfigSource

    with connect(bootstrap) as client:
        entries = client.describe_configs(_resource(kind, name))
    shown = [
        {"key": entry.name, "value": entry.value, "source": entry.source.name.lower()}
        for entry in entries
        if everything or entry.source is not ConfigSource.DEFAULT
    ]
    if as_json:
        print_json(shown)
        return
    print_table(None, ["key", "value", "source"], [list(row.values()) for row in shown])
    if not everything:
        print_done(f"{len(entries) - len(shown)} settings have their defaults (--all shows them)")


@app.command()
@acting
def alter(
    kind: KindArgument,
    name: NameArgument = "",
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="May be repeated."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", "-u", metavar="KEY", help="Go back to the default."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> Facts:
    """Change settings of a topic, broker, group or client metrics subscription while it runs."""
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
    """The resource as the protocol numbers it."""
    from raylog.client import Resource, ResourceType

    return Resource(ResourceType[kind.name], name)
