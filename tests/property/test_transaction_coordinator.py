"""Random producers, leaders, refusals and crashes around the transaction coordinator's machine.

No transaction is torn, no epoch goes back, and what a client was told is what became of it. A
failing example prints its seed: `play(seed, version)` of `tests.worlds.transaction.random_run`.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.transaction.random_run import play
from tests.worlds.transaction.shard import FIRST, SECOND

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
def test_transactions_of_version_2_are_never_torn(seed: int) -> None:
    play(seed, SECOND)


@given(SEEDS)
def test_transactions_of_version_1_are_never_torn(seed: int) -> None:
    play(seed, FIRST)


@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_random_runs_reach_what_they_are_to_test(version: int) -> None:
    runs = [play(seed, version) for seed in range(40)]
    assert sum(run.crashes for run in runs) > 30
    assert sum(run.refusals for run in runs) > 30
    assert sum(len(run.outcomes) for run in runs) > 60
    assert sum(committed for run in runs for committed in run.outcomes.values()) > 30
    several = [
        transaction
        for run in runs
        for transaction in run.outcomes
        if sum(transaction in leader.outcomes for leader in run.leaders) > 1
    ]
    assert len(several) > 20
