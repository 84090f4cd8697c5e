"""What clients of deleted and compacted partitions know, and which records may be gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from raylog.simulation.clients import Ledger
from raylog.simulation.properties import Checks, Property


class Sent(NamedTuple):
    """An acknowledged record."""

    value: bytes
    timestamp_ms: int
    """The record's own timestamp, whatever the header of its batch says."""


class Tombstone(NamedTuple):
    """An acknowledged tombstone."""

    offset: int
    written_ms: int
    """The start of its write. It cannot have been cleaned before."""


class LogEnd(NamedTuple):
    """The end of a replica's log from some time on."""

    log_end_offset: int
    since_ms: int


@dataclass(slots=True, eq=False)
class DeletedLedger(Ledger):
    """A partition whose records are deleted by age or by DeleteRecords."""

    retention_ms: int = -1
    """-1: records are not deleted by age."""
    records: dict[int, Sent] = field(default_factory=dict)
    """By offset."""
    asked: int = 0
    """The largest requested log start offset, acknowledged or not."""
    deleted: int = 0
    """The largest acknowledged log start offset."""
    _looked_at: int = 0
    """All deleted records below this offset have been checked."""

    def starts_at(self, log_start_offset: int, now_ms: int, checks: Checks) -> None:
        """Check that records below a replica's log start were allowed to go."""
        for offset in range(max(self._looked_at, self.asked), log_start_offset):
            sent = self.records.get(offset)
            if sent is not None:
                age_ms = now_ms - sent.timestamp_ms
                old = 0 <= self.retention_ms < age_ms
                checks.hold(Property.GONE_BY_RIGHT, old, self.name, offset, f"is {age_ms} ms old")
        self._looked_at = max(self._looked_at, log_start_offset)

    def ends_with(self, found: dict[int, bytes], checks: Checks) -> None:
        """Check the final content: no deleted record, and all others."""
        lowest = min(found, default=self.deleted)
        stay_gone = lowest >= self.deleted
        checks.hold(Property.DELETED_STAY_GONE, stay_gone, self.name, lowest, self.deleted)
        for offset, sent in self.records.items():
            if offset >= self.asked:
                same = found.get(offset) == sent.value
                checks.hold(Property.ACKNOWLEDGED_KEPT, same, self.name, offset, sent.value)


@dataclass(slots=True, eq=False)
class KeyedLedger(Ledger):
    """A compacted partition in which each key has one writer."""

    delete_retention_ms: int = 0
    """How long tombstones stay, at least."""
    writes: dict[bytes, list[bytes | None]] = field(default_factory=dict)
    """By key, its possible values: the last acknowledged one and later attempts."""
    offsets: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    """Key and value by acknowledged offset."""
    found: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    """What the last reader has read."""
    ends: dict[int, list[LogEnd]] = field(default_factory=dict)
    """By broker, the ends of its log, one entry per change."""
    _tombstones: dict[bytes, Tombstone] = field(default_factory=dict)
    """By key, its last record if that is a tombstone with a known offset."""
    _begun_ms: dict[bytes, int] = field(default_factory=dict)
    """When the last write of a key began."""

    def writing(self, key: bytes, value: bytes | None, now_ms: int) -> None:
        """Note that a value is about to be written; None is a tombstone."""
        self.writes.setdefault(key, [None]).append(value)
        self._begun_ms[key] = now_ms

    def written(self, key: bytes, value: bytes | None, offset: int) -> None:
        """Note that a value was acknowledged; the offset is -1 if it was not told."""
        self.writes[key] = [value]
        self._tombstones.pop(key, None)
        if offset >= 0:
            self.offsets[offset] = key, value
            if value is None:
                self._tombstones[key] = Tombstone(offset, self._begun_ms[key])

    def ends_at(self, broker_id: int, log_end_offset: int, now_ms: int) -> None:
        """Note the end of a broker's log."""
        ends = self.ends.setdefault(broker_id, [])
        if not ends or ends[-1].log_end_offset != log_end_offset:
            ends.append(LogEnd(log_end_offset, now_ms))

    def judge(self, checks: Checks) -> None:
        """Check the final content: the newest value of each key, and each record at its offset."""
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
        """Whether the last record of a key may be older than its tombstone.

        As in Apache Kafka, each replica cleans on its own, and a tombstone goes
        `delete.retention.ms` after its first cleaning, even if another replica still lacks it. A
        replica that lags longer fetches the log without it, keeps the older record, and may be
        elected. Kafka does not guarantee more. So some replica must have had the offset of the
        older record, but not yet that of the tombstone, until the tombstone could be gone
        elsewhere.
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
