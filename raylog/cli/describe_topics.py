"""The command `raylog topics describe`: shows leaders, replicas and offsets of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cli.completion import complete_topics
from raylog.cli.connecting import connect
from raylog.cli.failures import CommandFailed
from raylog.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from raylog.cli.output import human_bytes, print_done, print_json, print_table

if TYPE_CHECKING:
    from raylog.client import (
        BlockingClient,
        ConfigEntry,
        FoundOffset,
        PartitionReplicas,
        TopicPartition,
    )

Row = dict[str, object]
_MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Filters:
    """The chosen conditions. A partition is shown if one of them applies."""

    under_replicated: bool
    under_min_isr: bool
    unavailable: bool

    @property
    def any(self) -> bool:
        """Whether any condition is chosen."""
        return self.under_replicated or self.under_min_isr or self.unavailable

    def apply_to(self, one: PartitionReplicas, min_isr: int) -> bool:
        """Whether to show a partition."""
        return (
            (self.under_replicated and one.is_under_replicated)
            or (self.under_min_isr and len(one.isr) < min_isr)
            or (self.unavailable and one.leader < 0)
        )


def describe(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC", help="Default: all topics.", autocompletion=complete_topics
        ),
    ] = None,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated", help="Only partitions with a replica out of sync."),
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr", help="Only partitions with too few in-sync replicas for acks=all."
        ),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable", help="Only partitions without a leader.")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show partitions with their leaders and replicas.

    For a single topic also offsets, sizes and settings. "eligible" replicas are
    out of sync but have all committed records (KIP-966). "offline" replicas are
    on brokers that are silent.
    """
    filters = Filters(under_replicated, under_min_isr, unavailable)
    with connect(bootstrap) as client:
        if topics is not None and len(topics) == 1 and not filters.any:
            _describe_one(client, topics[0], as_json=as_json)
            return
        found = _filtered(client, topics, filters)
    rows = [{"topic": one.topic, **_replica_row(one)} for one in found]
    if as_json:
        print_json(rows)
    elif rows:
        columns, cells = _columns(rows, ["topic", *_REPLICA_COLUMNS])
        print_table(None, columns, cells)
    else:
        print_done("no such partitions" if filters.any else "no topics")


def _filtered(
    client: BlockingClient, topics: list[str] | None, filters: Filters
) -> Iterable[PartitionReplicas]:
    found = list(client.describe_partitions(topics or None).values())
    if not filters.any:
        return found
    needed = {one.topic for one in found} if filters.under_min_isr else set()
    min_isr = {topic: _min_isr(client, topic) for topic in sorted(needed)}
    return [one for one in found if filters.apply_to(one, min_isr.get(one.topic, 0))]


def _min_isr(client: BlockingClient, topic: str) -> int:
    """Return how many replicas must be in sync for acks=all.

    Raises CommandFailed if the broker does not report it.
    """
    from raylog.client import Resource, ResourceType

    entries = client.describe_configs(Resource(ResourceType.TOPIC, topic))
    values = [entry.value for entry in entries if entry.name == _MIN_ISR and entry.value]
    if not values:
        raise CommandFailed(f"the broker does not report {_MIN_ISR} of {topic}")
    return int(values[0])


# ---- rows ------------------------------------------------------------------------------------

_REPLICA_COLUMNS = {
    "partition": "partition#",
    "leader": "leader#",
    "leader_epoch": "epoch#",
    "replicas": "replicas",
    "isr": "in sync",
    "elr": "eligible",
    "last_known_elr": "last eligible",
    "offline": "offline",
}
_SINGLE_COLUMNS = {
    **_REPLICA_COLUMNS,
    "log_start_offset": "first#",
    "high_watermark": "end#",
    "size_bytes": "size#",
}
_SHOWN_IF_ANY = ("elr", "last_known_elr", "offline")


def _replica_row(one: PartitionReplicas) -> Row:
    return {
        "partition": one.partition,
        "leader": one.leader if one.leader >= 0 else None,
        "leader_epoch": one.leader_epoch,
        "replicas": list(one.replicas),
        "isr": sorted(one.isr),
        "elr": None if one.elr is None else list(one.elr),
        "last_known_elr": None if one.last_known_elr is None else list(one.last_known_elr),
        "offline": list(one.offline),
    }


def _columns(rows: Sequence[Row], names: Iterable[str]) -> tuple[list[str], list[list[object]]]:
    """Return a table's titles and cells, without optional columns that are empty in all rows."""
    titles = {"topic": "topic", **_SINGLE_COLUMNS}
    shown = [name for name in names if name not in _SHOWN_IF_ANY or any(row[name] for row in rows)]
    return [titles[name] for name in shown], [
        [human_bytes(int(str(row[name]))) if name == "size_bytes" else row[name] for name in shown]
        for row in rows
    ]


# ---- a single topic --------------------------------------------------------------------------


def _describe_one(client: BlockingClient, topic: str, *, as_json: bool) -> None:
    from raylog.client import EARLIEST, LATEST, Resource, ResourceType
    from raylog.wire.uuids import to_base64

    view = client.describe_topic(topic)
    found = client.describe_partitions([topic])
    led = [key for key, one in found.items() if one.leader >= 0]
    first = client.list_offsets(dict.fromkeys(led, EARLIEST))
    end = client.list_offsets(dict.fromkeys(led, LATEST))
    sizes = _sizes(client, topic)
    changed = _changed(client.describe_configs(Resource(ResourceType.TOPIC, topic)))
    rows = [
        {
            **_replica_row(one),
            "log_start_offset": _offset(first, key),
            "high_watermark": _offset(end, key),
            "size_bytes": sizes.get(key.partition, -1),
        }
        for key, one in sorted(found.items())
    ]
    topic_id = to_base64(view.topic_id)
    if as_json:
        print_json(
            {
                "name": topic,
                "topic_id": topic_id,
                "is_internal": view.is_internal,
                "replicas": max((len(one.replicas) for one in found.values()), default=0),
                "partitions": rows,
                "configs": changed,
            }
        )
        return
    columns, cells = _columns(rows, _SINGLE_COLUMNS)
    print_table(f"{topic}  ({topic_id})", columns, cells)
    if changed:
        print_table(None, ["setting", "value"], sorted(changed.items()))


def _offset(found: dict[TopicPartition, FoundOffset], key: TopicPartition) -> int | None:
    """Return the offset of a partition; None if it has no leader."""
    return found[key].offset if key in found else None


def _sizes(client: BlockingClient, topic: str) -> dict[int, int]:
    """Return the bytes of each partition's largest replica."""
    sizes: dict[int, int] = {}
    for directory in client.describe_log_dirs():
        for found in directory.partitions:
            if found.topic == topic:
                sizes[found.partition] = max(found.size_bytes, sizes.get(found.partition, 0))
    return sizes


def _changed(entries: list[ConfigEntry]) -> dict[str, str | None]:
    """Return the topic's own settings."""
    from raylog.client import ConfigSource

    return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}
