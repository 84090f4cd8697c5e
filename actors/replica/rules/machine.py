"""Decisions of one partition replica: who leads, which epochs count, where the high watermark is.

States of a replica and their transitions:

| from      | event                                     | to        |
|-----------|-------------------------------------------|-----------|
| any       | LeadershipChanged naming this broker      | leading   |
| any       | LeadershipChanged naming another          | following |
| any       | LeadershipChanged naming no leader        | idle      |
| any       | LeadershipChanged of lower epochs         | unchanged |
| leading   | Appended, FollowerFetched, TimePassed,    | leading   |
|           | IsrAltered, IsrRefused                    |           |
| leading   | CutOff, if others are in sync: no         | leading   |
|           | client is served until Reconnected        |           |
| following | Followed, Truncated                       | following |

`leading.py` holds a leader's state about its followers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from raylog.actors.common_messages import PartitionLeadership
from raylog.actors.replica.rules.leading import LeaderProgress, Proposal
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
    """Event: committed metadata names a leader, its epoch, and the ISR."""

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
    """Event: a follower with the leader's history holds everything below `fetch_offset`.

    `incarnation` is that of the follower's log (KIP-903).
    """

    broker_id: int
    incarnation: str
    fetch_offset: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Event: time to check which followers lag and which may join."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class IsrAltered:
    """Event: a proposal was answered with the controller's present state of the partition."""

    proposal: Proposal
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrRefused:
    """Event: a proposal was refused for good; none of it holds, and the next one can wait."""

    proposal: Proposal
    now_ms: int


@dataclass(frozen=True, slots=True)
class MinIsrChanged:
    """Event: min.insync.replicas was changed."""

    min_isr: int


@dataclass(frozen=True, slots=True)
class Followed:
    """Event: the leader's records were appended; the log now ends at `log_end_offset`."""

    log_end_offset: int
    leader_high_watermark: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """Event: the log was truncated, or begun anew, and ends at `log_end_offset`."""

    log_end_offset: int


@dataclass(frozen=True, slots=True)
class CutOff:
    """Event: this process has no contact to followers nor, through its broker, the controller."""


@dataclass(frozen=True, slots=True)
class Reconnected:
    """Event: this process has contact again."""


@dataclass(frozen=True, slots=True)
class StartLeading:
    """Effect: record the epoch's start in the log, then serve."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class StopLeading:
    """Effect: fail all waiting requests with NOT_LEADER_OR_FOLLOWER."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Effect: fetch from this leader, from now on and from no other."""

    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StopFollowing:
    """Effect: stop fetching, and ignore answers that are still on the way."""


@dataclass(frozen=True, slots=True)
class ReleaseUpTo:
    """Effect: make records below `high_watermark` readable and answer writers waiting for them."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Effect: propose this ISR to the controller; IsrAltered or IsrRefused is the answer.

    A request that fails on the way is repeated unchanged, because it may have taken effect.
    """

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class FailUnsafe:
    """Effect: fail acks=all writers with NOT_ENOUGH_REPLICAS_AFTER_APPEND."""


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
    | Reconnected
)
Effect = StartLeading | StopLeading | Follow | StopFollowing | ReleaseUpTo | Propose | FailUnsafe


@dataclass(slots=True)
class PartitionMachine:
    """One partition replica on broker `broker_id`.

    Invariant: high_watermark <= log_end_offset; leader_epoch never moves back, nor does the high
    watermark, unless the log is truncated below it (after an unclean election).
    """

    broker_id: int
    log_end_offset: int
    high_watermark: int = 0
    min_isr: int = 1
    lag_ms_max: int = 30_000
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = -1
    """Partition epoch of the last leadership applied."""
    incarnation: str = ""
    """Incarnation of this log, as the leader knows it."""
    progress: LeaderProgress | None = None
    """Set while this replica leads."""
    is_cut_off: bool = False
    """Whether it leads but another replica may lead by now: it serves only followers."""

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads in its newest known epoch."""
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
            case Reconnected():
                self.is_cut_off = False
                return []
            case _:
                return [] if self.progress is None else self._led(event, self.progress)

    def _led(
        self,
        event: Appended | FollowerFetched | TimePassed | IsrAltered | IsrRefused,
        progress: LeaderProgress,
    ) -> list[Effect]:
        """Apply a leader's events."""
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
        leadership = event.leadership
        epochs = (leadership.leader_epoch, leadership.partition_epoch)
        if epochs <= (self.leader_epoch, self.partition_epoch):
            return []
        self.partition_epoch = leadership.partition_epoch
        self.incarnation = leadership.incarnations.get(self.broker_id, "")
        if leadership.leader_epoch == self.leader_epoch:
            return self._same_epoch(event)
        effects: list[Effect] = []
        if self.progress is not None:
            effects.append(StopLeading())
        elif self.leader != NO_LEADER:
            effects.append(StopFollowing())
        self.progress = None
        self.is_cut_off = False
        self.leader, self.leader_epoch = leadership.leader, leadership.leader_epoch
        if leadership.leader == self.broker_id:
            effects += self._start_leading(event)
        elif leadership.leader != NO_LEADER:
            effects.append(Follow(self.leader, self.leader_epoch))
        return effects

    def _same_epoch(self, event: LeadershipChanged) -> list[Effect]:
        """Apply a change of ISR or incarnations within the same leader epoch."""
        if self.progress is None:
            return []
        self.progress.update_metadata(event.leadership, event.now_ms)
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
        """Whether it leads and other in-sync replicas may become leader instead."""
        return self.progress is not None and len(self.progress.maximal_isr) > 1

    def _cut_off(self) -> list[Effect]:
        """Stop serving clients, since nothing can be committed here now; they find a new leader."""
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
        """Like `require_leader`, but accept a leader that is cut off: it awaits followers."""
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
        """Check that the ISR is large enough for acks=all (min.insync.replicas)."""
        assert self.progress is not None, "only a leader writes"
        if not self.progress.has_enough(self.min_isr):
            raise NotEnoughReplicas(
                f"in sync are {self.progress.isr}, min.insync.replicas is {self.min_isr}"
            )

    def have_deleted_to(self, offset: int, log_starts: Mapping[int, int]) -> bool:
        """Whether the logs of all possible next leaders begin at or after `offset` (KIP-107).

        `log_starts` maps fetching brokers to their reported log starts. The maximal ISR must have
        deleted, and so must every other fetching broker: Apache Kafka waits for every live replica,
        and an eligible one may become leader.
        """
        members = (
            set(log_starts) if self.progress is None else {*log_starts, *self.progress.maximal_isr}
        )
        members.discard(self.broker_id)
        return all(log_starts.get(one, -1) >= offset for one in members)

    @property
    def is_before_epoch_start(self) -> bool:
        """Whether the high watermark is still before the leader's epoch (KIP-207)."""
        return self.progress is not None and self.high_watermark < self.progress.epoch_start

    @property
    def is_settled(self) -> bool:
        """Whether time changes nothing: all replicas are in sync and caught up."""
        return self.progress is None or self.progress.is_settled(self.log_end_offset)
