"""What one partition replica decides: who leads, which epochs count, where the high watermark is.

States of a replica and what moves it on:

| from      | event                                     | to        |
|-----------|-------------------------------------------|-----------|
| any       | LeadershipChanged naming this broker      | leading   |
| any       | LeadershipChanged naming another          | following |
| any       | LeadershipChanged naming nobody           | idle      |
| any       | LeadershipChanged of lower epochs         | as it was |
| leading   | Appended, FollowerFetched, TimePassed,    | leading   |
|           | IsrAltered, IsrRefused                    |           |
| leading   | CutOff, where others are in sync: no      | leading   |
|           | client is served until HeardAgain         |           |
| following | Followed, Truncated                       | following |

`leading.py` has what a leader knows of its followers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from raylog.actors.ports import PartitionLeadership
from raylog.actors.replica.leading import LeaderProgress, Proposal
from raylog.wire.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)

NO_EPOCH = -1
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class LeadershipChanged:
    """Event: committed metadata names a leader, its epoch, and who is in sync."""

    leadership: PartitionLeadership
    log_end_offset: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Appended:
    """Event: the leader's log grew; `log_end_offset` is its new exclusive end."""

    log_end_offset: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class FollowerFetched:
    """Event: a follower whose history is the leader's has all below `fetch_offset`.

    `incarnation` is the opening of its log that asks (KIP-903).
    """

    broker_id: int
    incarnation: str
    fetch_offset: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Event: a look at who lags and who may join."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class IsrAltered:
    """Event: a proposal was answered with how the controller has the partition now."""

    proposal: Proposal
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrRefused:
    """Event: a proposal was refused for good: nothing of it holds, and the next one can wait."""

    proposal: Proposal
    now_ms: int


@dataclass(frozen=True, slots=True)
class MinIsrChanged:
    """Event: min.insync.replicas is another."""

    min_isr: int


@dataclass(frozen=True, slots=True)
class Followed:
    """Event: what the leader sent is in the log, which ends at `log_end_offset` now."""

    log_end_offset: int
    leader_high_watermark: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """Event: the log was cut, or began anew, and ends at `log_end_offset`."""

    log_end_offset: int


@dataclass(frozen=True, slots=True)
class CutOff:
    """Event: this process hears neither followers nor, through its broker, the controller."""


@dataclass(frozen=True, slots=True)
class HeardAgain:
    """Event: it hears one of them again."""


@dataclass(frozen=True, slots=True)
class StartLeading:
    """Effect: note the epoch's start in the log, then serve."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class StopLeading:
    """Effect: fail everything that waits here with NOT_LEADER_OR_FOLLOWER."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Effect: fetch from the leader, from now on and only from it."""

    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StopFollowing:
    """Effect: fetch no more; answers that are on the way are too late."""


@dataclass(frozen=True, slots=True)
class ReleaseUpTo:
    """Effect: records below `high_watermark` may be read, writers waiting for them are answered."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Effect: ask the controller for these in-sync replicas; answered by IsrAltered or IsrRefused.

    A request that fails on the way is repeated as it is: it may have taken effect.
    """

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class FailUnsafe:
    """Effect: writers who wait for all in sync are told NOT_ENOUGH_REPLICAS_AFTER_APPEND."""


Event = (
    LeadershipChanged
    | Appended
    | FollowerFetched
    | TimePassed
    | IsrAltered
    | IsrRefused
    | MinIsrChanged
    | Followed
    | Truncated
    | CutOff
    | HeardAgain
)
Effect = StartLeading | StopLeading | Follow | StopFollowing | ReleaseUpTo | Propose | FailUnsafe


@dataclass(slots=True)
class PartitionMachine:
    """One partition replica on broker `broker_id`.

    Invariant: high_watermark <= log_end_offset; leader_epoch never moves back, nor does the high
    watermark, unless the log is cut below it (after an unclean election).
    """

    broker_id: int
    log_end_offset: int
    high_watermark: int = 0
    min_isr: int = 1
    lag_ms_max: int = 30_000
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = -1
    """Of the last leadership taken in."""
    incarnation: str = ""
    """This opening of the log, as the leader knows it."""
    progress: LeaderProgress | None = None
    """While this replica leads."""
    is_cut_off: bool = False
    """Whether it leads, but another may do so by now: it serves followers only."""

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads in the newest epoch it knows."""
        return self.progress is not None

    @property
    def is_follower(self) -> bool:
        """Whether this replica follows a leader."""
        return self.progress is None and self.leader != NO_LEADER

    def handle(self, event: Event) -> list[Effect]:
        """Apply an event; the effects are carried out in the order given."""
        match event:
            case LeadershipChanged():
                return self._changed(event)
            case Followed(log_end_offset, leader_high_watermark):
                return self._followed(log_end_offset, leader_high_watermark)
            case Truncated(log_end_offset):
                self.log_end_offset = log_end_offset
                self.high_watermark = min(self.high_watermark, log_end_offset)
                return []
            case MinIsrChanged(min_isr):
                self.min_isr = min_isr
                return self._isr_changed() if self.progress is not None else []
            case CutOff():
                return self._cut_off()
            case HeardAgain():
                self.is_cut_off = False
                return []
            case _:
                return [] if self.progress is None else self._led(event, self.progress)

    def _led(
        self,
        event: Appended | FollowerFetched | TimePassed | IsrAltered | IsrRefused,
        progress: LeaderProgress,
    ) -> list[Effect]:
        """Events of a leader."""
        match event:
            case Appended(log_end_offset, now_ms):
                assert log_end_offset >= self.log_end_offset
                progress.appended(self.log_end_offset, now_ms)
                self.log_end_offset = log_end_offset
                return self._advanced(progress)
            case FollowerFetched(broker_id, incarnation, fetch_offset, now_ms):
                counts = progress.fetched(
                    broker_id, incarnation, fetch_offset, self.log_end_offset, now_ms
                )
                if not counts:
                    return []
                effects = self._advanced(progress)
                if progress.waits_to_join(broker_id):
                    effects += self._proposed(progress, now_ms)
                return effects
            case TimePassed(now_ms):
                return self._proposed(progress, now_ms)
            case IsrAltered(proposal, leader_epoch, partition_epoch, isr):
                if leader_epoch != self.leader_epoch:
                    return []
                changed = progress.altered(proposal, partition_epoch, isr)
                return self._isr_changed() if changed else []
            case IsrRefused(proposal, now_ms):
                return self._isr_changed() if progress.refused(proposal, now_ms) else []
            case _:
                assert_never(event)

    # ---- leadership ----------------------------------------------------------------------

    def _changed(self, event: LeadershipChanged) -> list[Effect]:
        told = event.leadership
        epochs = (told.leader_epoch, told.partition_epoch)
        if epochs <= (self.leader_epoch, self.partition_epoch):
            return []
        self.partition_epoch = told.partition_epoch
        self.incarnation = told.incarnations.get(self.broker_id, "")
        if told.leader_epoch == self.leader_epoch:
            return self._same_epoch(event)
        effects: list[Effect] = []
        if self.progress is not None:
            effects.append(StopLeading())
        elif self.leader != NO_LEADER:
            effects.append(StopFollowing())
        self.progress = None
        self.is_cut_off = False
        self.leader, self.leader_epoch = told.leader, told.leader_epoch
        if told.leader == self.broker_id:
            effects += self._start_leading(event)
        elif told.leader != NO_LEADER:
            effects.append(Follow(self.leader, self.leader_epoch))
        return effects

    def _same_epoch(self, event: LeadershipChanged) -> list[Effect]:
        """Only who is in sync, or who they are, has changed."""
        if self.progress is None:
            return []
        self.progress.told(event.leadership, event.now_ms)
        return self._isr_changed()

    def _start_leading(self, event: LeadershipChanged) -> list[Effect]:
        self.log_end_offset = event.log_end_offset
        self.progress = LeaderProgress(
            self.broker_id, event.leadership, self.log_end_offset, self.lag_ms_max, event.now_ms
        )
        start: list[Effect] = [StartLeading(self.leader_epoch, self.log_end_offset)]
        return start + self._advanced(self.progress)

    @property
    def needs_others(self) -> bool:
        """Whether it leads and others in sync may become leader in its stead."""
        return self.progress is not None and len(self.progress.maximal_isr) > 1

    def _cut_off(self) -> list[Effect]:
        """Nothing can be committed here now: who waits is told to look for another leader."""
        if self.is_cut_off or not self.needs_others:
            return []
        self.is_cut_off = True
        return [StopLeading()]

    # ---- leading -------------------------------------------------------------------------

    def _advanced(self, progress: LeaderProgress) -> list[Effect]:
        if not progress.has_enough(self.min_isr):
            return []
        replicated = progress.replicated_up_to(self.log_end_offset)
        if replicated <= self.high_watermark:
            return []
        self.high_watermark = replicated
        return [ReleaseUpTo(replicated)]

    def _isr_changed(self) -> list[Effect]:
        assert self.progress is not None, "only a leader minds who is in sync"
        effects = self._advanced(self.progress)
        if not self.progress.has_enough(self.min_isr):
            effects.append(FailUnsafe())
        return effects

    def _proposed(self, progress: LeaderProgress, now_ms: int) -> list[Effect]:
        proposal = progress.propose(self.log_end_offset, self.high_watermark, now_ms)
        return [] if proposal is None else [Propose(proposal)]

    # ---- following -----------------------------------------------------------------------

    def _followed(self, log_end_offset: int, leader_high_watermark: int) -> list[Effect]:
        assert self.progress is None, "a leader follows nobody"
        self.log_end_offset = log_end_offset
        known = min(log_end_offset, leader_high_watermark)
        if known <= self.high_watermark:
            return []
        self.high_watermark = known
        return [ReleaseUpTo(known)]

    # ---- rules for requests --------------------------------------------------------------

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Check that this replica leads, in the epoch the client knows (KIP-320; -1: any)."""
        self.require_leader_for_follower(current_leader_epoch)
        if self.is_cut_off:
            raise NotLeaderOrFollower(
                f"broker {self.broker_id} is cut off: another may lead this partition by now"
            )

    def require_leader_for_follower(self, current_leader_epoch: int) -> None:
        """As `require_leader`, but of a leader that is cut off, too: it waits for followers."""
        if self.progress is None:
            raise NotLeaderOrFollower(
                f"broker {self.broker_id} does not lead this partition, {self.leader} does"
            )
        self.require_epoch(current_leader_epoch)

    def require_epoch(self, current_leader_epoch: int) -> None:
        """Check that the requester knows the same leader epoch (KIP-320; -1: any)."""
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        message = f"leader epoch {current_leader_epoch} was asked, it is {self.leader_epoch} here"
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(message)
        raise UnknownLeaderEpoch(message)

    def require_enough_replicas(self) -> None:
        """Check that acks=all can promise what min.insync.replicas demands."""
        assert self.progress is not None, "only a leader writes"
        if not self.progress.has_enough(self.min_isr):
            raise NotEnoughReplicas(
                f"in sync are {self.progress.isr}, min.insync.replicas is {self.min_isr}"
            )

    @property
    def is_before_epoch_start(self) -> bool:
        """Whether the high watermark has not reached the leader's epoch yet (KIP-207)."""
        return self.progress is not None and self.high_watermark < self.progress.epoch_start

    @property
    def is_settled(self) -> bool:
        """Whether time changes nothing: all replicas are in sync and hold all there is."""
        return self.progress is None or self.progress.is_settled(self.log_end_offset)
