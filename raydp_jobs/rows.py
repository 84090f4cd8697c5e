"""Rows of a DataFrame on their way to partitions: columns, routing, blocks.

| column | type | |
|---|---|---|
| `value` | string or binary | must be there; null is a tombstone |
| `key` | string or binary | decides the partition unless `partition` does |
| `headers` | array of struct of key string, value binary | |
| `topic` | string | may be left out where the sink has one topic |
| `partition` | int | null or left out: by the key as Kafka's clients do, else in turn |
| `timestamp` | timestamp | null or left out: the time of writing |

Map tasks cut their rows into one block for each output partition, an Arrow stream; so the shuffle
handles blocks, not rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from raylog.client.cluster import TopicPartition
from raylog.client.partitioner import partition_of_key
from raylog.raydp_jobs.writer import size_of
from raylog.wire.records import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

COLUMNS = ("topic", "partition", "key", "value", "headers", "timestamp")
BLOCK_SCHEMA = "target int, block binary"
_BLOCK = pa.schema([("target", pa.int32()), ("block", pa.binary())])
_KEPT = ("key", "value", "headers", "timestamp")
_HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_TYPES = {
    "topic": ("string",),
    "partition": ("int", "smallint", "tinyint"),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (_HEADERS_TYPE,),
    "timestamp": ("timestamp",),
}
_KEY_SHOWN = 40
_partition_of_key = lru_cache(maxsize=16_384)(partition_of_key)


class BadColumns(ValueError):
    """The DataFrame has not the columns that records are made of."""


class BadRow(ValueError):
    """A row that no partition would take; the message says where it came from."""


def record_columns(df: DataFrame) -> DataFrame:
    """The columns of `COLUMNS`, each of one type, null where missing; raises BadColumns."""
    from pyspark.sql import functions

    found = {field.name: field.dataType for field in df.schema.fields}
    if "value" not in found:
        raise BadColumns(f"expected a column 'value', found {', '.join(found) or 'none'}")
    for name, data_type in found.items():
        _check_type(name, data_type)
    wanted = {
        "topic": "string",
        "partition": "int",
        "key": "binary",
        "value": "binary",
        "headers": _HEADERS_TYPE,
    }
    columns = [
        (functions.col(name) if name in found else functions.lit(None)).cast(kind).alias(name)
        for name, kind in wanted.items()
    ]
    time = (
        functions.expr("unix_millis(timestamp)")
        if "timestamp" in found
        else functions.lit(None).cast("bigint")
    )
    return df.select(*columns, time.alias("timestamp"))


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

    def first_targets(self) -> dict[str, int]:
        """The number of each topic's partition 0."""
        first, total = {}, 0
        for topic, count in self.partitions.items():
            first[topic] = total
            total += count
        return first


@dataclass(slots=True)
class Splitter:
    """One map task: its rows, in order, into blocks."""

    topics: Topics
    row_bytes_max: int
    input_partition: int
    """For messages, and where keyless rows begin to go round."""
    _count: int = 0
    """Rows so far."""

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Blocks with the number of their output partition; raises BadRow."""
        first_targets = self.topics.first_targets()
        for batch in batches:
            rows_of: dict[int, list[int]] = {}
            for row, columns in enumerate(zip(*_columns(batch), strict=True)):
                target = self._target(columns, first_targets)
                rows_of.setdefault(target, []).append(row)
                self._count += 1
            kept = batch.select(_KEPT)
            blocks = [_encode(kept.take(pa.array(rows))) for rows in rows_of.values()]
            yield pa.RecordBatch.from_arrays(
                [pa.array(list(rows_of), pa.int32()), pa.array(blocks, pa.binary())], schema=_BLOCK
            )

    def _target(self, columns: Sequence[Any], first_targets: Mapping[str, int]) -> int:
        """The output partition of one row."""
        topic, partition, key, value, headers, _ = columns
        name = topic if topic is not None else self.topics.default
        count = self.topics.partitions.get(name) if name is not None else None
        if name is None or count is None:
            expected = ", ".join(self.topics.partitions)
            raise self._bad(key, f"expected a topic of {expected}, found {topic}")
        size = size_of(Record(0, 0, key, value, _headers(headers)))
        if size > self.row_bytes_max:
            raise self._bad(key, f"{size} bytes, expected at most {self.row_bytes_max}")
        if partition is None:
            by_turns = (self.input_partition + self._count) % count
            partition = by_turns if key is None else _partition_of_key(key, count)
        elif not 0 <= partition < count:
            raise self._bad(key, f"expected a partition of {name} below {count}, found {partition}")
        return first_targets[name] + int(partition)

    def _bad(self, key: bytes | None, reason: str) -> BadRow:
        shown = "no key" if key is None else f"key {key[:_KEY_SHOWN]!r}"
        return BadRow(
            f"row {self._count} of input partition {self.input_partition} ({shown}): {reason}"
        )


def splitting(
    topics: Topics, row_bytes_max: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` calls in each map task; its output is of `BLOCK_SCHEMA`."""

    def split(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "runs in a task"
        return Splitter(topics, row_bytes_max, context.partitionId()).split(batches)

    return split


def records_of(block: bytes, now_ms: int) -> Iterator[Record]:
    """The records of one block; those without a timestamp get `now_ms`."""
    with pa.ipc.open_stream(block) as stream:
        for batch in stream:
            columns = (column.to_pylist() for column in batch.columns)
            for key, value, headers, timestamp in zip(*columns, strict=True):
                at_ms = now_ms if timestamp is None else timestamp
                yield Record(0, at_ms, key, value, _headers(headers))


def _columns(batch: pa.RecordBatch) -> list[list[Any]]:
    return [batch.column(name).to_pylist() for name in COLUMNS]


def _headers(found: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    """Headers as records have them."""
    return [(header["key"], header["value"]) for header in found] if found else []


def _encode(batch: pa.RecordBatch) -> bytes:
    """One block."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())
