"""`raylog topics`: create, list, describe, alter, delete."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.completion import complete_topics
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Pairs, parse_pairs
from raylog.cli.output import human_bytes, print_done, print_json, print_table

if TYPE_CHECKING:
    from raylog.client import BlockingClient, ConfigEntry, FoundOffset, TopicPartition, TopicView

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="Names of topics.", autocompletion=complete_topics),
]
Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete_topics)
]


def _client(bootstrap: str) -> BlockingClient:
    from raylog.client import BlockingClient

    return BlockingClient(bootstrap)


@app.command()
def create(
    topics: Topics,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Default: the broker's num.partitions.")
    ] = -1,
    replicas: Annotated[
        int, typer.Option("--replicas", "-r", help="Default: default.replication.factor.")
    ] = -1,
    config: Pairs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing topic is no failure.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Create topics and wait until they can be written."""
    from raylog.client import NewTopic
    from raylog.wire.errors import TopicAlreadyExists

    configs = parse_pairs(config)
    with _client(bootstrap) as client:
        for name in topics:
            try:
                client.create_topics([NewTopic(name, partitions, replicas, configs)])
            except TopicAlreadyExists:
                if not if_not_exists:
                    raise
                print_done(f"{name} exists")
            else:
                print_done(f"{name} created")


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
    if as_json:
        print_json([_summary(view) for view in shown])
        return
    summaries = [_summary(view) for view in shown]
    print_table(
        None,
        ["topic", "partitions#", "replicas#", "topic id"],
        [(row["name"], row["partitions"], row["replicas"], row["topic_id"]) for row in summaries],
    )


def _summary(view: TopicView) -> dict[str, object]:
    """A topic in one line."""
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
def describe(topic: Topic, as_json: Json = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Show a topic's partitions with leaders, replicas, offsets and sizes, and its settings."""
    from raylog.client import EARLIEST, LATEST, Resource, ResourceType, TopicPartition

    with _client(bootstrap) as client:
        view = client.describe_topic(topic)
        led = [
            TopicPartition(topic, index)
            for index, partition in view.partitions.items()
            if partition.leader >= 0
        ]
        first = client.list_offsets(dict.fromkeys(led, EARLIEST))
        end = client.list_offsets(dict.fromkeys(led, LATEST))
        sizes = _sizes(client, topic)
        entries = client.describe_configs(Resource(ResourceType.TOPIC, topic))
    indexes = sorted(view.partitions)
    partitions = [_partition_row(view, index, first, end, sizes) for index in indexes]
    changed = _changed(entries)
    if as_json:
        print_json({**_summary(view), "partitions": partitions, "configs": changed})
        return
    print_table(
        f"{topic}  ({_summary(view)['topic_id']})",
        ["partition#", "leader#", "epoch#", "replicas", "in sync", "first#", "end#", "size#"],
        [(*list(row.values())[:7], human_bytes(int(str(row["size_bytes"])))) for row in partitions],
    )
    if changed:
        print_table(None, ["setting", "value"], sorted(changed.items()))


def _partition_row(
    view: TopicView,
    index: int,
    first: dict[TopicPartition, FoundOffset],
    end: dict[TopicPartition, FoundOffset],
    sizes: dict[int, int],
) -> dict[str, object]:
    """One partition's line; offsets are missing while nobody leads it."""
    from raylog.client import TopicPartition

    key = TopicPartition(view.name, index)
    partition = view.partitions[index]
    return {
        "partition": index,
        "leader": partition.leader if partition.leader >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "log_start_offset": first[key].offset if key in first else None,
        "high_watermark": end[key].offset if key in end else None,
        "size_bytes": sizes.get(index, -1),
    }


def _sizes(client: BlockingClient, topic: str) -> dict[int, int]:
    """Largest replica's bytes by partition."""
    sizes: dict[int, int] = {}
    for directory in client.describe_log_dirs():
        for found in directory.partitions:
            if found.topic == topic:
                sizes[found.partition] = max(found.size_bytes, sizes.get(found.partition, 0))
    return sizes


def _changed(entries: list[ConfigEntry]) -> dict[str, str | None]:
    """The settings that the topic has of its own."""
    from raylog.client import ConfigSource

    return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}


@app.command()
def alter(
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="New number; it can only grow.")
    ] = None,
    config: Pairs = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Go back to the default; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
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


@app.command()
def delete(
    topics: Topics,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics with all their records."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(topics)} with all records?", abort=True)
    with _client(bootstrap) as client:
        client.delete_topics(topics)
    print_done(f"{', '.join(topics)} deleted")
