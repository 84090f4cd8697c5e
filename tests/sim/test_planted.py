"""Mistakes planted into the real code are found: some by a seed known to, all with PLANTED=all."""

from __future__ import annotations

import os

import pytest

from raylog.actors.simulation.kinds import Kind
from raylog.actors.simulation.run import run_seed
from raylog.actors.simulation.scenario import Plan
from tests.sim.planted import PLANTS
from tests.sim.planted_disasters import DISASTER_PLANTS
from tests.sim.planted_groups import GROUP_PLANTS
from tests.sim.planted_retention import RETENTION_PLANTS
from tests.sim.planted_transactions import TRANSACTION_PLANTS
from tests.sim.planting import planted

SEEDS_MAX = 2_000
EVERY = os.environ.get("PLANTED") == "all"
OF_KINDS = {
    Kind.PLAIN: PLANTS,
    Kind.TRANSACTIONS: TRANSACTION_PLANTS,
    Kind.GROUPS: GROUP_PLANTS,
    Kind.RETENTION: RETENTION_PLANTS,
    Kind.DISASTERS: DISASTER_PLANTS,
}
ALL = {name: plant for plants in OF_KINDS.values() for name, plant in plants.items()}
KINDS = {name: kind for kind, plants in OF_KINDS.items() for name in plants}
KNOWN = {
    "truncates_to_high_watermark": 3,
    "high_watermark_off_by_one": 0,
    "forgets_producers_when_it_leads": 4,
    "trusts_a_crashed_broker": 73,
    "voters_do_not_sync": 5,
    "ends_whatever_the_epoch": 10,
    "offsets_outlive_an_abort": 0,
    "fences_who_is_in_haste": 5,
    "forgets_to_stop_waiting": 60,
    "opens_while_markers_are_written": 0,
    "sends_markers_too_early": 66,
    "takes_offsets_of_a_deleted_topic": 0,
    "gives_partitions_that_are_owned": 1,
    "loses_an_offset_as_it_loads": 0,
    "believes_the_largest_timestamp": 1,
    "compacts_the_newest_away": 0,
    "keeps_producers_of_compacted_logs": 0,
    "opens_a_log_at_its_first_segment": 9,
    "founds_anew_where_metadata_is_lost": 0,
    "follows_older_metadata": 0,
    "does_not_grow": 1,
}
"""Mistake to a seed that finds it."""


@pytest.mark.timeout(36_000 if EVERY else 120)
@pytest.mark.parametrize("name", sorted(ALL if EVERY else KNOWN))
def test_a_planted_mistake_is_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(kind=KINDS[name])
    around = KNOWN.get(name, 0)
    seeds = [around, *range(SEEDS_MAX)] if EVERY else range(around, around + 40)
    with planted(ALL[name]):
        found = next((seed for seed in seeds if not run_seed(seed, plan).passed), None)
    assert found is not None, f"{name} was not found within {SEEDS_MAX} seeds"
    if EVERY:
        with capsys.disabled():
            print(f" found by seed {found}", end="", flush=True)  # noqa: T201 - what it is run for


def test_there_are_mistakes_enough() -> None:
    assert len(PLANTS) >= 12
    assert len(TRANSACTION_PLANTS) >= 12
    assert set(KNOWN) <= set(ALL)
