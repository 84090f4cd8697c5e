"""Clusters with deleted or compacted records: only what may go is gone."""

from __future__ import annotations

import pytest

from raylog.simulation.kinds import Kind
from tests.sim.properties import OF_RETENTION
from tests.sim.seeds import first_seeds, never_taken, passed

SEEDS = 25


@pytest.mark.parametrize("first", first_seeds(Kind.RETENTION, SEEDS))
def test_retention_deletes_only_expired_records(first: int) -> None:
    reports = list(passed(Kind.RETENTION, first))
    checked = {name for report in reports for name, count in report.counts.items() if count}
    if len(reports) > 1:
        assert checked >= {one.name for one in OF_RETENTION}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_branch_is_taken() -> None:
    assert not never_taken(Kind.RETENTION, SEEDS)
