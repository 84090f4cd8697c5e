"""A campaign's totals continue where the last one stopped, for one kind of seeds."""

from pathlib import Path

import pytest

from raylog.simulation.campaign import Tally, load, save
from raylog.simulation.kinds import Kind
from raylog.simulation.run import Report


def test_the_kinds_of_seeds_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    tally = load(path, Kind.TRANSACTIONS)
    tally.add(Report(7, committed=3, aborted=1, violations=["NOT_TORN: x"]), 0.5)
    save(tally, path)
    assert load(path, Kind.TRANSACTIONS) == tally
    assert tally.next_seed == 8
    lines = list(tally.lines())
    assert lines[1] == "3 transactions told to be committed, 1 aborted"
    assert lines[-1] == "  raylog sim --kind transactions --seed 7    # NOT_TORN: x"
    with pytest.raises(ValueError, match="not plain"):
        load(path)


def test_seeds_without_transactions_are_named_as_ever() -> None:
    assert Tally().reproduced(7, "x") == "raylog sim --seed 7    # x"


def test_branches_are_summed_up_and_those_never_taken_come_first() -> None:
    tally = Tally()
    tally.add(Report(0, branches={"rolls": 3, "strays": 0, "cuts": 1}), 0.1)
    tally.add(Report(1, branches={"rolls": 2, "strays": 0, "cuts": 0}), 0.1)
    assert tally.branches == {"rolls": [2, 5], "strays": [0, 0], "cuts": [1, 1]}
    assert [line.split() for line in tally.lines()][-3:] == [
        ["0", "0", "strays:", "NEVER", "TAKEN"],
        ["1", "1", "cuts"],
        ["2", "5", "rolls"],
    ]


def test_a_tally_of_an_older_campaign_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"next_seed": 5, "transactions": true, "checks": {"NOT_TORN": 2}}')
    tally = load(path, Kind.TRANSACTIONS)
    assert (tally.next_seed, tally.kind, tally.branches) == (5, Kind.TRANSACTIONS, {})
