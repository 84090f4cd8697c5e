"""What a controller asks the voters, the brokers that hold the metadata log, and their answers."""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.metadata.log import LogEntry, LogSnapshot
from raylog.actors.plain import distinct


@distinct
class VoterState(NamedTuple):
    """How far a voter's copy of the log goes."""

    broker_id: int
    directory_id: str
    voters: tuple[tuple[int, str], ...]
    """The voters this copy knows of: (broker id, directory id)."""
    promised_epoch: int
    last_epoch: int
    next_offset: int
    start_offset: int
    """Where its entries begin; below it there is only the snapshot."""

    @property
    def recency(self) -> tuple[int, int]:
        """Of two copies the one with the greater recency may hold more."""
        return self.last_epoch, self.next_offset


@distinct
class VoterLog(NamedTuple):
    """Part of a voter's log: from a snapshot on, if the beginning was asked for."""

    snapshot: LogSnapshot | None
    entries: list[LogEntry]


@distinct
class VoterAppend(NamedTuple):
    """Entries to be synced, if the log so far is the controller's."""

    epoch: int
    """The controller's; lower than promised is refused with FencedLeaderEpoch."""
    previous_epoch: int
    previous_offset: int
    """Epoch of the entry that ends where `entries` begin, and that offset."""
    entries: list[LogEntry]


@distinct
class VoterAppended(NamedTuple):
    """Outcome of VoterAppend."""

    matched: bool
    """False: the logs differ before the entries; try from `next_offset`."""
    next_offset: int
