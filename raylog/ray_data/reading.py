"""A read task, without Ray: reads a range of offsets as a stream of Arrow tables.

Where a table ends depends on the records alone, never on fetch boundaries: when a worker dies, Ray
runs its task again and skips as many of its tables as were passed on before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it has no types

from raylog.client.arrow.decoding import Bodies
from raylog.client.consumer.fetcher import Fetcher
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.errors import RequestTimedOut
from raylog.client.io import run_blocking
from raylog.client.settings import ClientSettings
from raylog.client.sockets import connected
from raylog.ray_data.columns import SCHEMA, rows_of
from raylog.ray_data.planning import OffsetRange

if TYPE_CHECKING:
    from raylog.client.consumer.fetched import FetchedBatches

_POLL_MS = 1_000
_ROW_OVERHEAD = 48
"""Approximate bytes of a row's other columns."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Settings of reads."""

    records_per_task: int = 1_000_000
    """A partition with more records is split among several tasks."""
    bytes_per_task: int = 64 * 1024 * 1024
    """The same limit, in bytes stored by the brokers."""
    table_bytes: int = 16 * 1024 * 1024
    """The size of the tables that a task passes on."""
    stall_ms: int = 120_000
    """How long a task waits for the next record of its range before it fails."""
    partition_max_bytes: int = 4 * 1024 * 1024
    """Limit of one fetch. A task holds two."""
    decompressed_bytes_max: int = 256 * 1024 * 1024
    """Limit of one batch."""
    client: ClientSettings | None = None
    """Replaces the default client settings, except for the bootstrap servers."""


def read_range(
    wanted: OffsetRange, client: ClientSettings, settings: ReadSettings, *, read_committed: bool
) -> Iterator[pa.Table]:
    """Read all records of a range once, as at least one table of `SCHEMA`.

    Raises OffsetOutOfRange if records were deleted meanwhile, RequestTimedOut if none arrives.
    """
    cutter = TableCutter(settings.table_bytes)
    is_first = True
    with connected(client) as core:
        consumer = Fetcher(
            core,
            ConsumerSettings(
                read_committed=read_committed,
                reset="none",
                partition_max_bytes=settings.partition_max_bytes,
                decompressed_bytes_max=settings.decompressed_bytes_max,
            ),
        )
        consumer.assign({wanted.key: wanted.start})
        consumer.stop_at(wanted.key, wanted.end)
        for block in _blocks(consumer, wanted, settings.stall_ms):
            for rows in decoded(block, wanted, settings):
                for table in cutter.add(rows):
                    is_first = False
                    yield table
    if cutter.has_rows or is_first:
        yield cutter.rest()


def _blocks(consumer: Fetcher, wanted: OffsetRange, stall_ms: int) -> Iterator[FetchedBatches]:
    """Yield fetched blocks until the range is read."""
    position, waited_ms = wanted.start, 0
    while position < wanted.end:
        block = run_blocking(consumer.poll_block(_POLL_MS))
        if block is not None:
            yield block
            position, waited_ms = block.end_offset, 0
            continue
        waited_ms += _POLL_MS
        if waited_ms >= stall_ms:
            raise RequestTimedOut(
                f"{wanted.key} ends at {consumer.high_watermark(wanted.key)}, offset {position} "
                f"of {wanted.start} to {wanted.end} did not arrive within {stall_ms} ms"
            )


def decoded(
    block: FetchedBatches, wanted: OffsetRange, settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    """Decode the rows of a fetched block that are in the range."""
    while not block.is_empty:
        bodies = Bodies(str(wanted.key), settings.decompressed_bytes_max)
        while not block.is_empty and bodies.size < settings.partition_max_bytes:
            taken = block.take_batch()
            if taken is not None:
                bodies.add(*taken)
        rows = _within(rows_of(wanted.key, bodies.columns()), wanted)
        if rows.num_rows:
            yield rows


def _within(rows: pa.RecordBatch, wanted: OffsetRange) -> pa.RecordBatch:
    """Drop rows outside the range, which the first and last batch may have."""
    offsets = rows.column("offset").to_numpy()
    first, end = np.searchsorted(offsets, [wanted.start, wanted.end])
    return rows.slice(int(first), int(end - first))


@dataclass(slots=True)
class TableCutter:
    """Cuts a stream of rows into tables of similar size, at positions that depend on rows alone."""

    table_bytes: int
    _rows: list[pa.RecordBatch] = field(default_factory=list)
    _size: int = 0

    @property
    def has_rows(self) -> bool:
        """Whether some rows are not in a table yet."""
        return bool(self._rows)

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.Table]:
        """Add rows; yield the tables that are full."""
        ends = np.cumsum(_sizes(rows))
        first, before = 0, 0
        while first < rows.num_rows:
            # The row that fills a table is its last one.
            last = int(np.searchsorted(ends, before + self.table_bytes - self._size))
            count = min(last + 1, rows.num_rows) - first
            self._rows.append(rows.slice(first, count))
            if last >= rows.num_rows:
                self._size += int(ends[-1]) - before
                return
            first, before = first + count, int(ends[last])
            yield self.rest()

    def rest(self) -> pa.Table:
        """Return a table of the remaining rows."""
        table = pa.Table.from_batches(self._rows, SCHEMA)
        self._rows, self._size = [], 0
        return table


def _sizes(rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the approximate bytes of each row. Headers count as a constant."""
    sizes = np.full(rows.num_rows, _ROW_OVERHEAD, np.int64)
    for name in ("key", "value"):
        sizes += pc.fill_null(pc.binary_length(rows.column(name)), 0).to_numpy()
    return sizes
