"""A copy of the metadata log in memory, and its changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.records import Voters, voters_in


class Promise(NamedTuple):
    """A promise to refuse lower epochs than this controller's.

    The same epoch is promised again, with the controller's name, once the controller has won it.
    """

    epoch: int
    controller: str = ""


class Append(NamedTuple):
    """Entries to append."""

    entries: tuple[LogEntry, ...]


class Truncate(NamedTuple):
    """Truncation to an offset at which an entry begins."""

    offset: int


Change = Promise | Append | Truncate


class LogCopy:
    """The contents of a copy: a snapshot, the entries after it, and the promised epoch."""

    def __init__(self) -> None:
        self.promised_epoch = 0
        self.promised_controller = ""
        self.snapshot = LogSnapshot(0, 0, ())
        self.entries: list[LogEntry] = []
        self._named: list[tuple[int, Voters]] = []
        """(offset of the entry, or -1 for the snapshot; its voter set), in log order."""

    @property
    def voters(self) -> Voters:
        """The last voter set in this copy, committed or not; empty if there is none."""
        return self._named[-1][1] if self._named else ()

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.entries[-1].next_offset if self.entries else self.snapshot.offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last entry."""
        return self.entries[-1].epoch if self.entries else self.snapshot.epoch

    def records(self) -> list[bytes]:
        """Return all records, those of the snapshot first."""
        behind = (record for entry in self.entries for record in entry.records)
        return [*self.snapshot.records, *behind]

    def epoch_before(self, offset: int) -> int | None:
        """Return the epoch of the entry that ends at `offset`; None if no entry does."""
        if offset == self.snapshot.offset:
            return self.snapshot.epoch
        at = self.index_of(offset) - 1
        if at < 0 or self.entries[at].next_offset != offset:
            return None
        return self.entries[at].epoch

    def since(self, offset: int) -> list[LogEntry]:
        """Return the entries from `offset` on."""
        return self.entries[self.index_of(offset) :]

    def boundary(self, offset: int) -> int:
        """Return the largest end of an entry at or below `offset`; below the snapshot, `offset`."""
        for entry in reversed(self.entries):
            if entry.next_offset <= offset:
                return entry.next_offset
        return min(offset, self.snapshot.offset)

    def read(self, offset: int, max_bytes: int) -> list[LogEntry]:
        """Return entries from `offset` on, at least one if there is any."""
        found = []
        for entry in self.since(offset):
            found.append(entry)
            max_bytes -= sum(map(len, entry.records))
            if max_bytes <= 0:
                break
        return found

    def index_of(self, offset: int) -> int:
        """Return the index of the first entry that begins at `offset` or later."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    # ---- changes -------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Apply a change."""
        match change:
            case Promise(epoch, controller):
                assert epoch >= self.promised_epoch, "a promised epoch never falls"
                self.promised_epoch, self.promised_controller = epoch, controller
            case Append(entries):
                for entry in entries:
                    assert entry.offset == self.next_offset, "it begins where the last one ended"
                    self.entries.append(entry)
                self._note_voters(entries)
            case Truncate(offset):
                del self.entries[self.index_of(offset) :]
                while self._named and self._named[-1][0] >= offset:
                    self._named.pop()

    def replace(self, snapshot: LogSnapshot) -> None:
        """Replace everything below a snapshot by the snapshot."""
        self.entries = self.entries_after(snapshot)
        self.snapshot = snapshot
        self.find_voters()

    def entries_after(self, snapshot: LogSnapshot) -> list[LogEntry]:
        """Return the entries after a snapshot, if this log agrees with the snapshot there.

        Otherwise those entries come from a controller that has lost. Together with the snapshot
        they would make the log look older than it is.
        """
        at = self.index_of(snapshot.offset)
        before = self.entries[at - 1] if at else self.snapshot
        end = before.next_offset if isinstance(before, LogEntry) else before.offset
        agrees = (before.epoch, end) == (snapshot.epoch, snapshot.offset)
        return self.entries[at:] if agrees else []

    def find_voters(self) -> None:
        """Search the whole log for voter sets."""
        voters = voters_in(self.snapshot.records)
        self._named = [] if voters is None else [(-1, voters)]
        self._note_voters(self.entries)

    def _note_voters(self, entries: Sequence[LogEntry]) -> None:
        for entry in entries:
            voters = voters_in(entry.records)
            if voters is not None:
                self._named.append((entry.offset, voters))
