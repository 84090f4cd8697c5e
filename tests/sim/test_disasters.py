"""Clusters that lose more than any guarantee covers: nothing gets worse, and all comes back."""

from __future__ import annotations

import pytest

from raylog.simulation.kinds import Kind
from tests.sim.properties import OF_DISASTERS
from tests.sim.seeds import first_seeds, never_taken, passed, report_of

SEEDS = 25


@pytest.mark.parametrize("first", first_seeds(Kind.DISASTERS, SEEDS))
def test_no_property_breaks_in_disasters(first: int) -> None:
    assert all(report.acknowledged for report in passed(Kind.DISASTERS, first))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_disaster_property_is_checked() -> None:
    reports = [report_of(Kind.DISASTERS, seed) for seed in range(SEEDS)]
    checked = {name for report in reports for name, count in report.counts.items() if count}
    assert checked >= {one.name for one in OF_DISASTERS}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_branch_is_taken() -> None:
    assert not never_taken(Kind.DISASTERS, SEEDS)
