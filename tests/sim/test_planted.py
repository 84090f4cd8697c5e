"""Planted mistakes are found: some by a known seed, all of them with PLANTED=all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raylog.simulation.kinds import Kind
from raylog.simulation.run import run_seed
from raylog.simulation.scenario import Plan
from tests.sim.planted import PLANTS
from tests.sim.planted_clients import CLIENT_PLANTS
from tests.sim.planted_disasters import DISASTER_PLANTS
from tests.sim.planted_groups import GROUP_PLANTS
from tests.sim.planted_retention import RETENTION_PLANTS
from tests.sim.planted_seeds import DOCS, seeds, show
from tests.sim.planted_transactions import TRANSACTION_PLANTS
from tests.sim.planting import planted

UNIT = Path(__file__).parents[1] / "unit" / "actors" / "transaction"
SEEDS_MAX = 2_000
EVERY = os.environ.get("PLANTED") == "all"
OF_KINDS = {
    Kind.PLAIN: PLANTS,
    Kind.TRANSACTIONS: TRANSACTION_PLANTS,
    Kind.GROUPS: GROUP_PLANTS,
    Kind.RETENTION: RETENTION_PLANTS,
    Kind.DISASTERS: DISASTER_PLANTS,
    Kind.CLIENTS: CLIENT_PLANTS,
}
ALL = {name: plant for plants in OF_KINDS.values() for name, plant in plants.items()}
KINDS = {name: kind for kind, plants in OF_KINDS.items() for name in plants}
QUICK = (
    "truncates_to_high_watermark",
    "high_watermark_off_by_one",
    "forgets_producers_when_it_leads",
    "trusts_a_crashed_broker",
    "voters_do_not_sync",
    "ends_whatever_the_epoch",
    "offsets_outlive_an_abort",
    "fences_early_end_txn",
    "forgets_to_stop_waiting",
    "opens_while_markers_are_written",
    "sends_markers_too_early",
    "takes_offsets_of_a_deleted_topic",
    "gives_partitions_that_are_owned",
    "loses_an_offset_as_it_loads",
    "trusts_batch_max_timestamp",
    "compacts_the_newest_away",
    "keeps_producers_of_compacted_logs",
    "opens_a_log_at_its_first_segment",
    "tells_a_log_start_that_is_not_durable",
    "founds_anew_where_metadata_is_lost",
    "follows_older_metadata",
    "does_not_grow",
    "numbers_repeats_anew",
    "repeats_an_end_as_the_other",
    "commits_what_is_fetched",
    "believes_in_refused_commits",
    "sends_commits_side_by_side",
)
"""Mistakes that every run looks for, starting with the seed in their row."""
FIRST = {
    "truncates_to_high_watermark",
    "trusts_a_crashed_broker",
    "ends_whatever_the_epoch",
    "gives_partitions_that_are_owned",
    "trusts_batch_max_timestamp",
    "founds_anew_where_metadata_is_lost",
    "numbers_repeats_anew",
    "commits_what_is_fetched",
}
"""Those of them in `make test`. The others are for `make long`."""
UNFOUND = {
    "repeats_markers_as_they_were": "test_fenced_markers_go_on_under_a_higher_epoch",
    "successors_use_the_same_coordinator_epoch": (
        "test_the_coordinator_epoch_rises_with_every_load_that_sends_markers"
    ),
    "answers_without_a_lease": (
        "test_a_coordinator_that_may_have_a_successor_answers_what_the_log_confirms"
    ),
}
"""Mistakes that no seed has found, with the test in `tests/unit/actors/transaction` that does."""
SEEDS = seeds()


@pytest.mark.timeout(36_000 if EVERY else 300)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FIRST else pytest.mark.long)
        for name in sorted(ALL.keys() - UNFOUND.keys() if EVERY else QUICK)
    ],
)
def test_a_planted_mistake_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(kind=KINDS[name])
    around = SEEDS[name]
    tried = [around, *range(SEEDS_MAX)] if EVERY else range(around, around + 40)
    with planted(ALL[name]):
        reports = (run_seed(seed, plan) for seed in tried)
        found = next((report.seed for report in reports if not report.passed), None)
    assert found is not None, f"{name} was not found within {len(tried)} seeds"
    if EVERY:
        show(name, found)
        with capsys.disabled():
            print(f" found by seed {found}", end="", flush=True)  # noqa: T201 - what it is run for


def test_documents_say_what_finds_each_mistake() -> None:
    assert SEEDS.keys() == ALL.keys() - UNFOUND.keys()
    text = DOCS.read_text()
    tests = "".join(path.read_text() for path in UNIT.glob("test_*.py"))
    for name, test in UNFOUND.items():
        assert f"| `{name}`" in text
        assert f"def {test}(" in tests
        assert f"::{test}`" in text


def test_there_are_mistakes_enough() -> None:
    assert {kind: len(plants) for kind, plants in OF_KINDS.items()} == {
        Kind.PLAIN: 22,
        Kind.TRANSACTIONS: 19,
        Kind.GROUPS: 3,
        Kind.RETENTION: 5,
        Kind.DISASTERS: 3,
        Kind.CLIENTS: 13,
    }
