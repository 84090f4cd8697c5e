"""A streaming query with an exactly-once sink under faults: each row is there once.

Drivers die, checkpoints are restored and weeks pass.
"""

from __future__ import annotations

from functools import cache

import pytest

from raylog.simulation.properties import Property
from raylog.simulation.run import Report, run_seed
from tests.sim.planted_sinks import PLANTS
from tests.sim.planting import planted
from tests.sim.seeds import SEEDS_A_TEST, share_of
from tests.sim.sinks.scenario import SinkSimulation

SEEDS = 10
SEARCHED = 30
"""The number of seeds in which to search for a planted mistake."""


@cache
def report_of(seed: int) -> Report:
    return run_seed(seed, simulation=SinkSimulation)


def count_of(seed: int, word: str) -> int:
    """A number in a seed's final text, such as how many weeks passed."""
    last = report_of(seed).timeline[-1].replace(",", "").split()
    return int(last[last.index(word) - 1])


@pytest.mark.parametrize("first", share_of(SEEDS))
def test_each_row_is_written_once(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        report = report_of(seed)
        assert report.passed, f"seed {seed}: {report.violations[:3]}"
        assert report.counts[Property.OFFSETS_WITH_OUTPUT.name] > 0


@pytest.mark.long
@pytest.mark.parametrize("word", ["rows", "mismatches", "weeks"])
def test_queries_meet_what_they_are_to_meet(word: str) -> None:
    assert sum(count_of(seed, word) for seed in range(SEEDS)) > 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_mistake_of_sinks_is_found(name: str) -> None:
    with planted(PLANTS[name]):
        found = (run_seed(seed, simulation=SinkSimulation) for seed in range(SEARCHED))
        assert any(not report.passed for report in found), "no seed finds it"
