"""Turns rows into blocks for partitions: columns, routing, batches.

| column | type | notes |
|---|---|---|
| `value` | string or binary | required; null is a tombstone |
| `key` | string or binary | determines the partition unless `partition` does |
| `headers` | array of struct of key string, value binary | |
| `topic` | string | optional if the sink has one topic |
| `partition` | int | null or absent: by key like Kafka's clients, without a key round-robin |
| `timestamp` | timestamp | null or absent: the time of writing |

Map tasks encode their rows as record batches for one output partition each, complete except for the
producer. The shuffle and the writers handle these blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types

from raylog.client.cluster import TopicPartition
from raylog.sink.encoding import Columns, Numbers, encode_batches, encoded_headers
from raylog.sink.keys import partitions_of_keys
from raylog.sink.writer import WriterSettings

COLUMNS = ("topic", "partition", "key", "value", "headers", "timestamp")
Block = tuple[int, bytes]
"""The number of an output partition, and a record batch for it without a producer."""
_KEY_SHOWN = 40
_RECORD_OVERHEAD = 31
"""Upper bound of a record's own lengths, attributes and deltas."""


class BadColumns(ValueError):
    """A DataFrame or dataset does not have the columns of records."""


class BadRow(ValueError):
    """A row that no partition would accept; the message says where it came from."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The sink's topics and their partition counts; targets are numbered across topics."""

    partitions: Mapping[str, int]

    @property
    def default(self) -> str | None:
        """Return the topic of rows that name none."""
        return next(iter(self.partitions)) if len(self.partitions) == 1 else None

    def targets(self) -> list[TopicPartition]:
        """Return all partitions, in the order of their numbers."""
        return [
            TopicPartition(topic, partition)
            for topic, count in self.partitions.items()
            for partition in range(count)
        ]


@dataclass(slots=True)
class Splitter:
    """Splits the rows of one map task into blocks, in order."""

    topics: Topics
    row_bytes_max: int
    input_partition: int
    """For messages, and as the start of the round-robin for rows without a key."""
    now_ms: int
    """The timestamp of rows that have none."""
    settings: WriterSettings = field(default_factory=WriterSettings)
    _count: int = 0
    """Rows so far."""

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Block]:
        """Yield the blocks of these rows. Raises BadRow."""
        for batch in batches:
            if batch.num_rows:
                yield from self._split(batch)
                self._count += batch.num_rows

    def _split(self, batch: pa.RecordBatch) -> Iterator[Block]:
        keys = batch.column("key").cast(pa.large_binary())
        columns = Columns(
            pc.fill_null(batch.column("timestamp"), self.now_ms).to_numpy(),
            keys,
            batch.column("value").cast(pa.large_binary()),
            encoded_headers(batch.column("headers")),
        )
        sizes = columns.sizes() + _RECORD_OVERHEAD
        targets = self._targets(batch, keys, sizes)
        order = np.argsort(targets, kind="stable")
        targets = targets[order]
        bounds = _bounds(targets, sizes[order], self.settings.batch_bytes)
        blocks = encode_batches(
            columns.take(order), bounds, self.settings.codec, self.settings.codec_level
        )
        return zip(targets[bounds[:-1]].tolist(), blocks, strict=True)

    def _targets(self, batch: pa.RecordBatch, keys: pa.Array, sizes: Numbers) -> Numbers:
        """Return the output partition of each row."""
        numbers = self._topic_numbers(batch)
        counts = np.array([*self.topics.partitions.values(), 1])  # -1, for no topic, is the last
        firsts = np.cumsum([0, *self.topics.partitions.values()])
        of_topic = counts[numbers]
        chosen = pc.fill_null(batch.column("partition"), -1).to_numpy().astype(np.int64)
        is_chosen = batch.column("partition").is_valid().to_numpy(zero_copy_only=False)
        wrong = is_chosen & ((chosen < 0) | (chosen >= of_topic))
        bad = (numbers < 0) | (sizes > self.row_bytes_max) | wrong
        if bad.any():
            raise self._bad(batch, int(bad.argmax()), sizes)
        by_turns = (self.input_partition + self._count + np.arange(batch.num_rows)) % of_topic
        has_key = keys.is_valid().to_numpy(zero_copy_only=False)
        by_key = partitions_of_keys(keys, of_topic) if has_key.any() else by_turns
        partitions = np.where(is_chosen, chosen, np.where(has_key, by_key, by_turns))
        found: Numbers = firsts[numbers] + partitions
        return found

    def _topic_numbers(self, batch: pa.RecordBatch) -> Numbers:
        """Return the number of each row's topic; -1 for none."""
        names = batch.column("topic").cast(pa.string())
        if self.topics.default is not None:
            names = pc.fill_null(names, self.topics.default)
        known = pa.array(self.topics.partitions, pa.string())
        numbers = pc.fill_null(pc.index_in(names, known), -1)
        found: Numbers = numbers.to_numpy().astype(np.int64)
        return found

    def _bad(self, batch: pa.RecordBatch, row: int, sizes: Numbers) -> BadRow:
        """Explain why a row cannot be written, and where it came from."""
        topic, partition, key = (batch.column(name)[row].as_py() for name in COLUMNS[:3])
        name = self.topics.default if topic is None else topic
        count = self.topics.partitions.get(name) if name is not None else None
        if count is None:
            reason = f"expected a topic of {', '.join(self.topics.partitions)}, found {topic}"
        elif sizes[row] > self.row_bytes_max:
            reason = f"{sizes[row]} bytes, expected at most {self.row_bytes_max}"
        else:
            reason = f"expected a partition of {name} below {count}, found {partition}"
        shown = "no key" if key is None else f"key {key[:_KEY_SHOWN]!r}"
        number = self._count + row
        return BadRow(f"row {number} of input partition {self.input_partition} ({shown}): {reason}")


def _bounds(targets: Numbers, sizes: Numbers, bytes_max: int) -> list[int]:
    """Return where blocks begin in rows sorted by target, and where the last one ends."""
    ends = np.cumsum(sizes)
    bounds = [0]
    for end in [*(np.flatnonzero(np.diff(targets)) + 1).tolist(), len(targets)]:
        while (start := bounds[-1]) < end:
            before = ends[start] - sizes[start]
            fit = int(np.searchsorted(ends, before + bytes_max, side="right"))
            bounds.append(min(max(fit, start + 1), end))
    return bounds


def splitting(
    schema: pa.Schema, topics: Topics, row_bytes_max: int, settings: WriterSettings
) -> Callable[[int, Iterable[bytes]], Iterator[Block]]:
    """Return a function from a map task's number and its Arrow rows of `schema` to blocks."""

    def split(input_partition: int, batches: Iterable[bytes]) -> Iterator[Block]:
        now_ms = int(time.time() * 1000)
        splitter = Splitter(topics, row_bytes_max, input_partition, now_ms, settings)
        return splitter.split(pa.ipc.read_record_batch(each, schema) for each in batches)

    return split
