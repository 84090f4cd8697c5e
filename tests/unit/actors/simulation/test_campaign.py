"""A campaign's tally goes on where the last one stopped, and keeps to one kind of seeds."""

from pathlib import Path

import pytest

from raylog.actors.simulation.campaign import Tally, load, save
from raylog.actors.simulation.run import Report


def test_the_kinds_of_seeds_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    tally = load(path, transactions=True)
    tally.add(Report(7, committed=3, aborted=1, violations=["NOT_TORN: x"]), 0.5)
    save(tally, path)
    assert load(path, transactions=True) == tally
    assert tally.next_seed == 8
    lines = list(tally.lines())
    assert lines[1] == "3 transactions told to be committed, 1 aborted"
    assert lines[2] == "  raylog sim --transactions --seed 7    # NOT_TORN: x"
    with pytest.raises(ValueError, match="another kind"):
        load(path)


def test_seeds_without_transactions_are_named_as_ever() -> None:
    assert Tally().reproduced(7, "x") == "raylog sim --seed 7    # x"
