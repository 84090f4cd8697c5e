"""The tables that a consumer returns.

| column | type | |
|---|---|---|
| `topic` | dictionary of string | |
| `partition` | int32 | |
| `offset` | int64 | increases within a partition; there may be gaps |
| `timestamp` | timestamp[ms, UTC] | null if the record has none |
| `key`, `value` | binary | null as in the record; a null value is a tombstone |
| `headers` | list of struct of `key` string, `value` binary | empty if the record has none |
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

from raylog.client.arrow import TABLE_BYTES
from raylog.client.arrow.decoding import Bodies
from raylog.client.arrow.headers import HEADERS_TYPE
from raylog.client.arrow.varints import Numbers
from raylog.client.cluster import TopicPartition
from raylog.client.consumer.buffered import BatchSource
from raylog.wire.errors import KafkaError
from raylog.wire.records import NO_TIMESTAMP, BatchHeader

TIMESTAMP_TYPE = pa.timestamp("ms", "UTC")
SCHEMA = pa.schema(
    [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP_TYPE),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
    ]
)
_TOGETHER_BYTES = 4 * 1024 * 1024
"""Size above which no more batches join a group that is decoded together."""


async def poll_table(
    consumer: BatchSource,
    timeout_ms: float,
    *,
    max_records: int | None = None,
    max_bytes: int = TABLE_BYTES,
) -> pa.Table:
    """Return buffered records, or wait for the first ones, as a table of `SCHEMA`; may be empty.

    Batches are returned whole, so both limits may be exceeded by less than one batch. Records
    before a batch that cannot be decoded are returned; the next call raises, like `poll`.
    """
    settings = consumer.settings
    rows = Rows(
        max_records=max_records,
        max_bytes=max_bytes,
        batch_bytes_max=settings.decompressed_bytes_max,
        checks_crcs=settings.check_crcs,
    )
    await consumer.poll_into(rows, timeout_ms)
    try:
        return rows.table()
    except KafkaError:
        intact, ends = rows.intact()
        for key in ends.keys() & set(consumer.assignment()):
            consumer.seek(key, ends[key])
        if not intact.num_rows:
            raise
        return intact


@dataclass(slots=True)
class _Group:
    """Batches that are decoded together; records before `from_offset` are dropped."""

    key: TopicPartition
    from_offset: int
    bodies: Bodies


@dataclass(slots=True)
class Rows:
    """Collects batches of partitions until there are enough, then makes a table of them."""

    max_records: int | None = None
    max_bytes: int = TABLE_BYTES
    batch_bytes_max: int = TABLE_BYTES
    checks_crcs: bool = True
    record_count: int = 0
    _size: int = 0
    _groups: list[_Group] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether enough batches are collected."""
        if self._size >= self.max_bytes:
            return True
        return self.max_records is not None and self.record_count >= self.max_records

    def take(
        self, key: TopicPartition, from_offset: int, header: BatchHeader, batch: memoryview
    ) -> None:
        """Add the next batch of a partition; its records before `from_offset` are dropped."""
        group = self._groups[-1] if self._groups else None
        is_new = group is None or group.key != key or group.bodies.size >= _TOGETHER_BYTES
        if group is None or is_new:
            bodies = Bodies(str(key), self.batch_bytes_max, self.checks_crcs)
            group = _Group(key, from_offset, bodies)
        before = group.bodies.size
        group.bodies.add(header, batch)
        if is_new:
            self._groups.append(group)
        self._size += group.bodies.size - before
        self.record_count += header.record_count

    def table(self) -> pa.Table:
        """Return all rows; raises KafkaError if a batch cannot be decoded."""
        return pa.Table.from_batches([_rows(group) for group in self._groups], SCHEMA)

    def intact(self) -> tuple[pa.Table, dict[TopicPartition, int]]:
        """Return the rows before undecodable batches, and the offsets of those batches."""
        found: list[pa.RecordBatch] = []
        ends: dict[TopicPartition, int] = {}
        for group in self._groups:
            for bodies in group.bodies.each():
                if group.key in ends:
                    break
                try:
                    found.append(_rows(_Group(group.key, group.from_offset, bodies)))
                except KafkaError:
                    ends[group.key] = max(bodies.base_offset, group.from_offset)
        return pa.Table.from_batches(found, SCHEMA), ends


def _rows(group: _Group) -> pa.RecordBatch:
    columns = group.bodies.columns()
    count = len(columns.offsets)
    topic = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, np.int32)), pa.array([group.key.topic])
    )
    rows = pa.RecordBatch.from_arrays(
        [
            topic,
            pa.array(np.full(count, group.key.partition, np.int32)),
            pa.array(columns.offsets),
            timestamps(columns.timestamps),
            columns.keys,
            columns.values,
            columns.headers,
        ],
        schema=SCHEMA,
    )
    return _from(rows, columns.offsets, group.from_offset)


def _from(rows: pa.RecordBatch, offsets: Numbers, from_offset: int) -> pa.RecordBatch:
    """Drop rows before an offset, which a first batch may contain."""
    if not len(offsets) or offsets.min() >= from_offset:
        return rows
    return rows.filter(pa.array(offsets >= from_offset))


def timestamps(times: NDArray[np.int64]) -> pa.TimestampArray:
    """Convert times in ms to a column, with null for a missing time."""
    is_missing = times == NO_TIMESTAMP
    found = pa.array(times, pa.int64(), mask=is_missing if is_missing.any() else None)
    return found.view(TIMESTAMP_TYPE)
