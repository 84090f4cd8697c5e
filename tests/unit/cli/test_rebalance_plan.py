"""Plans of `raylog rebalance`: their invariants, and their results in known cases."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from raylog.cli.failures import CommandFailed
from raylog.cli.rebalance_plan import Layout, emptied, loads_of, rebalanced
from raylog.client import TopicPartition
from tests.support.cpu_time import cpu_s

MIB = 1024 * 1024
Replicas = dict[TopicPartition, tuple[int, ...]]


def layout(
    *held: tuple[tuple[int, ...], int],
    brokers: int = 3,
    racks: str = "",
    fixed: tuple[int, ...] = (),
) -> Layout:
    """Partitions of one topic with their replicas and MiB; racks are a letter for each broker."""
    keys = [TopicPartition("t", index) for index in range(len(held))]
    return Layout(
        {key: replicas for key, (replicas, _) in zip(keys, held, strict=True)},
        {key: size * MIB for key, (_, size) in zip(keys, held, strict=True)},
        {broker: racks[broker] if racks else None for broker in range(brokers)},
        range(brokers),
        [keys[index] for index in fixed],
    )


def after(given_layout: Layout, moves_max: int | None = None) -> Replicas:
    plan = rebalanced(given_layout, moves_max)
    return {key: plan.get(key, tuple(old)) for key, old in given_layout.replicas.items()}


def stored(replicas: Replicas, of: Layout) -> list[int]:
    """MiB of each broker."""
    return [one.size_bytes // MIB for one in loads_of(replicas, of.sizes, of.racks)]


def test_even_layout_is_unchanged() -> None:
    even = layout(((0, 1), 5), ((1, 2), 5), ((2, 0), 5))
    assert rebalanced(even) == {}


def test_sizes_count_before_numbers() -> None:
    """Six partitions a broker, and yet one holds nearly all bytes."""
    skewed = layout(*[((0,), 100)] * 6, *[((1,), 1)] * 6, *[((2,), 1)] * 6)
    new = after(skewed)
    assert max(stored(new, skewed)) <= 1.1 * 204
    assert min(stored(new, skewed)) >= 0.9 * 204
    assert {one.replicas for one in loads_of(new, skewed.sizes, skewed.racks)} == {6}


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    grown = layout(*[((index % 3,), 10) for index in range(24)], brokers=4)
    plan = rebalanced(grown)
    assert set(plan.values()) == {(3,)}
    assert len(plan) == 6


def test_empty_partitions_are_spread_by_number() -> None:
    empty = layout(*[((0,), 0)] * 9)
    assert Counter(replicas[0] for replicas in after(empty).values()) == {0: 3, 1: 3, 2: 3}


def test_one_large_partition_stands_alone() -> None:
    huge = layout(((0,), 1000), *[((0,), 10)] * 8)
    new = after(huge)
    assert new[TopicPartition("t", 0)] == (0,)
    assert stored(new, huge)[0] == 1000


def test_replicas_of_one_rack_are_brought_apart() -> None:
    crowded = layout(((0, 1), 5), ((2, 3), 5), ((0, 1), 5), brokers=4, racks="aabb")
    for replicas in after(crowded).values():
        assert {crowded.racks[one] for one in replicas} == {"a", "b"}


def test_leaders_are_evened_along_a_chain_without_copying() -> None:
    """Broker 0 shares no partition with broker 2: broker 1 has to hand one on."""
    led = layout(((0, 1), 5), ((0, 1), 5), ((0, 1), 5), ((1, 2), 5), ((2, 1), 0), fixed=(4,))
    bounded = replace(led, brokers=(0, 1, 2))
    new = after(bounded, 1)
    assert max(Counter(replicas[0] for replicas in new.values()).values()) == 2


def test_moves_are_bounded() -> None:
    skewed = layout(*[((0,), 10)] * 9)
    assert len(rebalanced(skewed, 2)) == 2


def test_brokers_that_are_not_named_neither_get_nor_lose() -> None:
    skewed = replace(layout(*[((0,), 10)] * 6, *[((2,), 10)] * 2), brokers=(0, 1))
    new = after(skewed)
    assert stored(new, skewed) == [30, 30, 20]


def test_a_broker_is_emptied_and_nothing_else_moves() -> None:
    full = layout(((0, 1), 50), ((0, 1), 5), ((1, 2), 50), ((2, 0), 1), brokers=4)
    plan = emptied(replace(full, brokers=(1, 2, 3)), 0)
    assert {*plan} == {key for key, replicas in full.replicas.items() if 0 in replicas}
    assert all(0 not in replicas for replicas in plan.values())
    assert plan[TopicPartition("t", 0)] == (3, 1)
    with pytest.raises(CommandFailed, match="2 replicas, but without broker 0 there are only 1"):
        emptied(replace(full, brokers=(1,)), 0)


@dataclass(frozen=True)
class Excess:
    """How far a layout is from the plan's goals, in order of importance."""

    shared_racks: int
    stored: int
    held: int


def excess(replicas: Replicas, of: Layout) -> Excess:
    loads = [one for one in loads_of(replicas, of.sizes, of.racks) if one.broker in of.brokers]
    shared = 0
    for found in replicas.values():
        named = Counter(of.racks.get(one) for one in found)
        shared += sum(count * (count - 1) for rack, count in named.items() if rack is not None)

    floor, rest = divmod(sum(one.replicas for one in loads), len(loads))
    low, high = floor - floor // 10, floor + max(rest > 0, floor // 10)
    mean = sum(one.size_bytes for one in loads) // len(loads)
    far = max(mean // 10, 64 * 1024)
    return Excess(
        shared,
        sum(max(0, abs(one.size_bytes - mean) - far) for one in loads),
        sum(max(0, low - one.replicas, one.replicas - high) for one in loads),
    )


@some.composite
def layouts(draw: some.DrawFn) -> Layout:
    brokers = draw(some.integers(1, 7))
    racks = draw(some.lists(some.sampled_from([None, "a", "b", "c"]), min_size=8, max_size=8))
    sizes = some.one_of(some.just(0), some.integers(0, 20 * MIB), some.integers(0, 2**40))
    held = some.lists(some.integers(0, brokers), min_size=1, max_size=4, unique=True)
    found = draw(some.lists(some.tuples(held, sizes), min_size=1, max_size=40))
    keys = [TopicPartition("t", index) for index in range(len(found))]
    chosen = draw(some.sets(some.integers(0, brokers - 1), min_size=1))
    return Layout(
        {key: tuple(replicas) for key, (replicas, _) in zip(keys, found, strict=True)},
        {key: size for key, (_, size) in zip(keys, found, strict=True)},
        {broker: racks[broker] for broker in range(brokers)},  # the last one is unknown
        sorted(chosen),
        draw(some.sets(some.sampled_from(keys), max_size=5)),
    )


@given(given_layout=layouts(), moves_max=some.one_of(some.none(), some.integers(1, 5)))
def test_any_plan_is_valid_and_makes_nothing_worse(
    given_layout: Layout, moves_max: int | None
) -> None:
    new = after(given_layout, moves_max)
    for key, replicas in new.items():
        old = tuple(given_layout.replicas[key])
        assert len(replicas) == len({*replicas}) == len(old)
        assert ({*replicas} ^ {*old}) <= {*given_layout.brokers}
        if key in given_layout.fixed:
            assert replicas == old
        assert excess({key: replicas}, given_layout).shared_racks <= (
            excess({key: old}, given_layout).shared_racks
        )
    before = excess({key: tuple(old) for key, old in given_layout.replicas.items()}, given_layout)
    then = excess(new, given_layout)
    assert then.shared_racks <= before.shared_racks
    if then.shared_racks == before.shared_racks:
        assert then.stored <= before.stored
        if then.stored == before.stored:
            assert then.held <= before.held
    copied = [key for key in new if {*new[key]} != {*given_layout.replicas[key]}]
    assert moves_max is None or len(copied) <= moves_max


@given(given_layout=layouts())
def test_there_is_nothing_to_do_after_a_plan(given_layout: Layout) -> None:
    assert rebalanced(replace(given_layout, replicas=after(given_layout))) == {}


@pytest.mark.long
@pytest.mark.parametrize("racks", [0, 3])
def test_ten_thousand_partitions_on_a_hundred_brokers_take_seconds(racks: int) -> None:
    """A tenth of the brokers is new, and replicas stand in racks as chance had it."""
    chance = random.Random(1)
    keys = [TopicPartition(f"t{index // 50}", index % 50) for index in range(10_000)]
    large = Layout(
        {key: chance.sample(range(90), 3) for key in keys},
        {key: int(chance.lognormvariate(20, 1.5)) for key in keys},
        {broker: f"r{broker % racks}" if racks else None for broker in range(100)},
        range(100),
    )
    plans = []
    assert cpu_s(lambda: plans.append(rebalanced(large)), 5) <= 5
    loads = loads_of({**large.replicas, **plans[0]}, large.sizes, range(100))
    mean = sum(one.size_bytes for one in loads) / 100
    assert all(0.89 * mean <= one.size_bytes <= 1.11 * mean for one in loads)
    assert {one.leaders for one in loads} <= {99, 100, 101}
