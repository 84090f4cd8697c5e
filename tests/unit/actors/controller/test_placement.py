"""Placement of replicas."""

import random
from typing import Any

import pytest

from raylog.actors.controller.rules import placement
from raylog.actors.controller.rules.placement import ring_of
from raylog.actors.metadata.image import BrokerRegistration
from raylog.wire.errors import InvalidReplicationFactor


def broker(
    broker_id: int, rack: str | None = None, *, fenced: bool = False, leaving: bool = False
) -> BrokerRegistration:
    return BrokerRegistration(broker_id, 0, (), rack, "d", "i", fenced, "", "", leaving)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ids", [(4,), (2, 0, 1), (5, 1, 3, 7)])
def test_without_racks_replica_j_of_partition_i_is_on_broker_i_plus_j(
    ids: tuple[int, ...], seed: int
) -> None:
    copies = min(3, len(ids))
    ring = ring_of([broker(one) for one in ids], copies, random.Random(seed))
    order = sorted(ids)
    start = order.index(ring.replicas(0, copies)[0])
    for partition in range(8):
        expected = tuple(order[(start + partition + j) % len(ids)] for j in range(copies))
        assert ring.replicas(partition, copies) == expected


@pytest.mark.parametrize("seed", range(10))
def test_replicas_stand_in_different_racks_as_far_as_there_are_racks(seed: int) -> None:
    racks = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    ring = ring_of([broker(one, rack) for one, rack in racks.items()], 4, random.Random(seed))
    leaders = []
    for partition in range(6):
        replicas = ring.replicas(partition, 4)
        leaders.append(replicas[0])
        assert len(set(replicas)) == 4
        assert {racks[one] for one in replicas[:3]} == {"a", "b", "c"}
    assert sorted(leaders) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("count", [1, 3, 7])
def test_many_partitions_are_placed_as_each_alone_but_a_round_of_the_ring_once(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 100 brokers 10,000 partitions would otherwise take a million steps."""
    brokers = [broker(one, f"r{one % 3}", fenced=one > 4) for one in range(7)]
    ring = ring_of(brokers, count, random.Random(3))
    expected = [ring.replicas(partition, count) for partition in range(7, 1_000)]
    placed = 0
    taken = placement._taken

    def counting(*args: Any) -> tuple[int, ...]:
        nonlocal placed
        placed += 1
        return taken(*args)

    monkeypatch.setattr(placement, "_taken", counting)
    assert ring.assignments(range(7, 1_000), count) == expected
    assert placed <= 2 * 5 * 2


def test_fenced_brokers_come_last_and_leaving_ones_not_at_all() -> None:
    brokers = [broker(0, fenced=True), broker(1), broker(2, leaving=True), broker(3)]
    ring = ring_of(brokers, 3, random.Random(0))
    for partition in range(4):
        assert set(ring.replicas(partition, 2)) == {1, 3}
        assert ring.replicas(partition, 3)[2] == 0
    with pytest.raises(InvalidReplicationFactor, match=r"only 3 broker\(s\)"):
        ring_of(brokers, 4, random.Random(0))


def test_a_broker_that_has_left_is_one_of_the_fenced() -> None:
    brokers = [broker(0, fenced=True, leaving=True), broker(1)]
    assert ring_of(brokers, 2, random.Random(0)).replicas(0, 2) == (1, 0)


def test_the_start_rotates() -> None:
    brokers = [broker(one) for one in range(3)]
    starts = {ring_of(brokers, 1, random.Random(seed)).replicas(0, 1) for seed in range(20)}
    assert starts == {(0,), (1,), (2,)}


def test_nothing_is_placed_on_fenced_brokers_alone() -> None:
    with pytest.raises(InvalidReplicationFactor, match="fenced"):
        ring_of([broker(0, fenced=True)], 1, random.Random(0))


def test_more_partitions_than_brokers_share_fewer_leave_brokers_without() -> None:
    ring = ring_of([broker(one) for one in range(4)], 1, random.Random(5))
    led = [ring.replicas(partition, 1)[0] for partition in range(8)]
    assert sorted(led) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(set(led[:3])) == 3, "one of four has nothing"
