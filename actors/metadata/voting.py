"""What a controller asks the voters, the brokers that hold the metadata log, and their answers."""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.metadata.log import LogEntry, LogSnapshot
from raylog.actors.metadata.records import Voters
from raylog.actors.plain import distinct


@distinct
class VoterState(NamedTuple):
    """How far a voter's copy of the log goes."""

    broker_id: int
    directory_id: str
    voters: Voters
    """The voter set that this copy names last, or that its cluster was to begin with."""
    promised_epoch: int
    last_epoch: int
    next_offset: int
    start_offset: int
    """Where its entries begin; below it there is only the snapshot."""
    controller: str = ""
    """Name of the controller that was promised `promised_epoch`."""
    silent_ms: float = 0.0
    """In the answer to NewEpoch, for how long it had heard no controller: not before it started."""

    @property
    def key(self) -> tuple[int, str]:
        """How voter sets name it."""
        return self.broker_id, self.directory_id

    @property
    def recency(self) -> tuple[int, int]:
        """Of two copies the one with the greater recency may hold more."""
        return self.last_epoch, self.next_offset

    @property
    def is_blank(self) -> bool:
        """Whether it has never taken part: its cluster is new, or its directory is."""
        return self.promised_epoch == 0


@distinct
class NewEpoch(NamedTuple):
    """A controller asks for the promise that lower epochs are refused."""

    epoch: int
    controller: str = ""
    """Its name."""
    founds: bool = False
    """Whether all voters were seen, none with a log, and all brokers said that they have known no
    metadata: the cluster is new. Only then may a blank copy promise anything, for otherwise it is
    one that was lost."""


@distinct
class JoinVoters(NamedTuple):
    """A controller asks a broker for a copy that is to be brought level, and then to vote.

    Taking part is a promise of the epoch, from a blank copy too: it comes back as an empty one.
    """

    epoch: int
    controller: str
    """The controller's name."""
    directory_id: str
    """Of the copy; another one does not join."""


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
    controller: str = ""
    """The controller's name."""
    directory_id: str = ""
    """Whose copy is meant; another one refuses. Empty: whichever the broker has."""


@distinct
class VoterAppended(NamedTuple):
    """Outcome of VoterAppend."""

    matched: bool
    """False: the logs differ before the entries; try from `next_offset`."""
    next_offset: int


def lease_ms(heartbeat_interval_ms: int) -> int:
    """How long a voter that has heard its controller lets no rival of it come up.

    A controller that has not been heard by a majority for as long does not serve. All brokers of a
    cluster must have the same heartbeat interval.
    """
    return max(2_000, 4 * heartbeat_interval_ms)
