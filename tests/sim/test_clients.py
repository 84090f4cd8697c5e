"""Clusters under faults with the real clients: each delivery guarantee holds."""

from __future__ import annotations

import pytest

from raylog.simulation.kinds import Kind
from raylog.simulation.properties import Property
from tests.sim.properties import OF_CLIENTS
from tests.sim.seeds import first_seeds, never_taken, passed, traces_of

SEEDS = 15
OF_COPIES = {Property.OFFSETS_WITH_OUTPUT, Property.COMMITTED_VISIBLE, Property.ABORTED_HIDDEN}


@pytest.mark.parametrize("first", first_seeds(Kind.CLIENTS, SEEDS))
def test_promises_are_kept(first: int) -> None:
    reports = list(passed(Kind.CLIENTS, first))
    checked = {name for report in reports for name, count in report.counts.items() if count}
    if len(reports) > 1:
        assert checked >= {one.name for one in OF_CLIENTS | OF_COPIES}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_branch_is_taken() -> None:
    assert not never_taken(Kind.CLIENTS, SEEDS)


@pytest.mark.long
def test_one_seed_gives_one_trace_whatever_the_hash_seed() -> None:
    (trace,) = traces_of(Kind.CLIENTS)
    assert len(trace) == 64
