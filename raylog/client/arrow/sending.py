"""Sends tables: assigns rows to partitions and adds whole batches to a producer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from raylog.client.arrow.encoding import EncodedBody, Rows, encode_bodies
from raylog.client.arrow.hashing import murmur2_of
from raylog.client.arrow.outgoing import CHOOSE, ColumnNames, Outgoing
from raylog.client.arrow.slices import bounds_of
from raylog.client.arrow.varints import Flags, Numbers
from raylog.client.errors import RecordTooLarge
from raylog.client.producer.core import ProducerCore
from raylog.client.producer.partitioner import Partitioner, crc32_partition
from raylog.wire.errors import UnknownTopicOrPartition
from raylog.wire.records import BATCH_OVERHEAD

_PIECE_BYTES = 4 * 1024 * 1024
"""About how many bytes of rows are encoded together."""
_POSITIVE = np.uint32(0x7FFFFFFF)
_MURMUR2 = ("default", "murmur2", "murmur2_random")
_CRC32 = ("consistent", "consistent_random")
_HASHES_NULL = ("consistent", "murmur2")


class TableBatches:
    """A table being sent, batch by batch.

    Raises InvalidTable, RecordTooLarge and UnknownTopicOrPartition before any record is added.
    """

    def __init__(
        self,
        producer: ProducerCore,
        topic: str,
        table: pa.Table | pa.RecordBatch,
        names: ColumnNames,
        partitioner: Partitioner | None = None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partitioner = partitioner
        self._partitions = list(producer.partitions(topic))
        self._rows = Outgoing(table, names, int(time.time() * 1000))
        self._batch_bytes = max(1, producer.settings.batch_bytes - BATCH_OVERHEAD)
        self._check()
        self._ready = self._batches()

    @property
    def count(self) -> int:
        """Number of rows in the table."""
        return self._rows.row_count

    def take(self) -> bool:
        """Add a batch to the producer; return False if none is left. Raises like `append_batch`."""
        batch = next(self._ready, None)
        if batch is None:
            return False
        partition, (data, record_count, first_ms, max_ms) = batch
        self._producer.append_batch(self._topic, partition, data, record_count, first_ms, max_ms)
        return True

    def _check(self) -> None:
        largest, limit = self._rows.sizes.max(initial=0), self._producer.settings.record_bytes_max
        if largest > limit:
            raise RecordTooLarge(
                f"expected records of at most {limit} bytes (record_bytes_max), found one of "
                f"{largest}; nothing of the table was sent"
            )
        given = self._rows.partitions
        if given is not None:
            unknown = np.setdiff1d(given[given != CHOOSE], self._partitions)
            if len(unknown):
                raise UnknownTopicOrPartition(f"{self._topic}-{unknown[0]} does not exist")

    def _batches(self) -> Iterator[tuple[int, EncodedBody]]:
        """Yield partitions and their batches, in order."""
        for piece in self._rows.pieces(_PIECE_BYTES):
            rows, sizes = self._rows.rows(piece), self._rows.sizes[piece]
            partitions = self._places(rows, piece)
            if partitions is None:
                for body in encode_bodies(rows, self._split(sizes)):
                    yield self._producer.next_partition(self._topic), body
            else:
                yield from self._placed(rows, sizes, partitions)

    def _placed(
        self, rows: Rows, sizes: Numbers, partitions: Numbers
    ) -> Iterator[tuple[int, EncodedBody]]:
        """Yield batches of rows with known partitions; rows of one partition keep their order."""
        if (partitions[1:] < partitions[:-1]).any():
            order = np.argsort(partitions.astype(np.int32), kind="stable")
            rows, sizes, partitions = rows.take(order), sizes[order], partitions[order]
        (changes,) = np.diff(partitions).nonzero()
        bounds = [0, *(changes + 1).tolist(), len(partitions)]
        starts: list[int] = []
        for begin, end in pairwise(bounds):
            starts += (begin + start for start in self._split(sizes[begin:end]))
        bodies = encode_bodies(rows, starts)
        yield from zip(partitions[starts].tolist(), bodies, strict=True)

    def _split(self, sizes: Numbers) -> list[int]:
        """Return where batches start in rows that go to one partition."""
        ends = np.cumsum(sizes)
        starts = [0]
        while True:
            start = starts[-1]
            before = int(ends[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(ends, before + self._batch_bytes, "right")))
            if end >= len(sizes):
                return starts
            starts.append(end)

    # -- partitions ----------------------------------------------------------------------------

    def _places(self, rows: Rows, piece: slice) -> Numbers | None:
        """Return the rows' partitions; None: each batch goes to the next free partition."""
        given = None if self._rows.partitions is None else self._rows.partitions[piece]
        if given is not None and (given != CHOOSE).all():
            return given
        found = self._chosen(rows) if self._partitioner else self._by_setting(rows)
        if found is None and given is None:
            return None
        if found is None:
            found = np.full(len(rows.values), CHOOSE, np.int64)
        if given is not None:
            found = np.where(given == CHOOSE, found, given)
        left = found == CHOOSE
        if left.any():
            found[left] = self._stuck(self._rows.sizes[piece][left])
        return found

    def _stuck(self, sizes: Numbers) -> Numbers:
        """Choose partitions for rows without a key: about a batch of rows to each."""
        turns = np.cumsum(sizes) // self._batch_bytes
        turns -= turns[0]
        chosen = [self._producer.next_partition(self._topic) for _ in range(int(turns[-1]) + 1)]
        return np.array(chosen, np.int64)[turns]

    def _by_setting(self, rows: Rows) -> Numbers | None:
        """Apply the setting `partitioner`; CHOOSE or None: use the sticky partition."""
        settings, count = self._producer.settings, len(rows.values)
        known = np.array(self._partitions, np.int64)
        name = settings.partitioner
        if name == "random":
            return np.random.default_rng().choice(known, count)
        if name == "round_robin":
            first = self._partitions.index(self._producer.next_partition(self._topic))
            return known[(first + np.arange(count)) % len(known)]
        keys = None if settings.partitioner_ignore_keys else rows.keys
        if keys is None:
            if name not in _HASHES_NULL:
                return None
            keys = pa.nulls(count, pa.binary())
        if name in _CRC32:
            found = np.array(
                [crc32_partition(key or b"", len(known)) for key in keys.to_pylist()], np.int64
            )
        else:
            assert name in _MURMUR2, f"partitioner {name}"
            found = ((murmur2_of(keys) & _POSITIVE) % np.uint32(len(known))).astype(np.int64)
        if name not in _HASHES_NULL:
            found[_without(keys, skips_empty=name == "consistent_random")] = CHOOSE
        return found

    def _chosen(self, rows: Rows) -> Numbers:
        """Call the application's partitioner for each row."""
        assert self._partitioner is not None
        keys = [None] * len(rows.values) if rows.keys is None else rows.keys.to_pylist()
        chosen = [
            self._partitioner(self._topic, key, key, value, self._partitions)
            for key, value in zip(keys, rows.values.to_pylist(), strict=True)
        ]
        found = np.array(chosen, np.int64)
        unknown = np.setdiff1d(found, self._partitions)
        if len(unknown):
            raise UnknownTopicOrPartition(f"the partitioner chose {self._topic}-{unknown[0]}")
        return found


def _without(keys: pa.BinaryArray, *, skips_empty: bool) -> Flags:
    """Return which rows count as having no key."""
    is_null: Flags = np.array(keys.is_null().to_numpy(zero_copy_only=False))
    if skips_empty:
        is_null |= np.diff(bounds_of(keys)) == 0
    return is_null
