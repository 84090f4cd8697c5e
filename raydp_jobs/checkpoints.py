"""Reads from Spark's checkpoint which query a micro-batch belongs to, and its offsets.

| file | contents |
|---|---|
| `metadata` | `{"id": <query id>}` |
| `offsets/<batch>` | a version, a line about the batch, and a line for each source: where it ends |
| `sources/<n>/0` | a version and a line: where source n began |

Spark writes the offsets of a batch before it runs it. A Kafka source's line is topic → partition →
offset; other sources have their own formats. A stream that is used twice has two lines in
`offsets`, and one file in `sources`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from raylog.client.cluster import TopicPartition
from raylog.sink.batches import KafkaRange, OtherRange, SourceRange
from raylog.sink.marks import Mark

_HEAD_LINES = 2
"""Lines before those of the sources: the version and the batch."""
Offsets = dict[TopicPartition, int]
ReadText = Callable[[str], str | None]
"""Returns the contents of a file, by its path in the checkpoint; None if it does not exist."""


class NoCheckpoint(ValueError):
    """The checkpoint does not have the batch that is to be written, or belongs to another query."""


@dataclass(frozen=True, slots=True)
class BatchSource:
    """A micro-batch and the ranges that it reads of its sources."""

    query_id: str
    batch_id: int
    sources: tuple[SourceRange, ...]
    """In the order of the query."""

    @property
    def mark(self) -> Mark:
        """The batch's mark."""
        return Mark(self.query_id, self.batch_id)

    @property
    def starts(self) -> Offsets:
        """The start offsets of all Kafka sources."""
        return {key: at for source in self._kafka() for key, at in source.starts.items()}

    @property
    def ends(self) -> Offsets:
        """The end offsets of all Kafka sources."""
        return {key: at for source in self._kafka() for key, at in source.ends.items()}

    def _kafka(self) -> Iterator[KafkaRange]:
        return (source for source in self.sources if isinstance(source, KafkaRange))


def batch_source(read: ReadText, batch_id: int, running: str | None = None) -> BatchSource:
    """Read a batch's sources from the checkpoint; `running` is the id of the running query.

    Raises NoCheckpoint.
    """
    metadata = read("metadata")
    written = read(f"offsets/{batch_id}")
    if metadata is None or written is None:
        raise NoCheckpoint(
            f"expected batch {batch_id} in the checkpoint, found none: is it the "
            "checkpointLocation of this very query?"
        )
    query_id = str(json.loads(metadata)["id"])
    if running is not None and running != query_id:
        raise NoCheckpoint(
            f"the checkpoint belongs to query {query_id}, and batch {batch_id} is of query "
            f"{running}: expected the checkpointLocation of this very query"
        )
    lines = _lines(written)
    before = _lines(read(f"offsets/{batch_id - 1}")) if batch_id else []
    firsts = [] if batch_id else _first_offsets(read, len(lines))
    sources: list[SourceRange] = []
    for number, line in enumerate(lines):
        start = before[number] if number < len(before) else None
        if not is_kafka(line):
            sources.append(OtherRange(start, line))
            continue
        ends = kafka_offsets(line)
        starts = _first_of(firsts, number, ends) if start is None else kafka_offsets(start)
        sources.append(KafkaRange(starts, ends))
    return BatchSource(query_id, batch_id, tuple(sources))


def is_kafka(line: str) -> bool:
    """Return whether a line is a Kafka source's, which may have no partitions yet."""
    try:
        topics = json.loads(line)
    except ValueError:
        return False
    return isinstance(topics, dict) and all(
        isinstance(partitions, dict)
        and all(partition.isdigit() and isinstance(at, int) for partition, at in partitions.items())
        for partitions in topics.values()
    )


def kafka_offsets(line: str) -> Offsets:
    """Parse the offsets in a source's line; empty if it is not a Kafka source's."""
    if not is_kafka(line):
        return {}
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in json.loads(line).items()
        for partition, offset in partitions.items()
    }


def _lines(written: str | None) -> list[str]:
    """Return the sources' lines of a batch; empty if its file is gone."""
    return [] if written is None else written.splitlines()[_HEAD_LINES:]


def _first_offsets(read: ReadText, count: int) -> list[Offsets]:
    """Return where each source began, by number; empty for those without a file."""
    found = [read(f"sources/{number}/0") for number in range(count)]
    return [kafka_offsets(text.splitlines()[-1]) if text else {} for text in found]


def _first_of(firsts: list[Offsets], number: int, ends: Offsets) -> Offsets:
    """Return where a source began: in the file of its number, or else the first with its topics."""
    topics = {key.topic for key in ends}
    for first in [*firsts[number : number + 1], *firsts]:
        if {key.topic for key in first} == topics:
            return first
    return {}
