"""Clusters under faults with transactional clients: no transaction is visible in part."""

from __future__ import annotations

import pytest

from raylog.simulation.kinds import Kind
from raylog.simulation.run import run_seed
from raylog.simulation.scenario import Plan
from tests.sim.properties import OF_TRANSACTIONS
from tests.sim.seeds import first_seeds, never_taken, passed, traces_of

SEEDS = 40
PLAN = Plan(kind=Kind.TRANSACTIONS)


@pytest.mark.parametrize("first", first_seeds(Kind.TRANSACTIONS, SEEDS))
def test_transactions_are_atomic(first: int) -> None:
    reports = list(passed(Kind.TRANSACTIONS, first))
    checked = {name for report in reports for name, count in report.counts.items() if count}
    if len(reports) > 1:
        assert sum(report.committed for report in reports) > 0, "nothing was committed"
        assert checked >= {one.name for one in OF_TRANSACTIONS}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_branch_is_taken() -> None:
    assert not never_taken(Kind.TRANSACTIONS, SEEDS)


@pytest.mark.long
def test_one_seed_gives_one_trace_whatever_the_hash_seed() -> None:
    (trace,) = traces_of(Kind.TRANSACTIONS)
    assert len(trace) == 64


def test_transactional_seeds_are_others() -> None:
    assert run_seed(1, PLAN).trace != run_seed(1).trace
