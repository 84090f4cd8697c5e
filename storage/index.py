"""Sparse index of one segment: offset and timestamp to position, and its aborted transactions.

In memory it is three parallel arrays with one entry per `index_interval_bytes` of log. On disk it
is one file per segment, written when the segment is closed and occasionally while it grows:

| bytes | what |
|---|---|
| 16 | magic and byte order, version, length and CRC-32C of the rest of the head |
| 60 | base offset, data size, next offset, first and largest timestamp, counts, body CRC |
| 32 each | aborted transactions: producer id, first, last offset, last stable offset |
| 4 each, 4 each, 8 each | body: relative offsets, positions, timestamps |

The head is enough to open a segment; the body is read when an old part of the log is read. If
either is missing or wrong, the segment is scanned and the file rewritten.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from crc32c import crc32c

_VERSION = 1
_MAGIC = 0x52_4C_49_58  # read in the machine's byte order: a foreign file does not match
_PREFIX = struct.Struct("=IIII")
_META = struct.Struct("=qqqqqqIII")
_ABORTED = struct.Struct("=qqqq")
_ENTRY_BYTES = 16
HEAD_BYTES = _PREFIX.size + _META.size


class AbortedTransaction(NamedTuple):
    """One aborted transaction; all offsets inclusive except `last_stable_offset` (KIP-98)."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # as of the marker: everything below it was decided


class SegmentSummary(NamedTuple):
    """What must be known of a closed segment without reading it; -1 where there is no batch."""

    base_offset: int
    size: int  # bytes of data
    next_offset: int
    first_timestamp: int  # the first batch's largest timestamp, from which segment.ms counts
    max_timestamp: int
    max_timestamp_offset: int  # base offset of the first batch that has it


class IndexHead(NamedTuple):
    """The part of an index file that is read on opening."""

    summary: SegmentSummary
    aborted: list[AbortedTransaction]
    entries: int
    body_crc: int
    body_position: int


class SparseIndex:
    """Entries (relative offset of a batch, its position, largest timestamp of all before it).

    The batch at position 0 has no entry. All three columns rise (the last not strictly). An entry
    read from a file is only a hint: it is checked against the log before use.
    """

    __slots__ = ("is_unverified", "offsets", "positions", "timestamps")

    def __init__(self) -> None:
        self.is_unverified = False
        self.offsets = array("I")
        self.positions = array("I")
        self.timestamps = array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, relative_offset: int, position: int, timestamp_before: int) -> None:
        """Append an entry."""
        self.offsets.append(relative_offset)
        self.positions.append(position)
        self.timestamps.append(timestamp_before)

    def floor_offset(self, relative_offset: int) -> tuple[int, int]:
        """The last entry at or before an offset as (position, relative offset); (0, 0) if none."""
        found = bisect_right(self.offsets, relative_offset)
        return (self.positions[found - 1], self.offsets[found - 1]) if found else (0, 0)

    def floor_timestamp(self, timestamp: int) -> int:
        """Position before which all batches are older than `timestamp`."""
        found = bisect_left(self.timestamps, timestamp)
        return self.positions[found - 1] if found else 0

    def floor_position(self, position: int) -> tuple[int, int]:
        """The last entry at or before `position` as (position, relative offset); (0, 0) if none."""
        found = bisect_right(self.positions, position)
        return (self.positions[found - 1], self.offsets[found - 1]) if found else (0, 0)


def encode_index(
    summary: SegmentSummary, index: SparseIndex, aborted: list[AbortedTransaction]
) -> bytes:
    """Encode a segment's index file."""
    body = index.offsets.tobytes() + index.positions.tobytes() + index.timestamps.tobytes()
    head = _META.pack(*summary, len(index), len(aborted), crc32c(body)) + b"".join(
        _ABORTED.pack(*transaction) for transaction in aborted
    )
    return _PREFIX.pack(_MAGIC, _VERSION, len(head), crc32c(head)) + head + body


def decode_head(data: bytes) -> IndexHead | None:
    """Decode the head of an index file; None if it is none, is cut, or does not match its CRC."""
    if len(data) < HEAD_BYTES:
        return None
    magic, version, length, crc = _PREFIX.unpack_from(data)
    head = data[_PREFIX.size : _PREFIX.size + length]
    if (magic, version) != (_MAGIC, _VERSION) or len(head) != length or crc32c(head) != crc:
        return None
    *summary, entries, aborted, body_crc = _META.unpack_from(head)
    if length != _META.size + aborted * _ABORTED.size:
        return None
    transactions = [AbortedTransaction(*each) for each in _ABORTED.iter_unpack(head[_META.size :])]
    position = _PREFIX.size + length
    return IndexHead(SegmentSummary(*summary), transactions, entries, body_crc, position)


def head_bytes(data: bytes) -> int:
    """Length of the whole head, given its first `HEAD_BYTES`; 0 if there are fewer bytes."""
    return _PREFIX.size + int(_PREFIX.unpack_from(data)[2]) if len(data) >= _PREFIX.size else 0


def body_bytes(head: IndexHead) -> int:
    """Length of an index file's body."""
    return head.entries * _ENTRY_BYTES


def decode_body(head: IndexHead, body: bytes) -> SparseIndex | None:
    """Decode the entries of an index file; None if cut or not matching their CRC."""
    if len(body) != body_bytes(head) or crc32c(body) != head.body_crc:
        return None
    index = SparseIndex()
    index.is_unverified = True
    index.offsets.frombytes(body[: 4 * head.entries])
    index.positions.frombytes(body[4 * head.entries : 8 * head.entries])
    index.timestamps.frombytes(body[8 * head.entries :])
    return index
