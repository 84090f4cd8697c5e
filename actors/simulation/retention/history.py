"""What clients of deleted and compacted partitions know, and what may be gone of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from raylog.actors.simulation.clients import Ledger
from raylog.actors.simulation.properties import Checks, Property


class Sent(NamedTuple):
    """An acknowledged record."""

    value: bytes
    timestamp_ms: int
    """Its own, whatever the header of its batch said."""


@dataclass(slots=True, eq=False)
class DeletedLedger(Ledger):
    """One partition whose records may go by age or by DeleteRecords."""

    retention_ms: int = -1
    """-1: they never go by age."""
    records: dict[int, Sent] = field(default_factory=dict)
    """By offset."""
    asked: int = 0
    """The largest offset that was asked to be the log start, be it in vain."""
    deleted: int = 0
    """The largest that was acknowledged to be."""
    _looked_at: int = 0
    """Below, every record that is gone was looked at."""

    def starts_at(self, log_start_offset: int, now_ms: int, checks: Checks) -> None:
        """A replica's log begins there: what was before it may be gone."""
        for offset in range(max(self._looked_at, self.asked), log_start_offset):
            sent = self.records.get(offset)
            if sent is not None:
                age_ms = now_ms - sent.timestamp_ms
                old = 0 <= self.retention_ms < age_ms
                checks.hold(Property.GONE_BY_RIGHT, old, self.name, offset, f"is {age_ms} ms old")
        self._looked_at = max(self._looked_at, log_start_offset)

    def ends_with(self, found: dict[int, bytes], checks: Checks) -> None:
        """All that is there in the end: nothing that is deleted, all that is not."""
        lowest = min(found, default=self.deleted)
        stay_gone = lowest >= self.deleted
        checks.hold(Property.DELETED_STAY_GONE, stay_gone, self.name, lowest, self.deleted)
        for offset, sent in self.records.items():
            if offset >= self.asked:
                same = found.get(offset) == sent.value
                checks.hold(Property.ACKNOWLEDGED_KEPT, same, self.name, offset, sent.value)


@dataclass(slots=True, eq=False)
class KeyedLedger(Ledger):
    """One compacted partition, each of whose keys one client writes."""

    writes: dict[bytes, list[bytes | None]] = field(default_factory=dict)
    """By key, what may be its value: the last that was acknowledged, and attempts since."""
    offsets: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    """Key and value by the offset that was acknowledged."""
    found: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    """What the last reader has read."""

    def writing(self, key: bytes, value: bytes | None) -> None:
        """A value is about to be written; None is a tombstone."""
        self.writes.setdefault(key, [None]).append(value)

    def written(self, key: bytes, value: bytes | None, offset: int) -> None:
        """It was acknowledged; -1 for an offset that was not told."""
        self.writes[key] = [value]
        if offset >= 0:
            self.offsets[offset] = key, value

    def judge(self, checks: Checks) -> None:
        """What is there in the end: the newest of each key, and each at its offset."""
        newest: dict[bytes, bytes | None] = {}
        for offset in sorted(self.found):
            key, value = self.found[offset]
            newest[key] = value
            known = self.offsets.get(offset, (key, value))
            same = known == (key, value)
            checks.hold(Property.ONE_VALUE_AN_OFFSET, same, self.name, offset, known, key, value)
        for key, possible in self.writes.items():
            kept = newest.get(key) in possible
            checks.hold(Property.NEWEST_KEPT, kept, self.name, key, newest.get(key), possible)
