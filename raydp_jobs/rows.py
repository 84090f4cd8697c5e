"""Rows of a DataFrame on their way to partitions: columns, routing, blocks.

| column | type | |
|---|---|---|
| `value` | string or binary | must be there; null is a tombstone |
| `key` | string or binary | decides the partition unless `partition` does |
| `headers` | array of struct of key string, value binary | |
| `topic` | string | may be left out where the sink has one topic |
| `partition` | int | null or left out: by the key as Kafka's clients do, else in turn |
| `timestamp` | timestamp | null or left out: the time of writing |

Map tasks make record batches of their rows, each for one output partition, in which only the
producer is missing: the shuffle handles these blocks, and so does who writes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types

from raylog.client.cluster import TopicPartition
from raylog.raydp_jobs.encoding import Columns, Numbers, encode_batches, encoded_headers
from raylog.raydp_jobs.keys import partitions_of_keys
from raylog.raydp_jobs.writer import WriterSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

COLUMNS = ("topic", "partition", "key", "value", "headers", "timestamp")
Block = tuple[int, bytes]
"""The number of an output partition, and a record batch for it that lacks the producer."""
_HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_TYPES = {
    "topic": ("string",),
    "partition": ("int", "smallint", "tinyint"),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (_HEADERS_TYPE,),
    "timestamp": ("timestamp",),
}
_CAST = {
    "topic": "string",
    "partition": "int",
    "key": "binary",
    "value": "binary",
    "headers": _HEADERS_TYPE,
}
_KEY_SHOWN = 40
_RECORD_OVERHEAD = 31
"""Upper estimate of a record's own lengths, attributes and deltas."""


class BadColumns(ValueError):
    """The DataFrame has not the columns that records are made of."""


class BadRow(ValueError):
    """A row that no partition would take; the message says where it came from."""


def record_columns(df: DataFrame) -> DataFrame:
    """The columns of `COLUMNS`, each of one type, null where missing; raises BadColumns."""
    found = {field.name: field.dataType for field in df.schema.fields}
    if "value" not in found:
        raise BadColumns(f"expected a column 'value', found {', '.join(found) or 'none'}")
    for name, data_type in found.items():
        _check_type(name, data_type)
    columns = [
        f"cast({f'`{name}`' if name in found else 'null'} as {kind}) as `{name}`"
        for name, kind in _CAST.items()
    ]
    time = "unix_millis(`timestamp`)" if "timestamp" in found else "cast(null as bigint)"
    return df.selectExpr(*columns, f"{time} as `timestamp`")


def _check_type(name: str, data_type: DataType) -> None:
    """Refuse what would not become bytes as they are; columns of other names are left out."""
    allowed = _TYPES.get(name)
    found = data_type.simpleString()
    if allowed is not None and found not in (*allowed, "void"):
        raise BadColumns(f"column {name!r}: expected {' or '.join(allowed)}, found {found}")


@dataclass(frozen=True, slots=True)
class Topics:
    """The sink's topics and their numbers of partitions; targets are numbered through."""

    partitions: Mapping[str, int]

    @property
    def default(self) -> str | None:
        """The topic of rows that name none."""
        return next(iter(self.partitions)) if len(self.partitions) == 1 else None

    def targets(self) -> list[TopicPartition]:
        """All partitions, in the order of their numbers."""
        return [
            TopicPartition(topic, partition)
            for topic, count in self.partitions.items()
            for partition in range(count)
        ]


@dataclass(slots=True)
class Splitter:
    """One map task: its rows, in order, into blocks."""

    topics: Topics
    row_bytes_max: int
    input_partition: int
    """For messages, and where keyless rows begin to go round."""
    now_ms: int
    """The time of rows that have none."""
    settings: WriterSettings = field(default_factory=WriterSettings)
    _count: int = 0
    """Rows so far."""

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Block]:
        """Raises BadRow."""
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
        """The output partition of each row."""
        numbers = self._topic_numbers(batch)
        counts = np.array([*self.topics.partitions.values(), 1])  # -1, of no topic, is the last
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
        """Which of the sink's topics each row goes to; -1 for none."""
        names = batch.column("topic").cast(pa.string())
        if self.topics.default is not None:
            names = pc.fill_null(names, self.topics.default)
        known = pa.array(self.topics.partitions, pa.string())
        numbers = pc.fill_null(pc.index_in(names, known), -1)
        found: Numbers = numbers.to_numpy().astype(np.int64)
        return found

    def _bad(self, batch: pa.RecordBatch, row: int, sizes: Numbers) -> BadRow:
        """Why a row cannot be written, and where it came from."""
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
    """Where blocks begin among rows in the order of their targets, and the end of the last."""
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
    """What each map task does with its number and its rows, which are Arrow's of `schema`."""

    def split(input_partition: int, batches: Iterable[bytes]) -> Iterator[Block]:
        now_ms = int(time.time() * 1000)
        splitter = Splitter(topics, row_bytes_max, input_partition, now_ms, settings)
        return splitter.split(pa.ipc.read_record_batch(each, schema) for each in batches)

    return split
