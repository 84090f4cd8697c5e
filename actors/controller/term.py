"""One epoch of a controller: what it has decided, what of it counts, and who waits for more."""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the controller's shell: callers wait for commits
import logging
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from raylog.actors.controller.api import QuorumDescription, QuorumReplica
from raylog.actors.controller.machine import ControllerMachine
from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.journal import UNCLEAN, Decided, decided
from raylog.actors.metadata.log import LogEntry
from raylog.actors.metadata.records import ConfigChanged, PartitionCreated, Record
from raylog.actors.metadata.snapshots import SnapshotEncoder
from raylog.wire.errors import NotController

log = logging.getLogger(__name__)
RECENT_RECORDS_MAX = 20_000
"""Records kept for followers; who lags further gets a snapshot."""
FOLLOW_RECORDS_MAX = 500
"""Told at once, for a few ms of each process that they pass; those of one new topic together."""


@dataclass(slots=True)
class Term:
    """From winning an epoch to losing it."""

    machine: ControllerMachine
    quorum: VoterQuorum
    snapshots: SnapshotEncoder
    committed: int = 0
    """Everything below counts (exclusive end)."""
    recent: list[Record] = field(default_factory=list)
    """The last records, up to the image's offset; at first those of the log that was adopted."""
    unwritten: list[LogEntry] = field(default_factory=list)
    bytes_since_snapshot: int = 0
    snapshotting: bool = False
    """Whether one for the voters is being made."""
    commit_waiters: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)
    """(offset, done when it is committed), by offset."""
    more: asyncio.Event = field(default_factory=asyncio.Event)
    followers: dict[asyncio.Future[None], None] = field(default_factory=dict)
    """Done when anything is committed."""
    untold: deque[tuple[int, Decided]] = field(default_factory=deque)
    """(offset behind it, decision): told when it is committed."""
    seen: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Broker id to (metadata applied, when it said so, when that was all), in ms, -1 never."""

    # ---- commits -------------------------------------------------------------------------

    def wrote(self, offset: int) -> None:
        """Everything below an offset is committed."""
        self.committed = offset
        while self.untold and self.untold[0][0] <= offset:
            one = self.untold.popleft()[1]
            decided(log, one, warn=one.kind == UNCLEAN)
        while self.commit_waiters and self.commit_waiters[0][0] <= offset:
            finish(self.commit_waiters.pop(0)[1])
        for follower in self.followers:
            finish(follower)
        self.followers.clear()

    def tell_when_committed(self, decisions: Iterable[Decided]) -> None:
        """Have what the image's last records decide told once they count."""
        offset = self.machine.image.offset
        self.untold.extend((offset, one) for one in decisions)

    async def until_committed(self, offset: int) -> None:
        """Wait until everything below an offset counts; raises NotController if it ends first."""
        if offset > self.committed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            insort(self.commit_waiters, (offset, waiter), key=itemgetter(0))
            await waiter

    def end(self, reason: str) -> None:
        """Nothing more counts: tell who waits."""
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
        """Keep records, which the image has taken in, for followers."""
        self.recent.extend(records)
        if len(self.recent) > 2 * RECENT_RECORDS_MAX:
            del self.recent[:-RECENT_RECORDS_MAX]

    @property
    def first_recent(self) -> int:
        """Offset of the first record that is kept."""
        return self.machine.image.offset - len(self.recent)

    def told_at_once(self, offset: int) -> tuple[int, list[Record]]:
        """Where the committed records from an offset on are cut for one answer, and they.

        Those of a new topic, or of its new partitions, stay together: a client must not see part
        of the partitions and spread its keys over these.
        """
        first = self.first_recent
        end = min(self.committed, offset + FOLLOW_RECORDS_MAX)
        while end < self.committed and isinstance(
            self.recent[end - first], PartitionCreated | ConfigChanged
        ):
            end += 1
        return end, self.recent[offset - first : end - first]

    def saw(self, broker_id: int, offset: int, now_ms: int) -> None:
        """A broker says how much metadata it has applied."""
        caught_up_ms = now_ms if offset >= self.committed else self.seen_of(broker_id)[2]
        self.seen[broker_id] = (offset, now_ms, caught_up_ms)

    def seen_of(self, broker_id: int) -> tuple[int, int, int]:
        """What `seen` has of a broker."""
        return self.seen.get(broker_id, (-1, -1, -1))

    def description(self) -> QuorumDescription:
        """The voters and observers of the metadata log, and how far each is."""
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
        """The broker's copy of the metadata log, if it votes.

        What one that does not vote has promised is nobody's concern: it is not asked for it.
        """
        broker = self.machine.image.brokers.get(broker_id)
        voter = None if broker is None else (broker_id, broker.directory_id)
        return voter if voter in self.quorum.voters else None


def finish(future: asyncio.Future[None]) -> None:
    """Let who waits go on, if he still waits."""
    if not future.done():
        future.set_result(None)
