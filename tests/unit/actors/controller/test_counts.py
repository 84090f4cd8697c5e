"""The controller's counters of its decisions."""

from __future__ import annotations

from raylog.actors.controller.counts import ControllerCounts
from raylog.actors.controller.rules.decision_lines import decisions_of
from raylog.actors.metadata.records import (
    NO_LEADER,
    BrokerFenced,
    PartitionChanged,
    Record,
)
from raylog.actors.metrics.samples import Samples
from tests.worlds.controller.machine import Controlled

NOW_MS = 1_700_000_000_250


def counted(world: Controlled, *records: Record) -> dict[str, object]:
    """What a decision adds, by family."""
    counts = ControllerCounts()
    counts.decided(world.image, records, decisions_of(world.image, list(records)), NOW_MS)
    samples = Samples()
    counts.sample(samples)
    return {
        name: value
        for name, _, value in samples.taken
        if value and name.endswith(("_total", "_timestamp_seconds"))
    }


def test_elections_are_counted_and_those_that_may_lose_records() -> None:
    world = Controlled(brokers=3)
    topic_id = world.topic("t", (0, 1, 2))
    clean = PartitionChanged(topic_id, 0, leader=1)
    assert counted(world, clean) == {
        "raylog_elections_total": 1,
        "raylog_metadata_records_total": 1,
    }
    world.machine.replay([PartitionChanged(topic_id, 0, leader=1, isr=(1,))])
    unclean = PartitionChanged(topic_id, 0, leader=2, isr=(2,))
    assert counted(world, unclean) == {
        "raylog_elections_total": 1,
        "raylog_unclean_elections_total": 1,
        "raylog_last_unclean_election_timestamp_seconds": NOW_MS / 1000,
        "raylog_metadata_records_total": 1,
    }


def test_a_new_epoch_of_the_same_leader_or_none_is_no_election() -> None:
    world = Controlled(brokers=2)
    topic_id = world.topic("t", (0, 1))
    for leader in (0, NO_LEADER, None):
        record = PartitionChanged(topic_id, 0, leader=leader, isr=(0,))
        assert counted(world, record) == {"raylog_metadata_records_total": 1}


def test_fencings_are_counted() -> None:
    world = Controlled(brokers=1)
    assert counted(world, BrokerFenced(0, world.epochs[0])) == {
        "raylog_fencings_total": 1,
        "raylog_metadata_records_total": 1,
    }
