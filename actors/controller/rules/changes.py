"""Changes of a partition's ISR or assignment, each as one record or none.

Kafka's rules (KIP-455, KIP-966), in this order:
1. A reassignment ends as soon as every replica that stays is in sync.
2. A replica that leaves the ISR while fewer than min.insync.replicas stay becomes eligible: nothing
   is committed without it until that many are in sync again.
3. The leader is a replica that is live and in sync: the current leader first, then in assignment
   order. If none is in sync, it is an eligible one; if none is eligible, the last known leader; and
   if unclean election is allowed, any live replica. A leader elected while not in sync becomes the
   only member of the ISR. A replica that lacks records which it had, because its log was damaged or
   lost, counts for none of the first three until it is in sync again or has the records back. In an
   unclean election every other replica is preferred to it.
4. The removal of a replica starts a new leader epoch, so that its fetches no longer count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from raylog.actors.common_messages import PartitionKey
from raylog.actors.metadata.image import PartitionState
from raylog.actors.metadata.records import NO_LEADER, PartitionChanged

Replicas = tuple[int, ...]


class Election(Enum):
    """The replicas that an election may choose."""

    ONLINE = "online"
    """Keep the leader; if there is none, elect a replica that is in sync or eligible."""
    PREFERRED = "preferred"
    """As ONLINE, but prefer the first assigned replica to the current leader."""
    UNCLEAN = "unclean"
    """As ONLINE, but if none is eligible, elect a replica that may lack records."""


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """The settings of one topic that decide elections."""

    min_isr: int
    """Effective min.insync.replicas."""
    uses_elr: bool
    """Whether the feature eligible.leader.replicas.version is enabled."""
    unclean: bool
    """Effective unclean.leader.election.enable."""

    @property
    def election(self) -> Election:
        """The kind of election that takes place without a request."""
        return Election.UNCLEAN if self.unclean else Election.ONLINE


class PartitionChange:
    """A change being prepared: set what should differ, then read `record`."""

    def __init__(
        self,
        key: PartitionKey,
        state: PartitionState,
        settings: ElectionSettings,
        may_lead: Callable[[int], bool],
        election: Election,
    ) -> None:
        self._key = key
        self._state = state
        self._settings = settings
        self._may_lead = may_lead
        self._election = election
        self.isr = state.isr
        self.replicas = state.replicas
        self.adding = state.adding_replicas
        self.removing = state.removing_replicas
        self.crashed: Replicas = ()
        """Replicas that may have lost records, and so are not eligible."""
        self.lacking = state.lacking
        """Replicas that have lost records: they neither stay in sync nor lead as the last known
        leader.

        A replica whose directory was restored has the records back, and may do both.
        """
        self.incarnations: Mapping[int, str] = {}
        """New incarnations of logs."""
        self.renews_epoch = False
        """Whether the leader starts a new epoch even if it stays the same."""
        self._elr = state.elr

    def record(self) -> PartitionChanged | None:
        """The record of all changes; None if nothing changes."""
        state = self._state
        self._end_reassignment()
        self._elr = self._eligible()
        leader = self._elected()
        if not self._settings.uses_elr and not self.isr:
            self.isr = without(state.isr, *self.lacking)  # the partition waits for the last of them
        last_known = self._last_known(leader)
        self.lacking = tuple(
            [one for one in self.lacking if one in without(self.replicas, *self.isr)]
        )
        drops = not set(state.replicas) <= set(self.replicas)
        renewed = leader != state.leader or self.renews_epoch or drops
        record = PartitionChanged(
            *self._key,
            leader=leader if renewed else None,
            isr=_new(state.isr, self.isr),
            replicas=_new(state.replicas, self.replicas),
            incarnations=self.incarnations or None,
            adding_replicas=_new(state.adding_replicas, self.adding),
            removing_replicas=_new(state.removing_replicas, self.removing),
            elr=_new(state.elr, self._elr),
            last_known_elr=_new(state.last_known_elr, last_known),
            lacking=_new(state.lacking, self.lacking),
        )
        return None if record == PartitionChanged(*self._key) else record

    def _end_reassignment(self) -> None:
        if not (self.adding or self.removing):
            return
        isr = without(self.isr, *self.removing)
        replicas = without(self.replicas, *self.removing)
        if replicas and set(replicas) <= set(isr):
            self.isr, self.replicas, self.adding, self.removing = isr, replicas, (), ()

    def _eligible(self) -> Replicas:
        if not self._settings.uses_elr or self._has_enough():
            return ()
        lost = {*self.crashed, *self.lacking}
        candidates = {*self._state.isr, *self._state.elr} - {*self.isr, *lost}
        return tuple(one for one in self.replicas if one in candidates)

    def _has_enough(self) -> bool:
        return len(self.isr) >= min(self._settings.min_isr, len(self.replicas))

    def _elected(self) -> int:
        """Elect the leader, and add it to the ISR."""
        clean = self.isr or self._elr
        leader = self._first(clean)
        if leader == NO_LEADER:
            clean = ()
            leader = self._last_resort()
        if leader != NO_LEADER and leader not in self.isr:
            self.isr = (leader,)
            self._elr = () if self._has_enough() else without(self._elr if clean else (), leader)
        return leader

    def _first(self, candidates: Replicas) -> int:
        present: Replicas = () if self._state.leader == NO_LEADER else (self._state.leader,)
        preferred = self.replicas[:1] if self._election is Election.PREFERRED else ()
        for one in (*preferred, *present, *self.replicas):
            if one in candidates and self._may_lead(one):
                return one
        return NO_LEADER

    def _last_resort(self) -> int:
        """Elect a replica that may lack records."""
        if self._settings.uses_elr and not self.isr and not self._elr:
            for one in without(self._state.last_known_elr, *self.lacking):
                if one in self.replicas and self._may_lead(one):
                    return one
        if self._election is not Election.UNCLEAN:
            return NO_LEADER
        leader = self._first(without(self.replicas, *self.lacking))
        return self._first(self.replicas) if leader == NO_LEADER else leader

    def _last_known(self, leader: int) -> Replicas:
        """Return the last leader while no replica is in sync, even if it lacks records."""
        if self.isr or leader != NO_LEADER:
            return ()
        if self._state.leader == NO_LEADER:
            return self._state.last_known_elr or self._state.isr[:1]
        return (self._state.leader,)


def _new(old: Replicas, new: Replicas) -> Replicas | None:
    return None if new == old else new


def without(replicas: Replicas, *gone: int) -> Replicas:
    """Return the replicas without those that are gone, in order."""
    return tuple(one for one in replicas if one not in gone)
