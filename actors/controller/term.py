"""One epoch of a controller: what it has decided, what is committed, and waiting requests."""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the controller's shell: callers wait for commits
import logging
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from raylog.actors.controller.messages import QuorumDescription, QuorumReplica
from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.controller.rules.machine import ControllerMachine
from raylog.actors.decisions import UNCLEAN, Decided
from raylog.actors.journal import decided
from raylog.actors.metadata.entries import LogEntry
from raylog.actors.metadata.records import ConfigChanged, PartitionCreated, Record
from raylog.actors.peers.metadata_copies import SnapshotEncoder
from raylog.wire.errors import NotController

log = logging.getLogger(__name__)
RECENT_RECORDS_MAX = 20_000
"""Number of records kept for followers. A follower that lacks more gets a snapshot."""
FOLLOW_RECORDS_MAX = 500
"""Maximum records in one response; each process on their way needs a few ms for them. The records
of one new topic stay together."""


@dataclass(slots=True)
class Term:
    """One controller epoch, from winning to losing it."""

    machine: ControllerMachine
    quorum: VoterQuorum
    snapshots: SnapshotEncoder
    committed: int = 0
    """The committed end of the log (exclusive)."""
    recent: list[Record] = field(default_factory=list)
    """The last records below the image's offset, which may include some of the adopted log."""
    unwritten: list[LogEntry] = field(default_factory=list)
    bytes_since_snapshot: int = 0
    snapshotting: bool = False
    """Whether a snapshot for the voters is in progress."""
    commit_waiters: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)
    """(offset, future that completes when the offset is committed), sorted by offset."""
    more: asyncio.Event = field(default_factory=asyncio.Event)
    followers: dict[asyncio.Future[None], None] = field(default_factory=dict)
    """Futures that complete when anything is committed."""
    unreported: deque[tuple[int, Decided]] = field(default_factory=deque)
    """(offset after the decision, decision): logged when it is committed."""
    seen: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Broker id to (applied metadata offset, time of the report, time of last being caught up); ms,
    -1 if never."""

    # ---- commits -------------------------------------------------------------------------

    def wrote(self, offset: int) -> None:
        """Record that everything below an offset is committed."""
        self.committed = offset
        while self.unreported and self.unreported[0][0] <= offset:
            one = self.unreported.popleft()[1]
            decided(log, one, warn=one.kind == UNCLEAN)
        while self.commit_waiters and self.commit_waiters[0][0] <= offset:
            finish(self.commit_waiters.pop(0)[1])
        for follower in self.followers:
            finish(follower)
        self.followers.clear()

    def tell_when_committed(self, decisions: Iterable[Decided]) -> None:
        """Log what the last records of the image decide, once they are committed."""
        offset = self.machine.image.offset
        self.unreported.extend((offset, one) for one in decisions)

    async def until_committed(self, offset: int) -> None:
        """Wait until everything below an offset is committed.

        Raises NotController if the term ends first.
        """
        if offset > self.committed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            insort(self.commit_waiters, (offset, waiter), key=itemgetter(0))
            await waiter

    def end(self, reason: str) -> None:
        """Fail all waiting requests: nothing more will be committed."""
        for _, waiter in self.commit_waiters:
            if not waiter.done():
                waiter.set_exception(NotController(reason))
        for follower in self.followers:
            finish(follower)
        self.commit_waiters.clear()
        self.followers.clear()
        self.more.set()

    # ---- for followers -------------------------------------------------------------------

    def keep(self, records: Sequence[Record]) -> None:
        """Keep records that the image has applied, for followers."""
        self.recent.extend(records)
        if len(self.recent) > 2 * RECENT_RECORDS_MAX:
            del self.recent[:-RECENT_RECORDS_MAX]

    @property
    def first_recent(self) -> int:
        """Offset of the first record kept."""
        return self.machine.image.offset - len(self.recent)

    def records_for_one_response(self, offset: int) -> tuple[int, list[Record]]:
        """Return the committed records from an offset on for one response, and where they end.

        The records of a new topic, or of its new partitions, stay together. Otherwise a client
        could see only some of the partitions and distribute its keys over them.
        """
        first = self.first_recent
        end = min(self.committed, offset + FOLLOW_RECORDS_MAX)
        while end < self.committed and isinstance(
            self.recent[end - first], PartitionCreated | ConfigChanged
        ):
            end += 1
        return end, self.recent[offset - first : end - first]

    def saw(self, broker_id: int, offset: int, now_ms: int) -> None:
        """Record how much metadata a broker has applied."""
        caught_up_ms = now_ms if offset >= self.committed else self.seen_of(broker_id)[2]
        self.seen[broker_id] = (offset, now_ms, caught_up_ms)

    def seen_of(self, broker_id: int) -> tuple[int, int, int]:
        """Return the entry of `seen` for a broker."""
        return self.seen.get(broker_id, (-1, -1, -1))

    def description(self) -> QuorumDescription:
        """Describe the voters and observers of the metadata log, and how far each has got."""
        voters = [QuorumReplica(*one) for one in self.quorum.progress()]
        observers = [
            QuorumReplica(broker.broker_id, broker.directory_id, *self.seen_of(broker.broker_id))
            for broker in self.machine.image.brokers.values()
            if (broker.broker_id, broker.directory_id) not in self.quorum.voters
        ]
        return QuorumDescription(
            leader_id=max(voters, key=lambda one: one.log_end_offset).broker_id,
            leader_epoch=self.quorum.epoch,
            high_watermark=self.committed,
            voters=voters,
            observers=observers,
        )

    def voter_of(self, broker_id: int) -> tuple[int, str] | None:
        """Return the broker's copy of the metadata log if it is a voter, otherwise None.

        Promises of a copy that is not a voter are ignored.
        """
        broker = self.machine.image.brokers.get(broker_id)
        voter = None if broker is None else (broker_id, broker.directory_id)
        return voter if voter in self.quorum.voters else None


def finish(future: asyncio.Future[None]) -> None:
    """Complete a future that may already be done."""
    if not future.done():
        future.set_result(None)
