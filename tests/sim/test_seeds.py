"""Whole clusters under faults of every kind. Each seed is a different history."""

from __future__ import annotations

import pytest

from raylog.simulation.kinds import Kind
from raylog.simulation.properties import Property
from raylog.simulation.run import run_seed
from tests.sim.properties import (
    OF_CLIENTS,
    OF_DISASTERS,
    OF_GROUPS,
    OF_RETENTION,
    OF_TRANSACTIONS,
)
from tests.sim.seeds import first_seeds, never_taken, passed, traces_of

SEEDS = 120
RARE = {Property.REFUSED_ABSENT, Property.LAGGARDS_STAY_OUT, Property.FLUSHED_KEPT}
"""Not checked in every few seeds."""
OF_OTHERS = OF_TRANSACTIONS | OF_GROUPS | OF_RETENTION | OF_DISASTERS | OF_CLIENTS
"""Checked in seeds of other kinds."""


@pytest.mark.parametrize("first", first_seeds(Kind.PLAIN, SEEDS))
def test_every_property_holds(first: int) -> None:
    reports = list(passed(Kind.PLAIN, first))
    assert all(report.acknowledged for report in reports), "a seed wrote nothing"
    checked = {name for report in reports for name, count in report.counts.items() if count}
    if len(reports) > 1:
        assert checked >= {one.name for one in set(Property) - OF_OTHERS - RARE}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_branch_is_taken() -> None:
    assert not never_taken(Kind.PLAIN, SEEDS)


def test_one_seed_gives_one_trace_whatever_the_hash_seed() -> None:
    (trace,) = traces_of(Kind.PLAIN)
    assert len(trace) == 64


def test_another_seed_gives_another_trace() -> None:
    assert run_seed(1).trace != run_seed(2).trace
