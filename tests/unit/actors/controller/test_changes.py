"""What holds for every change of a partition, for any leaving, live and electable replicas."""

from __future__ import annotations

import random
from functools import cache

from raylog.actors.common_messages import TopicId
from raylog.actors.controller.rules.changes import Election, ElectionSettings, PartitionChange
from raylog.actors.metadata.image import PartitionState
from raylog.actors.metadata.records import NO_LEADER

KEY = (TopicId(b"t" * 16), 0)
REPLICAS = (0, 1, 2)
GONE = 7
"""Was a replica once."""
CASES = 4_000


class Case:
    """A partition in any possible state, a replica of it that may leave, and the outcome."""

    def __init__(self, chance: random.Random) -> None:
        self.settings = ElectionSettings(
            chance.randint(1, 4), chance.random() < 0.7, chance.random() < 0.3
        )
        kinds = ["isr", "elr", "lacking", "out"] if self.settings.uses_elr else ["isr", "out"]
        stands = {one: chance.choice(kinds) for one in REPLICAS}
        isr = tuple(one for one in REPLICAS if stands[one] == "isr")
        if not self.settings.uses_elr:
            isr = isr or (chance.choice(REPLICAS),)
        leader = chance.choice([NO_LEADER, *isr]) if isr else NO_LEADER
        leaderless = leader == NO_LEADER
        self.state = PartitionState(
            REPLICAS,
            isr,
            leader,
            3,
            5,
            {},
            elr=tuple(one for one in REPLICAS if stands[one] == "elr"),
            lacking=tuple(one for one in REPLICAS if stands[one] == "lacking"),
            last_known_elr=chance.choice([(), (1,), (GONE,), (GONE, 2)]) if leaderless else (),
        )
        self.live = {one for one in (*REPLICAS, GONE) if chance.random() < 0.6}
        self.leaving = chance.choice([None, *REPLICAS])
        self.crashed = chance.random() < 0.5
        self.election = chance.choice(list(Election))

    def changed(self) -> PartitionState:
        """The partition afterwards."""
        live = self.live - {self.leaving}
        change = PartitionChange(KEY, self.state, self.settings, live.__contains__, self.election)
        if self.leaving is not None:
            change.isr = tuple(one for one in self.state.isr if one != self.leaving)
            change.crashed = (self.leaving,) if self.crashed else ()
        self.asked_isr = change.isr
        record = change.record()
        return self.state if record is None else self.state.changed(record)

    def __repr__(self) -> str:
        return f"{self.settings} {self.state} {self.live} -{self.leaving} {self.election}"


@cache
def cases() -> list[tuple[Case, PartitionState]]:
    chance = random.Random(1)
    made = [Case(chance) for _ in range(CASES)]
    return [(one, one.changed()) for one in made]


def test_leader_is_live_and_in_isr() -> None:
    for case, after in cases():
        if after.leader != NO_LEADER:
            assert after.leader in case.live - {case.leaving}, case
            assert after.leader in after.isr, case
            assert set(after.isr) <= set(REPLICAS), case


def test_clean_candidates_are_elected_before_unclean_ones() -> None:
    for case, after in cases():
        live = case.live - {case.leaving}
        lost = {case.leaving} if case.crashed else set()
        elr = {*case.state.isr, *case.state.elr} - {*case.asked_isr, *lost}
        clean = set(case.asked_isr) or (elr if case.settings.uses_elr else set())
        if clean & live:
            assert after.leader in clean, case
            if case.election is not Election.PREFERRED and case.state.leader in clean & live:
                assert after.leader == case.state.leader, case
            if case.election is Election.PREFERRED and REPLICAS[0] in clean & live:
                assert after.leader == REPLICAS[0], case
        elif case.election is Election.UNCLEAN and live & set(REPLICAS):
            assert after.leader != NO_LEADER, case
            sound = (live & set(REPLICAS)) - set(case.state.lacking)
            assert not sound or after.leader in sound, case
        elif after.leader != NO_LEADER:
            assert after.leader in case.state.last_known_elr, case


def test_elr_is_kept_only_while_isr_is_below_min_isr() -> None:
    for case, after in cases():
        assert set(after.elr) <= set(REPLICAS) - set(after.isr), case
        enough = len(after.isr) >= min(case.settings.min_isr, len(REPLICAS))
        if enough or not case.settings.uses_elr:
            assert after.elr == (), case
            continue
        lost = {case.leaving} if case.crashed else set()
        eligible = {*case.state.isr, *case.state.elr} - lost
        was_clean = after.leader in {NO_LEADER, *(case.asked_isr or eligible)}
        assert set(after.elr) == (eligible - set(after.isr) if was_clean else set()), case


def test_the_last_leader_is_remembered_while_nobody_leads_or_is_in_sync() -> None:
    for case, after in cases():
        before = case.state
        if after.isr or after.leader != NO_LEADER:
            assert after.last_known_elr == (), case
        elif before.leader != NO_LEADER:
            assert after.last_known_elr == (before.leader,), case
        elif before.last_known_elr:
            assert after.last_known_elr == before.last_known_elr, case
        else:
            assert after.last_known_elr == before.isr[:1], case


def test_without_eligible_replicas_the_last_one_in_sync_stays_so() -> None:
    for case, after in cases():
        if not case.settings.uses_elr:
            assert after.isr, case


def test_every_outcome_is_among_the_cases() -> None:
    """Else the rules above would hold of nothing."""
    outcomes = {
        (after.leader == NO_LEADER, bool(after.isr), bool(after.elr), bool(after.last_known_elr))
        for _, after in cases()
    }
    led = {(False, True, elr, False) for elr in (True, False)}
    waits = {(True, isr, elr, not isr) for isr in (True, False) for elr in (True, False)}
    assert outcomes >= led | waits
