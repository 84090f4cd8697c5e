"""A leader's state about its followers: fetch offsets, the ISR, and who should be in it.

Only the controller changes the ISR. While a proposal is pending, the *maximal* ISR counts: members
plus joining replicas. A leaving replica counts until the controller confirms its removal, because
until then the controller may make it leader (KIP-497).

A follower's fetch counts if it comes from the incarnation of its log in the metadata (KIP-903). A
fetch from an incarnation that the leader does not know yet is kept until it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from raylog.actors.common_messages import PartitionLeadership

UNKNOWN_OFFSET = -1
QUIET_MS = 500
"""After a refusal, nothing is proposed for this time."""


class Proposal(NamedTuple):
    """A proposed ISR, as sent by AlterPartitionManager."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, str], ...]
    """(broker id, incarnation) of each member."""


@dataclass(slots=True)
class FollowerState:
    """Progress of one follower, derived from its fetches."""

    incarnation: str
    log_end_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = 0
    """When it was last known to hold all the leader's records."""
    fetched_ms: int = 0
    leader_end_offset: int = 0
    """The leader's log end at the follower's last fetch."""

    def fetched(self, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a fetch. If it reaches the leader's last end, the follower had caught up then."""
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif fetch_offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = fetch_offset
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = now_ms


class LeaderProgress:
    """Progress of one partition's followers within one leader epoch."""

    __slots__ = (
        "_counted",
        "_doubted",
        "_early",
        "_followers",
        "_incarnations",
        "_isr_epoch",
        "_joining",
        "_lag_ms_max",
        "_leader_epoch",
        "_own",
        "_pending",
        "_quiet_until_ms",
        "_replicas",
        "epoch_start",
        "isr",
    )

    def __init__(
        self,
        own: int,
        leadership: PartitionLeadership,
        epoch_start: int,
        lag_ms_max: int,
        now_ms: int,
    ) -> None:
        self.epoch_start = epoch_start
        self.isr: tuple[int, ...] = leadership.isr
        """The committed ISR."""
        self._isr_epoch = leadership.partition_epoch
        self._own = own
        self._leader_epoch = leadership.leader_epoch
        self._lag_ms_max = lag_ms_max
        self._replicas = leadership.replicas
        self._incarnations: Mapping[int, str] = leadership.incarnations
        self._pending: Proposal | None = None
        self._joining: tuple[int, ...] = ()
        self._quiet_until_ms = 0
        self._doubted: dict[int, None] = {}
        """Replicas that were to join in a refused proposal; the least recently tried first."""
        self._counted: tuple[FollowerState, ...] = ()
        self._followers: dict[int, FollowerState] = {}
        self._early: dict[int, FollowerState] = {}
        self._meet_followers(now_ms)

    # ---- inputs --------------------------------------------------------------------------

    def update_metadata(self, leadership: PartitionLeadership, now_ms: int) -> None:
        """Apply newer metadata of the same leader epoch."""
        self._replicas = leadership.replicas
        self._incarnations = leadership.incarnations
        if leadership.partition_epoch > self._isr_epoch:
            self._commit(leadership.partition_epoch, leadership.isr)
        self._meet_followers(now_ms)

    def _meet_followers(self, now_ms: int) -> None:
        """Reset the progress of each follower whose log has a new incarnation."""
        before, self._followers = self._followers, {}
        for one in self._replicas:
            if one == self._own:
                continue
            incarnation = self._incarnations.get(one, "")
            state = before.get(one)
            if state is None or state.incarnation != incarnation:
                state = self._early.get(one)
            if state is None or state.incarnation != incarnation:
                state = FollowerState(incarnation)
                state.caught_up_ms = now_ms if one in self.isr else now_ms - self._lag_ms_max
            else:
                self._early.pop(one, None)
            self._followers[one] = state
        self._count()

    def _count(self) -> None:
        """Determine whose progress limits the high watermark: the maximal ISR."""
        self._counted = tuple(
            [
                self._followers.get(one) or FollowerState("")
                for one in self.maximal_isr
                if one != self._own
            ]
        )

    def _commit(self, partition_epoch: int, isr: tuple[int, ...]) -> None:
        self._isr_epoch = partition_epoch
        self.isr = isr
        self._pending = None
        self._joining = ()
        for one in isr:
            self._doubted.pop(one, None)
        self._count()

    def altered(self, proposal: Proposal, partition_epoch: int, isr: tuple[int, ...]) -> bool:
        """Apply the controller's answer to a proposal; False if it changes nothing."""
        news = partition_epoch > self._isr_epoch
        if not news and (partition_epoch < self._isr_epoch or proposal != self._pending):
            return False
        self._commit(partition_epoch, isr)
        return True

    def refused(self, proposal: Proposal, now_ms: int) -> bool:
        """Drop a proposal that was refused for good; False if it is no longer pending."""
        if proposal != self._pending:
            return False
        self._quiet_until_ms = now_ms + QUIET_MS
        self._doubted |= dict.fromkeys(self._joining)
        self._commit(self._isr_epoch, self.isr)
        return True

    def is_under_way(self, proposal: Proposal) -> bool:
        """Whether a proposal is still pending."""
        return proposal == self._pending

    def appended(self, old_end_offset: int, now_ms: int) -> None:
        """The log is growing: followers level with its old end were caught up until now."""
        for state in self._followers.values():
            if state.log_end_offset == old_end_offset:
                state.caught_up_ms = now_ms

    def fetched(
        self, broker_id: int, incarnation: str, fetch_offset: int, end_offset: int, now_ms: int
    ) -> bool:
        """Record a follower's fetch; return whether it counts already."""
        state = self._followers.get(broker_id)
        counts = state is not None and state.incarnation == incarnation
        if state is None or not counts:
            state = self._early[broker_id] = FollowerState(incarnation)
        state.fetched(fetch_offset, end_offset, now_ms)
        return counts

    # ---- conclusions ---------------------------------------------------------------------

    def replicated_up_to(self, log_end_offset: int) -> int:
        """Exclusive end of what the whole maximal ISR holds; -1 if unknown."""
        held = log_end_offset
        for state in self._counted:
            if state.log_end_offset < held:
                held = state.log_end_offset
        return held

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """All replicas that the controller may consider in sync."""
        return (*self.isr, *self._joining)

    def has_enough(self, min_isr: int) -> bool:
        """Whether the ISR is as large as min.insync.replicas requires of this replica count."""
        return self.spare_replicas(min_isr) >= 0

    @property
    def is_under_replicated(self) -> bool:
        """Whether some replicas are not in sync."""
        return len(self.isr) < len(self._replicas)

    def spare_replicas(self, min_isr: int) -> int:
        """ISR size above what `has_enough` requires; negative if replicas are missing."""
        return len(self.isr) - min(min_isr, len(self._replicas))

    def lag_records(self, log_end_offset: int) -> int:
        """Number of records that the follower furthest behind lacks, as far as known."""
        ends = [one.log_end_offset for one in self._followers.values()]
        known_ends = [end for end in ends if end != UNKNOWN_OFFSET]
        return max((log_end_offset - end for end in known_ends), default=0)

    def waits_to_join(self, broker_id: int) -> bool:
        """Whether a follower is not in sync and no proposal is pending."""
        return broker_id not in self.isr and self._pending is None

    def propose(self, log_end_offset: int, high_watermark: int, now_ms: int) -> Proposal | None:
        """Propose a different ISR, if there should be one and no proposal is pending."""
        if self._pending is not None or now_ms < self._quiet_until_ms:
            return None
        level_from = max(high_watermark, self.epoch_start)
        lags = {
            one: state.log_end_offset != log_end_offset
            and now_ms - state.caught_up_ms > self._lag_ms_max
            for one, state in self._followers.items()
        }
        joining = [  # not those that would have to leave again at once
            one
            for one, state in self._followers.items()
            if one not in self.isr and state.log_end_offset >= level_from and not lags[one]
        ]
        lagging = [one for one in lags if one in self.isr and lags[one]]
        joining = self._believed(joining, alone=not lagging)
        if not joining and not lagging:
            return None
        members = [one for one in (*self.isr, *joining) if one not in lagging]
        self._pending = Proposal(
            self._leader_epoch,
            self._isr_epoch,
            tuple([(one, self._incarnations.get(one, "")) for one in members]),
        )
        self._joining = tuple(joining)
        self._count()
        return self._pending

    def _believed(self, joining: list[int], *, alone: bool) -> list[int]:
        """Choose which replicas to propose together: a refused one must not keep the others out.

        If there is nothing else to propose, replicas of a refused proposal are tried alone, in
        turn.
        """
        believed = [one for one in joining if one not in self._doubted]
        if not believed and alone:
            for one in tuple(self._doubted):
                if one in joining:
                    self._doubted[one] = self._doubted.pop(one)
                    return [one]
        return believed

    def is_settled(self, log_end_offset: int) -> bool:
        """Whether all replicas are in sync and caught up, and no proposal is pending."""
        return self._pending is None and all(
            state.log_end_offset == log_end_offset and one in self.isr
            for one, state in self._followers.items()
        )
