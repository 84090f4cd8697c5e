"""Raft's rules for comparing copies of the metadata log.

- Log matching: if two copies have an entry with the same offset and epoch, they are the same up to
  it.
- Leader completeness: the log of every later controller has all committed entries. So a copy whose
  last entry is of a later epoch than the one in which a record was given out holds that record, and
  a copy whose last entry is of the same epoch has no other record in its place.

A copy that ends in an earlier epoch may lack what was committed since, or have something else
there: an append that its controller sent to this copy only. The first append of a later controller
truncates it. A majority never has such copies; `QuorumObserver` checks that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from raylog.actors.metadata.entries import LogEntry
from raylog.actors.metadata.log_copy import LogCopy


class GivenOut:
    """Committed records from offset 0, each with the epoch of its commit or an upper bound."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        """The records up to the first gap."""
        self._ahead: dict[int, bytes] = {}
        self._epochs: dict[int, float] = {}

    def add(self, offset: int, record: bytes, epoch: float = math.inf) -> None:
        """Add a record that a controller gave out. The epoch is infinite if it is not known."""
        self._epochs[offset] = min(epoch, self._epochs.get(offset, math.inf))
        if offset >= len(self.records):
            self._ahead[offset] = record
        while len(self.records) in self._ahead:
            self.records.append(self._ahead.pop(len(self.records)))

    def counts(self, entry: LogEntry) -> bool:
        """Whether an entry has the committed records at its offsets, as far as they are known."""
        known = self.records[entry.offset : entry.next_offset]
        return list(entry.records[: len(known)]) == known

    def is_whole(self, copy: LogCopy) -> bool:
        """Whether a copy holds all committed records."""
        return copy.next_offset >= len(self.records) and all(map(self.counts, copy.entries))

    def missing(self, copy: LogCopy) -> int | None:
        """The first offset at which a copy lacks, or contradicts, what its last epoch knew."""
        held = {
            offset: record
            for entry in copy.entries
            for offset, record in enumerate(entry.records, entry.offset)
        }
        for offset in range(copy.snapshot.offset, len(self.records)):
            if offset >= copy.next_offset:
                wrong = self._epochs[offset] < copy.last_epoch
            else:
                wrong = (
                    self._epochs[offset] <= copy.last_epoch and held[offset] != self.records[offset]
                )
            if wrong:
                return offset
        return None


def mismatch(
    one: Sequence[LogEntry], other: Sequence[LogEntry]
) -> tuple[LogEntry, LogEntry] | None:
    """The first pair of entries that differ although both logs agree on a later entry's epoch."""
    places = {(entry.next_offset, entry.epoch) for entry in one}
    agreed = max((e.next_offset for e in other if (e.next_offset, e.epoch) in places), default=-1)
    first = max(one[0].offset, other[0].offset) if one and other else 0
    shared = [
        [entry for entry in entries if entry.next_offset > first and entry.next_offset <= agreed]
        for entries in (one, other)
    ]
    return next((pair for pair in zip(*shared, strict=False) if pair[0] != pair[1]), None)
