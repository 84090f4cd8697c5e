"""What Spark's checkpoint says about a micro-batch: which query, from where, to where.

| file | contents |
|---|---|
| `metadata` | `{"id": <query id>}` |
| `offsets/<batch>` | a version, a line about the batch, and a line for each source: where it ends |
| `sources/<n>/0` | a version and a line: where source n began |

Spark writes the offsets of a batch before it runs it. A Kafka source's line is topic → partition →
offset; other sources' lines are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from raylog.client.cluster import TopicPartition

_HEAD_LINES = 2
"""Before the sources' lines: the version, the batch."""

Offsets = dict[TopicPartition, int]
ReadText = Callable[[str], str | None]
"""The contents of a file of the checkpoint by its path in it; None if it is not there."""


class NoCheckpoint(ValueError):
    """The checkpoint does not know the batch that is to be written."""


@dataclass(frozen=True, slots=True)
class BatchSource:
    """Where a micro-batch came from."""

    query_id: str
    starts: Offsets
    ends: Offsets


def batch_source(read: ReadText, batch_id: int) -> BatchSource:
    """What the checkpoint says about a batch; raises NoCheckpoint."""
    metadata = read("metadata")
    written = read(f"offsets/{batch_id}")
    if metadata is None or written is None:
        raise NoCheckpoint(
            f"expected batch {batch_id} in the checkpoint, found none: is it the "
            "checkpointLocation of this very query?"
        )
    lines = written.splitlines()[_HEAD_LINES:]
    before = read(f"offsets/{batch_id - 1}") if batch_id else None
    starts: Offsets = {}
    for number, line in enumerate(lines):
        if not kafka_offsets(line):
            continue
        first = read(f"sources/{number}/0")
        if first is not None:
            starts |= kafka_offsets(first.splitlines()[-1])
    if before is not None:
        starts |= _all_offsets(before.splitlines()[_HEAD_LINES:])
    return BatchSource(json.loads(metadata)["id"], starts, _all_offsets(lines))


def _all_offsets(lines: list[str]) -> Offsets:
    """The offsets of all Kafka sources."""
    found: Offsets = {}
    for line in lines:
        found |= kafka_offsets(line)
    return found


def kafka_offsets(line: str) -> Offsets:
    """The offsets in one source's line; none if it is no Kafka source's."""
    try:
        topics = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(topics, dict) or not all(isinstance(of, dict) for of in topics.values()):
        return {}
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }
