"""Entries of the metadata log, and the snapshot that replaces its beginning."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.message import message


@message
@dataclass(frozen=True, slots=True)
class LogEntry:
    """Encoded records that were appended together."""

    offset: int
    """Offset of the first record."""
    epoch: int
    """Epoch of the controller that wrote it."""
    records: tuple[bytes, ...]

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.offset + len(self.records)


@message
@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """Encoded records that replace everything below `offset`."""

    offset: int
    epoch: int
    """Epoch of the last entry that the snapshot replaces."""
    records: tuple[bytes, ...]
