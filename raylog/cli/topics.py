"""The commands `raylog topics`: create, list, alter, delete; larger ones have their own modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.acting import Facts, acting
from raylog.cli.completion import complete_topics
from raylog.cli.connecting import connect
from raylog.cli.describe_topics import describe
from raylog.cli.elect_leaders import elect_leaders
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Pairs, parse_pairs
from raylog.cli.output import confirm, print_done, print_rows
from raylog.cli.reassign import reassign
from raylog.cli.replica_options import parse_assignment

if TYPE_CHECKING:
    from raylog.client import BlockingClient, TopicView

app = typer.Typer(
    no_args_is_help=True,
    help="Create, list, describe, alter and delete topics; move their replicas.",
)
app.command(name="describe")(describe)
app.command(name="reassign")(reassign)
app.command(name="elect-leaders")(elect_leaders)

Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="Names of topics.", autocompletion=complete_topics),
]
Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topics)
]


def _client(bootstrap: str) -> BlockingClient:
    return connect(bootstrap)


@app.command()
@acting
def create(
    topics: Topics,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", help="Number of partitions. Default: the broker's num.partitions."
        ),
    ] = -1,
    replicas: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "--replicas",
            "-r",
            help="Replicas of each partition. Default: the broker's default.replication.factor.",
        ),
    ] = -1,
    assignment: Annotated[
        str | None,
        typer.Option(
            "--assignment",
            metavar="0:1,1:2",
            help="Brokers of each partition, the preferred leader first; instead of -p and -r.",
        ),
    ] = None,
    config: Pairs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do not fail if a topic exists.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> Facts:
    """Create topics and wait until they can be written."""
    from raylog.client import NewTopic
    from raylog.wire.errors import TopicAlreadyExists

    if assignment is not None and (partitions, replicas) != (-1, -1):
        raise typer.BadParameter(
            "--assignment cannot be combined with --partitions or --replication-factor"
        )
    placed = parse_assignment(assignment) if assignment is not None else {}
    configs = parse_pairs(config)
    facts: dict[str, list[str]] = {"created": [], "existing": []}
    with _client(bootstrap) as client:
        for name in topics:
            try:
                client.create_topics([NewTopic(name, partitions, replicas, configs, placed)])
            except TopicAlreadyExists:
                if not if_not_exists:
                    raise
                facts["existing"].append(name)
                print_done(f"{name} exists")
            else:
                facts["created"].append(name)
                print_done(f"{name} created")
    return facts


@app.command(name="list")
def list_topics(
    internal: Annotated[bool, typer.Option(help="Show internal topics too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List topics."""
    with _client(bootstrap) as client:
        views = client.metadata().topics
    shown = [views[name] for name in sorted(views) if internal or not views[name].is_internal]
    summaries = [_summary(view) for view in shown]
    keys = ("name", "partitions", "replicas", "topic_id")
    print_rows(
        ["topic", "partitions#", "replicas#", "topic id"],
        summaries,
        as_json=as_json,
        cells=lambda row: [row[key] for key in keys],
    )


def _summary(view: TopicView) -> dict[str, object]:
    """Return the row of a topic."""
    from raylog.wire.uuids import to_base64

    replicas = max((len(partition.replicas) for partition in view.partitions.values()), default=0)
    return {
        "name": view.name,
        "topic_id": to_base64(view.topic_id),
        "partitions": len(view.partitions),
        "replicas": replicas,
        "is_internal": view.is_internal,
    }


@app.command()
@acting
def alter(
    topic: Topic,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", help="New number of partitions; it can only grow."),
    ] = None,
    config: Pairs = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", metavar="KEY", help="A setting to reset to its default; repeatable."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> Facts:
    """Add partitions to a topic, or change its settings."""
    from raylog.client import Resource, ResourceType

    changes: dict[str, str | None] = {**parse_pairs(config), **dict.fromkeys(unset or ())}
    if partitions is None and not changes:
        raise typer.BadParameter("give --partitions, --config or --unset")
    with _client(bootstrap) as client:
        if changes:
            client.alter_configs(Resource(ResourceType.TOPIC, topic), changes)
            print_done(f"{topic}: {', '.join(changes)} changed")
        if partitions is not None:
            client.create_partitions(topic, partitions)
            print_done(f"{topic} has {partitions} partitions")
    return {"topic": topic, "configs": changes, "partitions": partitions}


@app.command()
@acting
def delete(
    topics: Topics,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> Facts:
    """Delete topics with all their records."""
    confirm(f"Delete {', '.join(topics)} with all records?", yes=yes)
    with _client(bootstrap) as client:
        client.delete_topics(topics)
    print_done(f"{', '.join(topics)} deleted")
    return {"deleted": topics}
