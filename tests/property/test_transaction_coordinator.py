"""Random producers, leaders, refusals and crashes around the transaction coordinator's machine.

No transaction is torn, no epoch goes back, and what a client was told is what became of it. A
failing example prints its seed: `play(seed, version)` of `tests.support.transaction_game`.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.transaction_game import play
from tests.support.transactions import FIRST, SECOND

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_transactions_of_version_2_are_never_torn(seed: int) -> None:
    play(seed, SECOND)


@settings(max_examples=75, deadline=None)
@given(SEEDS)
def test_transactions_of_version_1_are_never_torn(seed: int) -> None:
    play(seed, FIRST)


@pytest.mark.parametrize("version", [FIRST, SECOND])
def test_the_games_are_worth_playing(version: int) -> None:
    games = [play(seed, version) for seed in range(40)]
    assert sum(game.crashes for game in games) > 30
    assert sum(game.refusals for game in games) > 30
    assert sum(len(game.told) for game in games) > 60
    assert sum(committed for game in games for committed in game.told.values()) > 30
    several = [
        transaction
        for game in games
        for transaction in game.told
        if sum(transaction in leader.outcomes for leader in game.leaders) > 1
    ]
    assert len(several) > 20
