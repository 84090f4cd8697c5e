"""A streaming query with an exactly-once sink on a cluster under faults: each row once, none left
out, though drivers die, checkpoints are restored and weeks pass."""

from __future__ import annotations

from functools import cache

import pytest

from raylog.actors.simulation.properties import Property
from raylog.actors.simulation.run import Report, run_seed
from tests.sim.planted_sinks import PLANTS
from tests.sim.planting import planted
from tests.sim.sinks.scenario import SinkSimulation

SEEDS = 10
A_TEST = 5
SEARCHED = 30
"""Seeds in which a planted mistake is looked for."""


@cache
def report_of(seed: int) -> Report:
    return run_seed(seed, simulation=SinkSimulation)


def told(seed: int, word: str) -> int:
    """A figure of a seed's last word, such as how many weeks passed."""
    last = report_of(seed).timeline[-1].replace(",", "").split()
    return int(last[last.index(word) - 1])


@pytest.mark.parametrize("first", range(0, SEEDS, A_TEST))
def test_each_row_is_written_once(first: int) -> None:
    for seed in range(first, first + A_TEST):
        report = report_of(seed)
        assert report.passed, f"seed {seed}: {report.violations[:3]}"
        assert report.counts[Property.OFFSETS_WITH_OUTPUT.name] > 0


@pytest.mark.parametrize("word", ["rows", "mismatches", "weeks"])
def test_queries_meet_what_they_are_to_meet(word: str) -> None:
    assert sum(told(seed, word) for seed in range(SEEDS)) > 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_mistake_of_sinks_is_found(name: str) -> None:
    with planted(PLANTS[name]):
        found = (run_seed(seed, simulation=SinkSimulation) for seed in range(SEARCHED))
        assert any(not report.passed for report in found), "no seed finds it"
