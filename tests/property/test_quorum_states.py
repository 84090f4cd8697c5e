"""Every order of events in a small quorum: what was committed once stays committed.

`make test` explores all states of most kinds, with little freedom. `make quorum-states` explores a
quorum in which anything may happen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from raylog.actors.broker.rules.voter import Ready as VoterReady
from raylog.actors.broker.rules.voter import VoterRules
from raylog.actors.controller.rules import quorum
from raylog.actors.controller.rules.quorum import QuorumRules, Ready
from raylog.actors.metadata.voting import VoterLog, VoterState
from tests.sim.planted import voters_do_not_look_back
from tests.worlds.quorum import Budget, Violation, World, differing, founded, search

FEW = ((0, 1), (1, 2))
"""The voters that each controller reaches: two majorities with one voter in common."""
MOST = int(os.environ.get("RAYLOG_QUORUM_STATES", "30000"))
CALM = Budget(terms=2, entries=1, crashes=0, lost=0, late=0)
BUDGETS = {
    "two controllers": CALM,
    "a voter loses power": CALM._replace(crashes=1),
    "a message is lost": CALM._replace(lost=1),
    "a request arrives late": CALM._replace(late=1),
    "a request arrives twice": CALM._replace(twice=1),
    "leases run out": CALM._replace(leases=1),
}


@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(budget, id=name, marks=() if budget == CALM else pytest.mark.long)
        for name, budget in BUDGETS.items()
    ],
)
def test_committed_records_stay_committed_in_all_states(budget: Budget) -> None:
    states, is_whole = search(founded(budget, FEW), MOST)
    assert is_whole or states == MOST
    assert states > 100


def any_voter_is_a_majority(stack: ExitStack) -> None:
    """One promise wins an epoch, and one copy commits a record."""
    stack.enter_context(patch.object(quorum, "is_majority", lambda votes, _: votes > 0))


def what_is_adopted_counts(stack: ExitStack) -> None:
    """A new controller commits older entries before one of its own (Raft, figure 8)."""
    adopt = QuorumRules._adopt

    def mistaken(rules: QuorumRules, got: VoterLog, now_ms: float) -> Ready:
        ready = adopt(rules, got, now_ms)
        rules.committed = rules.log.next_offset
        return ready

    stack.enter_context(patch.object(QuorumRules, "_adopt", mistaken))


def the_shortest_log_is_adopted(stack: ExitStack) -> None:
    """A controller continues from the shortest copy."""
    worst = property(lambda state: (-state.last_epoch, -state.next_offset))
    stack.enter_context(patch.object(VoterState, "recency", worst))


def voters_take_any_epoch(stack: ExitStack) -> None:
    """A deposed controller may still write."""
    stack.enter_context(patch.object(VoterRules, "require_current", lambda *_: None))
    stack.enter_context(patch.object(VoterRules, "_follow", lambda *_: ()))


def voters_promise_an_epoch_twice(stack: ExitStack) -> None:
    """Two controllers may win the same epoch."""
    new_epoch = VoterRules.new_epoch

    def mistaken(rules: VoterRules, asked: object, now_ms: float) -> VoterReady:
        promised, rules.copy.promised_epoch = rules.copy.promised_epoch, 1
        try:
            return new_epoch(rules, asked, now_ms)  # type: ignore[arg-type]  # a mistake
        finally:
            rules.copy.promised_epoch = promised

    stack.enter_context(patch.object(VoterRules, "new_epoch", mistaken))


ONE_MORE = CALM._replace(terms=1)
MISTAKES: dict[str, tuple[Callable[[ExitStack], None], World]] = {
    "any voter is a majority": (any_voter_is_a_majority, founded(CALM)),
    "what is adopted counts": (what_is_adopted_counts, differing(CALM, 2, 2, 3)),
    "the shortest log is adopted": (
        the_shortest_log_is_adopted,
        founded(CALM._replace(lost=1), FEW),
    ),
    "voters take any epoch": (voters_take_any_epoch, founded(CALM._replace(entries=2), FEW)),
    "voters promise an epoch twice": (voters_promise_an_epoch_twice, founded(CALM)),
    "voters do not look back": (voters_do_not_look_back, differing(ONE_MORE, 2, 3, 0)),
}
DEEP = {"the shortest log is adopted", "voters take any epoch"}
"""Mistakes that only searches of thousands of states find."""


@pytest.mark.parametrize(
    ("plant", "start"),
    [
        pytest.param(*mistake, id=name, marks=pytest.mark.long if name in DEEP else ())
        for name, mistake in MISTAKES.items()
    ],
)
def test_a_mistake_in_the_rules_is_found(plant: Callable[[ExitStack], None], start: World) -> None:
    with ExitStack() as stack:
        plant(stack)
        with pytest.raises((Violation, AssertionError)):
            search(start, MOST)


@pytest.mark.parametrize("epochs", [(2, 2, 3), (2, 3, 0), (0, 2, 3)])
def test_logs_that_differ_become_one(epochs: tuple[int, int, int]) -> None:
    states, is_whole = search(differing(ONE_MORE, *epochs), MOST)
    assert is_whole
    assert states > 100


def test_voters_that_answer_before_they_have_synced_are_found() -> None:
    world: World = founded(CALM._replace(crashes=1), FEW)
    world.syncs = False
    with pytest.raises(Violation):
        search(world, MOST)
