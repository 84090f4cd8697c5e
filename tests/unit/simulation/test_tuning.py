"""Limits of concurrent work: simulations use small ones."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import raylog.actors
import raylog.storage
from raylog.actors.broker.rules import reconcile_queue
from raylog.actors.broker.rules.effects import Effect
from raylog.simulation.run import run_seed
from raylog.simulation.scenario import Plan
from raylog.simulation.tuning import LIMITS, draw_limits, has_small_limits, tuned
from tests.sim.planting import planted, replace

ELSEWHERE = {
    "COMPACTED_AT_ONCE": "a setting",
    "LOSSES_AT_ONCE": "how often a start is tried again without a pause",
    "CUT_OFF_AT_ONCE": "of gateways, which simulations have none of",
    "ASKED_AT_ONCE": "the same",
}


def test_every_limit_of_what_is_done_at_once_is_small_in_some_seeds() -> None:
    """A new one has to be added to the table, or it is met by nobody before it is in use."""
    folders = [Path(one.__file__ or "").parent for one in (raylog.actors, raylog.storage)]
    found = {
        name
        for folder in folders
        for file in folder.resolve().rglob("*.py")
        for name in re.findall(r"^(\w+_AT_ONCE) = ", file.read_text(), re.MULTILINE)
    }
    assert found - ELSEWHERE.keys() == {one.name for one in LIMITS if one.name.endswith("_AT_ONCE")}


def test_small_limits_are_below_the_usual_ones() -> None:
    for limit in LIMITS:
        usual = {getattr(module, limit.name) for module in limit.modules}
        assert len(usual) == 1, f"{limit.name} is one constant, wherever it was imported"
        assert max(limit.small) < usual.pop(), limit.name


def test_two_of_eight_seeds_use_small_limits() -> None:
    assert [seed for seed in range(16) if has_small_limits(seed)] == [6, 7, 14, 15]
    drawn = [draw_limits(Random(seed)) for seed in range(20)]
    assert {limit for one in drawn for limit in one} == set(LIMITS)
    assert all(len(one) < len(LIMITS) for one in drawn)
    assert drawn[3] == draw_limits(Random(3))


def test_small_limits_last_for_one_simulation() -> None:
    usual = reconcile_queue.RECONCILED_AT_ONCE
    seen = set()
    for seed in range(10):
        with tuned(Random(seed), small_limits=True):
            seen.add(reconcile_queue.RECONCILED_AT_ONCE)
        with tuned(Random(seed), small_limits=False):
            assert usual == reconcile_queue.RECONCILED_AT_ONCE
    assert seen == {usual, 1, 3}
    assert usual == reconcile_queue.RECONCILED_AT_ONCE


def _forgets(keys: reconcile_queue.ReconcileQueue) -> list[Effect]:
    """A broker opens the partitions of one turn and none of the next."""
    keys._keys.clear()
    return []


def test_a_mistake_about_the_next_turn_is_found_by_them() -> None:
    with planted(lambda stack: replace(stack, reconcile_queue.ReconcileQueue, "rest", _forgets)):
        assert run_seed(0, Plan(fault_s=1.0, small_limits=False)).passed
        assert not run_seed(0, Plan(fault_s=1.0, small_limits=True)).passed
