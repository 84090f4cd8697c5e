"""Marks of a batch or job, in the metadata of the group's committed offsets.

The sink's state (`state`) is authoritative. In addition, each transaction commits offsets in the
sink's group, for tools that show lag, with a mark as their metadata:

| version | metadata | meaning |
|---|---|---|
| 1 | `{"query": "q", "batch": 4}` | written by builds without a state topic: used |
| 2 | `{"query": "q", "batch": 4, "state": 2}` | says that a state exists; otherwise ignored |

A job's mark has the job's id as its query, and batch 0. Builds of version 1 read both versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from raylog.client.admin.groups import CommittedOffset
from raylog.client.cluster import TopicPartition

METADATA_BYTES_MAX = 4_096
"""The brokers' default limit of offset metadata (`offset.metadata.max.bytes`)."""
_STATE_VERSION = 2


@dataclass(frozen=True, slots=True)
class Mark:
    """One micro-batch; batch ids increase within a query."""

    query_id: str
    batch_id: int

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id!r}"

    def encode(self) -> str:
        """Return the metadata of a transaction's offsets."""
        return _metadata(self.query_id, self.batch_id)


@dataclass(frozen=True, slots=True)
class Job:
    """One job, written by one transaction."""

    job_id: str

    def __str__(self) -> str:
        return f"job {self.job_id!r}"

    def encode(self) -> str:
        """Return the metadata of a transaction's offsets."""
        return _metadata(self.job_id, 0)


def _metadata(query_id: str, batch_id: int) -> str:
    """Encode a mark as metadata; omit query and batch if it would be too long."""
    fields = {"query": query_id, "batch": batch_id, "state": _STATE_VERSION}
    text = json.dumps(fields, ensure_ascii=False)
    if len(text.encode()) > METADATA_BYTES_MAX:
        text = json.dumps({"state": _STATE_VERSION})
    return text


def _document(metadata: str | None) -> object:
    try:
        return json.loads(metadata or "")
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class GroupMarks:
    """The marks in the offsets of a sink's group."""

    first: Mapping[Mark, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Marks of version 1, with the offsets that were committed under each."""
    has_state: bool = False
    """Whether a build with a state topic has committed offsets in this group."""

    def batches(self) -> dict[str, int]:
        """Return the newest batch of version 1 by query."""
        found: dict[str, int] = {}
        for mark in self.first:
            found[mark.query_id] = max(mark.batch_id, found.get(mark.query_id, mark.batch_id))
        return found


def group_marks(offsets: Mapping[TopicPartition, CommittedOffset]) -> GroupMarks:
    """Collect the marks in a group's committed offsets."""
    first: dict[Mark, dict[TopicPartition, int]] = {}
    has_state = False
    for key, offset in offsets.items():
        match _document(offset.metadata):
            case {"state": int()}:
                has_state = True
            case {"query": str(query_id), "batch": int(batch_id)}:
                first.setdefault(Mark(query_id, batch_id), {})[key] = offset.offset
    return GroupMarks(first, has_state)
