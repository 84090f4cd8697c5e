"""What one partition replica decides: who leads, which epochs count, where the high watermark is.

States of a replica and what moves it on:

| from     | event                                   | to       |
|----------|-----------------------------------------|----------|
| idle     | LeadershipChanged naming this broker    | leading  |
| idle     | LeadershipChanged naming another        | idle     |
| leading  | LeadershipChanged of a higher epoch     | either   |
| any      | LeadershipChanged of a lower epoch      | as it was |
| leading  | Appended                                | leading  |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from raylog.wire.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch

NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """Event: committed metadata names a leader and its epoch."""

    leader: int
    leader_epoch: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Appended:
    """Event: the log grew; `log_end_offset` is its new exclusive end."""

    log_end_offset: int


@dataclass(frozen=True, slots=True)
class StartLeading:
    """Effect: note the epoch's start in the log, then serve."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class StopLeading:
    """Effect: fail everything that waits here with NOT_LEADER_OR_FOLLOWER."""


@dataclass(frozen=True, slots=True)
class ReleaseUpTo:
    """Effect: records below `high_watermark` may be read, writers waiting for them are answered."""

    high_watermark: int


Event = LeadershipChanged | Appended
Effect = StartLeading | StopLeading | ReleaseUpTo


@dataclass(slots=True)
class PartitionMachine:
    """One partition replica on broker `broker_id`.

    Invariant: high_watermark <= log_end_offset; leader_epoch and high_watermark never move back.
    """

    broker_id: int
    log_end_offset: int
    high_watermark: int = 0
    leader: int = -1
    leader_epoch: int = NO_EPOCH

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads in the newest epoch it knows."""
        return self.leader == self.broker_id

    def handle(self, event: Event) -> list[Effect]:
        """Apply an event; the effects are carried out in the order given."""
        match event:
            case LeadershipChanged():
                return self._changed(event)
            case Appended(log_end_offset):
                assert log_end_offset >= self.log_end_offset
                self.log_end_offset = log_end_offset
                return self._advanced()
            case _:
                assert_never(event)

    def _changed(self, event: LeadershipChanged) -> list[Effect]:
        if event.leader_epoch <= self.leader_epoch:
            return []
        led = self.is_leader
        self.leader = event.leader
        self.leader_epoch = event.leader_epoch
        effects: list[Effect] = [StopLeading()] if led else []
        if self.is_leader:
            self.log_end_offset = event.log_end_offset
            effects.append(StartLeading(self.leader_epoch, self.log_end_offset))
            effects += self._advanced()
        return effects

    def _advanced(self) -> list[Effect]:
        if self.log_end_offset <= self.high_watermark:
            return []
        self.high_watermark = self.log_end_offset
        return [ReleaseUpTo(self.high_watermark)]

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Check that this replica leads, in the epoch the client knows (KIP-320; -1: any)."""
        if not self.is_leader:
            raise NotLeaderOrFollower(
                f"broker {self.broker_id} does not lead this partition, {self.leader} does"
            )
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        message = f"leader epoch {current_leader_epoch} was asked, it is {self.leader_epoch} here"
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(message)
        raise UnknownLeaderEpoch(message)
