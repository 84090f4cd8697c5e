"""Clusters that lose more than any guarantee covers: nothing is made worse, and all comes back."""

from __future__ import annotations

import pytest

from raylog.actors.simulation.kinds import Kind
from raylog.actors.simulation.properties import OF_DISASTERS
from tests.sim.seeds import first_seeds, never_taken, passed, report_of

SEEDS = 25


@pytest.mark.parametrize("first", first_seeds(Kind.DISASTERS, SEEDS))
def test_nothing_is_made_worse(first: int) -> None:
    assert all(report.acknowledged for report in passed(Kind.DISASTERS, first))


@pytest.mark.timeout(900)
def test_every_property_is_looked_at() -> None:
    reports = [report_of(Kind.DISASTERS, seed) for seed in range(SEEDS)]
    checked = {name for report in reports for name, count in report.counts.items() if count}
    assert checked >= {one.name for one in OF_DISASTERS}


@pytest.mark.timeout(900)
def test_every_branch_is_taken() -> None:
    assert not never_taken(Kind.DISASTERS, SEEDS)
