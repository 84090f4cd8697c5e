"""What clients of deleted and compacted partitions know, and what may be gone of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from raylog.actors.simulation.clients import Ledger
from raylog.actors.simulation.properties import Checks, Property


class Sent(NamedTuple):
    """An acknowledged record."""

    value: bytes
    timestamp_ms: int
    """Its own, whatever the header of its batch said."""


class Tombstone(NamedTuple):
    """An acknowledged record without a value."""

    offset: int
    written_ms: int
    """When its write began: it cannot have been cleaned before."""


class LogEnd(NamedTuple):
    """Where a replica's log ended from some time on."""

    log_end_offset: int
    since_ms: int


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

    delete_retention_ms: int = 0
    """For so long tombstones stay, at least."""
    writes: dict[bytes, list[bytes | None]] = field(default_factory=dict)
    """By key, what may be its value: the last that was acknowledged, and attempts since."""
    offsets: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    """Key and value by the offset that was acknowledged."""
    found: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    """What the last reader has read."""
    ends: dict[int, list[LogEnd]] = field(default_factory=dict)
    """By broker, where its log ended, each time that it ended elsewhere."""
    _tombstones: dict[bytes, Tombstone] = field(default_factory=dict)
    """The last record of each key that has no value, if its offset was acknowledged."""
    _begun_ms: dict[bytes, int] = field(default_factory=dict)
    """When the last write of a key began."""

    def writing(self, key: bytes, value: bytes | None, now_ms: int) -> None:
        """A value is about to be written; None is a tombstone."""
        self.writes.setdefault(key, [None]).append(value)
        self._begun_ms[key] = now_ms

    def written(self, key: bytes, value: bytes | None, offset: int) -> None:
        """It was acknowledged; -1 for an offset that was not told."""
        self.writes[key] = [value]
        self._tombstones.pop(key, None)
        if offset >= 0:
            self.offsets[offset] = key, value
            if value is None:
                self._tombstones[key] = Tombstone(offset, self._begun_ms[key])

    def ends_at(self, broker_id: int, log_end_offset: int, now_ms: int) -> None:
        """A broker's log ends there."""
        ends = self.ends.setdefault(broker_id, [])
        if not ends or ends[-1].log_end_offset != log_end_offset:
            ends.append(LogEnd(log_end_offset, now_ms))

    def judge(self, checks: Checks) -> None:
        """What is there in the end: the newest of each key, and each at its offset."""
        newest: dict[bytes, int] = {}
        for offset in sorted(self.found):
            key, value = self.found[offset]
            newest[key] = offset
            known = self.offsets.get(offset, (key, value))
            same = known == (key, value)
            checks.hold(Property.ONE_VALUE_AN_OFFSET, same, self.name, offset, known, key, value)
        for key, possible in self.writes.items():
            offset = newest.get(key, -1)
            value = self.found[offset][1] if key in newest else None
            kept = value in possible or self._may_be_back(key, offset)
            checks.hold(Property.NEWEST_KEPT, kept, self.name, key, value, possible)

    def _may_be_back(self, key: bytes, offset: int) -> bool:
        """Whether a record older than its key's tombstone may be what is found last.

        Replicas clean each for itself, here as in Apache Kafka, and a tombstone goes
        `delete.retention.ms` after it was cleaned first, whoever still lacks it. A replica that
        lags longer copies on without it, keeps the older record, and may be elected: Kafka's
        guarantee ends there. So a replica must have held the place of the older record, not yet
        that of the tombstone, until the tombstone could be gone elsewhere.
        """
        tombstone = self._tombstones.get(key)
        if tombstone is None:
            return False
        goes_ms = tombstone.written_ms + self.delete_retention_ms
        return any(
            offset < before.log_end_offset <= tombstone.offset < after.log_end_offset
            and after.since_ms >= goes_ms
            for ends in self.ends.values()
            for before, after in pairwise(ends)
        )
