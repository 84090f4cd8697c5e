"""What copies of the metadata log may differ in, and what they may not, by Raft's rules.

- Log matching: copies that have an entry of one epoch at one place have the same before it.
- Leader completeness: what was committed is in the log of every controller after it. So a copy
  whose last entry is of a later epoch than the one a record was given out in holds that record,
  and one whose last entry is of the same epoch has no other in its place.

A copy that ends in an earlier epoch may lack what was committed since, and may have something else
there: an append that its controller got to this copy only. The first append of a later controller
cuts it off. A majority never is like that, which is looked at elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from raylog.actors.metadata.log import LogEntry, MetadataLog


class GivenOut:
    """Committed records from offset 0 on, each with an epoch that it was committed in or before."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        """As far as there is no gap."""
        self._ahead: dict[int, bytes] = {}
        self._epochs: dict[int, float] = {}

    def add(self, offset: int, record: bytes, epoch: float = math.inf) -> None:
        """A controller of an epoch, infinite if it is not known, has given a record out."""
        self._epochs[offset] = min(epoch, self._epochs.get(offset, math.inf))
        if offset >= len(self.records):
            self._ahead[offset] = record
        while len(self.records) in self._ahead:
            self.records.append(self._ahead.pop(len(self.records)))

    def counts(self, entry: LogEntry) -> bool:
        """Whether an entry is what was committed in its place, if anything was."""
        known = self.records[entry.offset : entry.next_offset]
        return list(entry.records[: len(known)]) == known

    def is_whole(self, copy: MetadataLog) -> bool:
        """Whether a copy holds all of it."""
        return copy.next_offset >= len(self.records) and all(map(self.counts, copy.entries))

    def missing(self, copy: MetadataLog) -> int | None:
        """The first offset at which a copy lacks, or has otherwise, what its last epoch knew."""
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
    """Entries that differ though both logs have the same entry behind them, as epochs say."""
    places = {(entry.next_offset, entry.epoch) for entry in one}
    agreed = max((e.next_offset for e in other if (e.next_offset, e.epoch) in places), default=-1)
    first = max(one[0].offset, other[0].offset) if one and other else 0
    shared = [
        [entry for entry in entries if entry.next_offset > first and entry.next_offset <= agreed]
        for entries in (one, other)
    ]
    return next((pair for pair in zip(*shared, strict=False) if pair[0] != pair[1]), None)
