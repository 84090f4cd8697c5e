"""Clusters under faults with members of groups: offsets and owners stay correct."""

from __future__ import annotations

import pytest

from raylog.simulation.kinds import Kind
from tests.sim.properties import OF_GROUPS
from tests.sim.seeds import first_seeds, never_taken, passed

SEEDS = 25


@pytest.mark.parametrize("first", first_seeds(Kind.GROUPS, SEEDS))
def test_offsets_and_owners_stay_right(first: int) -> None:
    reports = list(passed(Kind.GROUPS, first))
    checked = {name for report in reports for name, count in report.counts.items() if count}
    if len(reports) > 1:
        assert checked >= {one.name for one in OF_GROUPS}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_branch_is_taken() -> None:
    assert not never_taken(Kind.GROUPS, SEEDS)
