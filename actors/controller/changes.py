"""How a partition changes when its in-sync replicas or its assignment do: one record, or none.

Kafka's rules (KIP-455, KIP-966), in this order:
1. A reassignment ends as soon as every replica that stays is in sync.
2. Who leaves while fewer than min.insync.replicas stay remains eligible: until that many are in
   sync again nothing is committed without him.
3. Leader is who is live and in sync, the present leader first, then in assigned order; with nobody
   in sync, who is eligible; with nobody eligible, the last known leader; where unclean election is
   allowed, any live replica. Who leads without having been in sync is alone in sync.
   A replica that lacks records which it had, because its log was damaged or lost, is none of the
   first three until it is in sync again or has them back; anybody else is preferred to it.
4. A replica that is taken away begins a new leader epoch, so that it is not heard any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from raylog.actors.metadata.image import PartitionState
from raylog.actors.metadata.records import NO_LEADER, PartitionChanged
from raylog.actors.ports import PartitionKey

Replicas = tuple[int, ...]


class Election(Enum):
    """How far an election goes."""

    ONLINE = "online"
    """A leader is kept; where there is none, somebody in sync or eligible leads."""
    PREFERRED = "preferred"
    """The same, but the first assigned replica comes before the present leader."""
    UNCLEAN = "unclean"
    """Rather somebody who may lack records than nobody."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for the elections of one topic."""

    min_isr: int
    """min.insync.replicas in force."""
    uses_elr: bool
    """Whether eligible.leader.replicas.version is finalized."""
    unclean: bool
    """unclean.leader.election.enable in force."""

    @property
    def election(self) -> Election:
        """The election that takes place by itself."""
        return Election.UNCLEAN if self.unclean else Election.ONLINE


class PartitionChange:
    """A change in the making: set what is to be different, then ask for the record."""

    def __init__(
        self,
        key: PartitionKey,
        state: PartitionState,
        rules: Rules,
        may_lead: Callable[[int], bool],
        election: Election,
    ) -> None:
        self._key = key
        self._state = state
        self._rules = rules
        self._may_lead = may_lead
        self._election = election
        self.isr = state.isr
        self.replicas = state.replicas
        self.adding = state.adding_replicas
        self.removing = state.removing_replicas
        self.crashed: Replicas = ()
        """Replicas that may have lost what they had: not eligible."""
        self.lacking = state.lacking
        """Replicas that have lost records: they neither stay in sync nor lead as the last known.

        One that has them back, its directory restored, may again.
        """
        self.incarnations: Mapping[int, str] = {}
        """Openings of logs that count from now on."""
        self.renews_epoch = False
        """Whether the leader begins a new epoch even if it stays."""
        self._elr = state.elr

    def record(self) -> PartitionChanged | None:
        """The record of all that changes; None if nothing does."""
        state = self._state
        self._end_reassignment()
        self._elr = self._eligible()
        leader = self._elected()
        if not self._rules.uses_elr and not self.isr:
            self.isr = without(state.isr, *self.lacking)  # its partition waits for the last one
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
        if not self._rules.uses_elr or self._has_enough():
            return ()
        lost = {*self.crashed, *self.lacking}
        candidates = {*self._state.isr, *self._state.elr} - {*self.isr, *lost}
        return tuple(one for one in self.replicas if one in candidates)

    def _has_enough(self) -> bool:
        return len(self.isr) >= min(self._rules.min_isr, len(self.replicas))

    def _elected(self) -> int:
        """Who leads; whoever does is in sync."""
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
        """Somebody who may lack records."""
        if self._rules.uses_elr and not self.isr and not self._elr:
            for one in without(self._state.last_known_elr, *self.lacking):
                if one in self.replicas and self._may_lead(one):
                    return one
        if self._election is not Election.UNCLEAN:
            return NO_LEADER
        leader = self._first(without(self.replicas, *self.lacking))
        return self._first(self.replicas) if leader == NO_LEADER else leader

    def _last_known(self, leader: int) -> Replicas:
        """Remember who led last while nobody is in sync, be it that he lacks records for now."""
        if self.isr or leader != NO_LEADER:
            return ()
        if self._state.leader == NO_LEADER:
            return self._state.last_known_elr or self._state.isr[:1]
        return (self._state.leader,)


def _new(old: Replicas, new: Replicas) -> Replicas | None:
    return None if new == old else new


def without(replicas: Replicas, *gone: int) -> Replicas:
    """The replicas that are not gone, in their order."""
    return tuple(one for one in replicas if one not in gone)
