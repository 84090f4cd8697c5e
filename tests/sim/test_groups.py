"""Clusters under faults whose clients are members of groups: offsets and owners stay right."""

from __future__ import annotations

import pytest

from raylog.actors.simulation.kinds import Kind
from raylog.actors.simulation.properties import OF_GROUPS
from tests.sim.seeds import first_seeds, never_taken, passed

SEEDS = 25


@pytest.mark.parametrize("first", first_seeds(Kind.GROUPS, SEEDS))
def test_offsets_and_owners_stay_right(first: int) -> None:
    reports = list(passed(Kind.GROUPS, first))
    checked = {name for report in reports for name, count in report.counts.items() if count}
    if len(reports) > 1:
        assert checked >= {one.name for one in OF_GROUPS}


@pytest.mark.timeout(900)
def test_every_branch_is_taken() -> None:
    assert not never_taken(Kind.GROUPS, SEEDS)
