"""Mistakes planted into the real code are found: five by a seed known to, all with PLANTED=all."""

from __future__ import annotations

import os

import pytest

from raylog.actors.simulation.run import run_seed
from tests.sim.planted import PLANTS, planted

SEEDS_MAX = 2_000
KNOWN = {
    "truncates_to_high_watermark": 7,
    "high_watermark_off_by_one": 0,
    "forgets_producers_when_it_leads": 1,
    "trusts_a_crashed_broker": 1,
    "voters_do_not_sync": 5,
}
"""Mistake to a seed that finds it."""
WHICH = sorted(PLANTS) if os.environ.get("PLANTED") == "all" else sorted(KNOWN)


@pytest.mark.timeout(36_000 if len(WHICH) > len(KNOWN) else 120)
@pytest.mark.parametrize("name", WHICH)
def test_a_planted_mistake_is_found(name: str) -> None:
    around = KNOWN.get(name, 0)
    seeds = [around, *range(SEEDS_MAX)] if len(WHICH) > len(KNOWN) else range(around, around + 40)
    with planted(name):
        found = next((seed for seed in seeds if not run_seed(seed).passed), None)
    assert found is not None, f"{name} was not found within {SEEDS_MAX} seeds"


def test_there_are_mistakes_enough() -> None:
    assert len(PLANTS) >= 12
    assert set(KNOWN) <= set(PLANTS)
