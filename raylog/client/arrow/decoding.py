"""Decodes record batches to columns: like `wire.records.decode_batch`, but without an object each.

First the start of every record is found (`frames`); then each field is read for all records at
once. Arrow cuts keys and values out of the batches' bytes. Each record's fields must end where its
length says, and each record where the next one or the body does, so that nothing which
`decode_batch` rejects becomes a row.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from raylog.client.arrow.frames import find_steps
from raylog.client.arrow.headers import Headers, no_headers
from raylog.client.arrow.slices import binary_slices
from raylog.client.arrow.varints import Bytes, Numbers, read_varints
from raylog.wire.compression import Codec
from raylog.wire.errors import InvalidRecord
from raylog.wire.record import OFFSET_DELTA_MAX
from raylog.wire.records import (
    BATCH_OVERHEAD,
    BatchHeader,
    TimestampType,
    body_of,
    check_crc,
)

BODIES_BYTES_MAX = 2**31 - 1
"""Most bytes of bodies decoded together, because Arrow's offsets have 32 bits."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The records of some batches."""

    offsets: Numbers
    timestamps: Numbers
    """In ms; -1 if the record has none."""
    timestamp_types: Numbers
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray
    """Of type HEADERS_TYPE; an empty list for a record without headers."""


@dataclass(slots=True)
class Bodies:
    """Batches of one partition that are decoded together."""

    what: str
    """Names the partition in error messages."""
    batch_bytes_max: int
    """Limit on the decompressed bytes of one batch."""
    checks_crcs: bool = True
    size: int = 0
    """Decompressed bytes so far."""
    record_count: int = 0
    _headers: list[BatchHeader] = field(default_factory=list)
    _bodies: list[bytes | memoryview] = field(default_factory=list)

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Add a batch; raises like `wire.records.decode_batch` if its CRC or codec is wrong."""
        if self.checks_crcs:
            check_crc(batch, header)
        body: bytes | memoryview
        if header.codec is Codec.NONE and header.size - BATCH_OVERHEAD <= self.batch_bytes_max:
            body = batch[BATCH_OVERHEAD : header.size]
        else:
            body = body_of(batch, header, self.batch_bytes_max)
        self._headers.append(header)
        self._bodies.append(body)
        self.size += len(body)
        self.record_count += header.record_count

    @property
    def base_offset(self) -> int:
        """Base offset of the first batch."""
        return self._headers[0].base_offset

    def each(self) -> Iterator[Bodies]:
        """Iterate over the batches, each as a Bodies of its own."""
        for header, body in zip(self._headers, self._bodies, strict=True):
            counts = len(body), header.record_count
            yield Bodies(
                self.what, self.batch_bytes_max, self.checks_crcs, *counts, [header], [body]
            )

    def columns(self) -> Columns:
        """Return all records; raises InvalidRecord for any record that `decode_batch` rejects."""
        data, begins = _placed(self._bodies)
        if len(data) > BODIES_BYTES_MAX:
            raise InvalidRecord(f"{self.what}: {len(data)} bytes of records at once")
        starts, ends = self._frames(data, begins)
        deltas, at = read_varints(data, starts + 1)  # after the attributes
        times, kinds = self._times(deltas)
        offsets, at = self._offsets(data, at)
        key_sizes, key_starts, key_ends = self._content(data, at)
        value_sizes, value_starts, value_ends = self._content(data, key_ends)
        header_counts, behind = read_varints(data, value_ends)
        headers = None
        if header_counts.any():
            headers = Headers(data, header_counts, behind)
            behind = headers.ends
        if not np.array_equal(behind, ends):
            raise InvalidRecord(
                f"{self.what}: fields end elsewhere than their records' lengths say"
            )
        return Columns(
            offsets,
            times,
            kinds,
            binary_slices(data, key_sizes, key_starts, key_ends),
            binary_slices(data, value_sizes, value_starts, value_ends),
            no_headers(len(starts)) if headers is None else headers.column(),
        )

    def _frames(self, data: Bytes, begins: Sequence[int]) -> tuple[Numbers, Numbers]:
        """Return where each record starts (after its length) and ends."""
        found: array[int] = array("q")
        ahead: list[int] = []
        skipped = 0
        for header, body, begin in zip(self._headers, self._bodies, begins, strict=True):
            try:
                find_steps(memoryview(body), header.record_count, found)
            except InvalidRecord as error:
                raise InvalidRecord(f"{self.what} from {header.base_offset} on: {error}") from error
            ahead.append(begin - skipped)
            skipped += len(body)
        steps = np.frombuffer(found, np.int64)
        ends = np.cumsum(steps)
        if any(ahead):
            ends += self._each(ahead)
        sizes, starts = read_varints(data, ends - steps)
        if sizes.min(initial=0) < 0 or not np.array_equal(starts + sizes, ends):
            raise InvalidRecord(f"{self.what}: records end elsewhere than the next ones begin")
        return starts, ends

    def _content(self, data: Bytes, at: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return the lengths of keys or values, negative for null, and their starts and ends."""
        sizes, starts = read_varints(data, at)
        if sizes.max(initial=0) > len(data):
            raise InvalidRecord(f"{self.what}: a length of {sizes.max()} bytes")
        return sizes, starts, starts + np.maximum(sizes, 0)

    def _offsets(self, data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
        """Return offsets, and the positions after them."""
        deltas, behind = read_varints(data, at)
        if deltas.min(initial=0) < 0 or deltas.max(initial=0) > OFFSET_DELTA_MAX:
            raise InvalidRecord(
                f"{self.what}: expected offset deltas of 31 bits, found "
                f"{deltas.min()} to {deltas.max()}"
            )
        return self._repeated("base_offset") + deltas, behind

    def _times(self, deltas: Numbers) -> tuple[Numbers, Numbers]:
        """Return timestamps and their types."""
        base = self._repeated("base_timestamp")
        kinds = self._repeated("timestamp_type")
        if kinds.any():
            is_appended = kinds == TimestampType.LOG_APPEND_TIME
            base = np.where(is_appended, self._repeated("max_timestamp"), base)
            deltas = np.where(is_appended, 0, deltas)
        times = base + deltas
        if (((times ^ base) & (times ^ deltas)) < 0).any():
            raise InvalidRecord(f"{self.what}: expected timestamps of 64 bits, found a larger one")
        return times, kinds

    def _repeated(self, name: str) -> Numbers:
        """Return a header field of each batch, repeated for each of its records."""
        return self._each([getattr(header, name) for header in self._headers])

    def _each(self, numbers: list[int]) -> Numbers:
        """Return a number per batch, repeated for each of its records."""
        counts = [header.record_count for header in self._headers]
        return np.repeat(np.array(numbers, np.int64), counts)


def _placed(bodies: Sequence[bytes | memoryview]) -> tuple[Bytes, list[int]]:
    """Return one array that holds all bodies, and the position of each body in it.

    Uncompressed batches of one fetch are parts of its response and are not copied.
    """
    owner = bodies[0].obj if bodies and isinstance(bodies[0], memoryview) else None
    if owner is not None and all(
        isinstance(body, memoryview) and body.obj is owner for body in bodies
    ):
        base = pa.py_buffer(owner).address
        begins = [pa.py_buffer(body).address - base for body in bodies]
        ends = list(map(int.__add__, begins, map(len, bodies)))
        first = min(begins)
        whole = np.frombuffer(memoryview(owner), np.uint8)[first : max(ends)]
        return whole, [begin - first for begin in begins]
    whole = np.frombuffer(bodies[0] if len(bodies) == 1 else b"".join(bodies), np.uint8)
    return whole, [0, *accumulate(map(len, bodies))][:-1]
