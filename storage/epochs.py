"""Which leader epoch begins at which offset (KIP-101, KIP-279, KIP-320)."""

from collections.abc import Iterable
from typing import NamedTuple

NO_EPOCH = -1
NO_OFFSET = -1


class EpochStart(NamedTuple):
    """The first offset written in an epoch."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """Start offsets by epoch; both rise. Stored in the `state` file and in every batch."""

    __slots__ = ("_entries", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries = [EpochStart(*entry) for entry in entries]
        self.latest = self._entries[-1].epoch if self._entries else NO_EPOCH

    def entries(self) -> list[EpochStart]:
        """All entries, oldest first."""
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`, unless it is already the latest.

        Entries that contradict it are removed, because the log's present contents are newer.
        """
        if epoch < 0 or epoch == self.latest:
            return
        entries = self._entries
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        self.latest = epoch

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest known epoch not above `epoch`, its exclusive end); (-1, -1) if unknown.

        For an epoch older than all known ones, return that epoch and the first known start.
        """
        if epoch < 0:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        floor = NO_EPOCH
        for entry in self._entries:
            if entry.epoch > epoch:
                return (epoch if floor < 0 else floor), entry.start_offset
            floor = entry.epoch
        return NO_EPOCH, NO_OFFSET  # newer than all known epochs, or none is known

    def epoch_for(self, offset: int) -> int | None:
        """The epoch in which the record at `offset` was written; None if unknown."""
        epoch = None
        for entry in self._entries:
            if entry.start_offset > offset:
                break
            epoch = entry.epoch
        return epoch

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or after the new log end."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        self.latest = self._entries[-1].epoch if self._entries else NO_EPOCH

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end before the new log start; the one around it begins there."""
        keep = 0
        while keep + 1 < len(self._entries) and (
            self._entries[keep + 1].start_offset <= start_offset
        ):
            keep += 1
        del self._entries[:keep]
        if self._entries and self._entries[0].start_offset < start_offset:
            self._entries[0] = EpochStart(self._entries[0].epoch, start_offset)
