"""Clusters whose records are deleted by age or by request, or compacted: what may go goes, only."""

from __future__ import annotations

import pytest

from raylog.actors.simulation.kinds import Kind
from raylog.actors.simulation.properties import OF_RETENTION
from tests.sim.seeds import first_seeds, never_taken, passed

SEEDS = 25


@pytest.mark.parametrize("first", first_seeds(Kind.RETENTION, SEEDS))
def test_only_what_may_go_is_gone(first: int) -> None:
    reports = list(passed(Kind.RETENTION, first))
    checked = {name for report in reports for name, count in report.counts.items() if count}
    if len(reports) > 1:
        assert checked >= {one.name for one in OF_RETENTION}


@pytest.mark.timeout(900)
def test_every_branch_is_taken() -> None:
    assert not never_taken(Kind.RETENTION, SEEDS)
