"""Clusters under faults whose clients write in transactions: no transaction is ever torn."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from raylog.actors.simulation.properties import OF_TRANSACTIONS
from raylog.actors.simulation.run import run_seed
from raylog.actors.simulation.scenario import Plan

SEEDS_A_TEST = 5
ALL_SEEDS = 60
ONE_SEED = os.environ.get("TRANSACTIONS_SEED")
FIRST_SEEDS = [int(ONE_SEED)] if ONE_SEED else range(0, ALL_SEEDS, SEEDS_A_TEST)
PLAN = Plan(transactions=True)


@pytest.mark.parametrize("first", FIRST_SEEDS)
def test_no_transaction_is_torn(first: int) -> None:
    checked: set[str] = set()
    committed = 0
    for seed in range(first, first + (1 if ONE_SEED else SEEDS_A_TEST)):
        report = run_seed(seed, PLAN)
        assert report.passed, f"raylog sim --transactions --seed {seed}: {report.violations[:3]}"
        committed += report.committed
        checked.update(name for name, count in report.counts.items() if count)
    assert committed > 0, "nothing was committed"
    if not ONE_SEED:
        assert checked >= {one.name for one in OF_TRANSACTIONS}


def test_one_seed_gives_one_trace_whatever_the_hash_seed() -> None:
    code = (
        "from raylog.actors.simulation.run import run_seed;"
        "from raylog.actors.simulation.scenario import Plan;"
        "print(run_seed(3, Plan(transactions=True)).trace)"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(traces) == 1
    assert len(traces.pop().strip()) == 64


def test_transactional_seeds_are_others() -> None:
    assert run_seed(1, PLAN).trace != run_seed(1).trace
