"""Requests of a controller to the voters, and their responses."""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.message import distinct
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.records import Voters


@distinct
class VoterState(NamedTuple):
    """The extent of a voter's copy of the log."""

    broker_id: int
    directory_id: str
    voters: Voters
    """The last voter set in this copy, or the founding one."""
    promised_epoch: int
    last_epoch: int
    next_offset: int
    start_offset: int
    """Where its entries begin; everything below is in the snapshot."""
    controller: str = ""
    """Name of the controller to which `promised_epoch` was promised."""
    silent_ms: float = 0.0
    """In the answer to NewEpoch: how long it has not heard from a controller, counted at most from
    its own start."""

    @property
    def key(self) -> tuple[int, str]:
        """The copy's key in voter sets."""
        return self.broker_id, self.directory_id

    @property
    def recency(self) -> tuple[int, int]:
        """Sorts copies: the copy with the greatest recency may have the most records."""
        return self.last_epoch, self.next_offset

    @property
    def is_blank(self) -> bool:
        """Whether it has never taken part: the cluster or its directory is new."""
        return self.promised_epoch == 0


@distinct
class NewEpoch(NamedTuple):
    """A controller's request to promise that lower epochs are refused."""

    epoch: int
    controller: str = ""
    """The controller's name."""
    founds: bool = False
    """Whether all voters were seen without a log, and no broker has ever followed any metadata, so
    that the cluster is new. Only then may a blank copy promise anything: otherwise its directory
    was lost."""


@distinct
class JoinVoters(NamedTuple):
    """A controller's request to a broker's copy to catch up, in order to become a voter.

    The copy thereby promises the epoch. Even a blank copy may, since a lost directory comes back
    empty.
    """

    epoch: int
    controller: str
    """The controller's name."""
    directory_id: str
    """Id of the copy's directory; another copy refuses to join."""


@distinct
class VoterLog(NamedTuple):
    """A part of a voter's log, starting with a snapshot if the beginning was requested."""

    snapshot: LogSnapshot | None
    entries: list[LogEntry]


@distinct
class VoterAppend(NamedTuple):
    """Entries to sync, if the log before them is the same as the controller's."""

    epoch: int
    """The controller's epoch; if it is below the promised one, FencedLeaderEpoch is raised."""
    previous_epoch: int
    previous_offset: int
    """Epoch of the entry that ends where `entries` begin, and that offset."""
    entries: list[LogEntry]
    controller: str = ""
    """The controller's name."""
    directory_id: str = ""
    """The copy that is meant; any other copy refuses. Empty means any copy."""


@distinct
class VoterAppended(NamedTuple):
    """The outcome of VoterAppend."""

    matched: bool
    """False if the logs differ before the entries; the next attempt then starts at
    `next_offset`."""
    next_offset: int


def lease_ms(heartbeat_interval_ms: int) -> int:
    """Return how long a voter that has heard its controller supports no rival.

    A controller that no majority has heard for that long does not serve. All brokers of a cluster
    must have the same heartbeat interval.
    """
    return max(2_000, 4 * heartbeat_interval_ms)
