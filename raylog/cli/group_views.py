"""Reads groups with their members, offsets and lag, and shows them as tables or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raylog.cli.output import table
from raylog.client.cluster import indexes_by_topic

if TYPE_CHECKING:
    from rich.console import RenderableType

    from raylog.client import (
        BlockingClient,
        CommittedOffset,
        FoundOffset,
        GroupDescription,
        GroupMember,
        Node,
        TopicPartition,
    )

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class GroupView:
    """A snapshot of one group."""

    description: GroupDescription
    coordinator: Node
    committed: dict[TopicPartition, CommittedOffset]
    ends: dict[TopicPartition, FoundOffset]
    """High watermarks; partitions that are gone or have no leader are missing."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """Partitions with a committed offset or an owner."""
        owned = (key for member in self.description.members for key in member.partitions)
        return sorted({*self.committed, *owned})

    @property
    def lag(self) -> int:
        """The sum of all known lags of partitions."""
        return sum(self.lag_of(key) or 0 for key in self.partitions)

    def lag_of(self, key: TopicPartition) -> int | None:
        """Return the records between committed and end offset; None if one of them is unknown."""
        if key not in self.committed or key not in self.ends:
            return None
        return max(0, self.ends[key].offset - self.committed[key].offset)


def read_groups(client: BlockingClient, group_ids: Sequence[str]) -> list[GroupView]:
    """Describe groups with their offsets; raises GroupIdNotFound."""
    descriptions = client.describe_groups(group_ids)
    coordinators = client.find_coordinators(group_ids)
    committed = {group_id: client.group_offsets(group_id) for group_id in group_ids}
    wanted = {key for offsets in committed.values() for key in offsets}
    for description in descriptions.values():
        wanted.update(key for member in description.members for key in member.partitions)
    ends = end_offsets(client, wanted)
    return [
        GroupView(descriptions[name], coordinators[name], committed[name], ends)
        for name in group_ids
    ]


def end_offsets(
    client: BlockingClient, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, FoundOffset]:
    """Return the high watermarks of those partitions that exist and have a leader."""
    from raylog.client import LATEST

    keys = set(keys)
    if not keys:
        return {}
    topics = client.metadata({key.topic for key in keys}).topics
    led = [
        key
        for key in keys
        if key.topic in topics
        and key.partition in topics[key.topic].partitions
        and topics[key.topic].partitions[key.partition].leader >= 0
    ]
    return client.list_offsets(dict.fromkeys(led, LATEST))


def as_json(view: GroupView) -> Row:
    """Return a group as a JSON object."""
    group, node = view.description, view.coordinator
    return {
        "group": group.group_id,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "state": group.state,
        "coordinator": {"id": node.node_id, "host": node.host, "port": node.port},
        "assignor": group.assignor or None,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "last_assignor_error": group.note,
        "lag": view.lag,
        "members": [_member_json(member) for member in group.members],
        "partitions": _partition_rows(view),
    }


def _member_json(member: GroupMember) -> Row:
    """Return a member as a JSON object."""
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "instance_id": member.instance_id,
        "rack": member.rack,
        "type": member.type,
        "member_epoch": member.member_epoch,
        "topics": list(member.topics),
        "topic_regex": member.topic_regex,
        "partitions": indexes_by_topic(member.partitions),
        "target_partitions": None if member.target is None else indexes_by_topic(member.target),
    }


def _partition_rows(view: GroupView) -> list[Row]:
    """Return a row for each partition, with its offsets and its owner."""
    owners = {key: member for member in view.description.members for key in member.partitions}
    rows: list[Row] = []
    for key in view.partitions:
        committed, end, owner = view.committed.get(key), view.ends.get(key), owners.get(key)
        rows.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "committed_offset": committed.offset if committed else None,
                "end_offset": end.offset if end else None,
                "lag": view.lag_of(key),
                "member_id": owner.member_id if owner else None,
                "client_id": owner.client_id if owner else None,
                "metadata": committed.metadata if committed else None,
            }
        )
    return rows


def render(views: Iterable[GroupView]) -> RenderableType:
    """Render groups as tables."""
    from rich.console import Group

    return Group(*(part for view in views for part in _parts(view)))


def _parts(view: GroupView) -> list[RenderableType]:
    """Render one group: a summary, its partitions, its members."""
    from rich.text import Text

    group, node = view.description, view.coordinator
    facts = [f"coordinator {node.node_id} ({node.host}:{node.port})"]
    facts.append(f"assignor {group.assignor or '-'}")
    if group.group_epoch is not None:
        facts += [f"group epoch {group.group_epoch}", f"assignment epoch {group.assignment_epoch}"]
    parts: list[RenderableType] = [
        Text.assemble(
            (group.group_id, "bold"),
            f"  {group.state}, {group.type}, {len(group.members)} "
            f"member{'' if len(group.members) == 1 else 's'}, "
            f"lag {view.lag:,}",
        ),
        Text(", ".join(facts)),
    ]
    if group.note:
        parts.append(Text(f"last assignment failed: {group.note}", style="red"))
    rows = _partition_rows(view)
    if rows:
        parts.append(
            table(
                None,
                ["topic", "partition#", "committed#", "end#", "lag#", "client id", "member id"],
                [[row[name] for name in _PARTITION_COLUMNS] for row in rows],
            )
        )
    if group.members:
        parts.append(_members_table(group))
    if not rows and not group.members:
        parts.append(Text("no members, no committed offsets\n"))
    return parts


_PARTITION_COLUMNS = (
    "topic",
    "partition",
    "committed_offset",
    "end_offset",
    "lag",
    "client_id",
    "member_id",
)


def _members_table(group: GroupDescription) -> RenderableType:
    """Render the members, with target partitions if any differ from the current ones."""
    moving = any(member.target not in (None, member.partitions) for member in group.members)
    columns = ["member id", "client id", "host", "instance id"]
    columns += ["epoch#"] if group.group_epoch is not None else []
    columns += ["partitions"]
    columns += ["moving to"] if moving else []
    rows = []
    for member in group.members:
        row: list[object] = [
            member.member_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            member.instance_id,
        ]
        row += [member.member_epoch] if group.group_epoch is not None else []
        row += [_short(member.partitions)]
        row += [_short(member.target or ())] if moving else []
        rows.append(row)
    return table(None, columns, rows)


def _short(keys: Iterable[TopicPartition]) -> str | None:
    """Format partitions briefly: orders:0-3,7 payments:0."""
    return (
        " ".join(f"{topic}:{ranges(found)}" for topic, found in indexes_by_topic(keys).items())
        or None
    )


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers briefly: 0-3,7."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ",".join("-".join(map(str, span)) for span in spans)
