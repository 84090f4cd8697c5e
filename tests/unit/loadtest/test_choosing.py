"""Sizes, keys and partitions follow the scenario."""

from __future__ import annotations

from collections import Counter

import pytest

from raylog.client.producer.partitioner import partition_of_key
from raylog.loadtest.choosing import Choice, typical_size
from raylog.loadtest.records import BYTES_MIN
from raylog.loadtest.scenario import (
    FixedSize,
    HotPartition,
    Keys,
    LognormalSize,
    NoKeys,
    UniformKeys,
    ZipfKeys,
)

PARTITIONS = (0, 1, 2)


def choice(keys: Keys, seed: int = 0, batch_bytes: int = 1_000) -> Choice:
    return Choice(FixedSize(), keys, PARTITIONS, batch_bytes, seed)


def test_records_without_keys_fill_one_partition_after_the_other() -> None:
    groups = list(choice(NoKeys()).groups(list(range(35)), 100))
    assert [(group.partition, len(group.intended_us)) for group in groups] == [
        (0, 10),
        (1, 10),
        (2, 10),
        (0, 5),
    ]
    assert [at for group in groups for at in group.intended_us] == list(range(35))


def test_users_begin_at_different_partitions() -> None:
    firsts = [next(choice(NoKeys(), seed).groups([1], 100)).partition for seed in range(3)]
    assert sorted(firsts) == list(PARTITIONS)


@pytest.mark.parametrize("keys", [UniformKeys(distribution="uniform", count=50)])
def test_keys_go_where_kafka_s_clients_send_them(keys: UniformKeys) -> None:
    groups = list(choice(keys).groups(list(range(2_000)), 100))
    assert sum(len(group.intended_us) for group in groups) == 2_000
    seen: Counter[bytes] = Counter()
    for group in groups:
        assert group.keys is not None
        assert group.intended_us == sorted(group.intended_us)
        assert len(group.keys) == len(group.intended_us)
        assert {partition_of_key(key, 3) for key in group.keys} == {group.partition}
        seen.update(group.keys)
    assert len(seen) == 50
    assert max(seen.values()) < 3 * min(seen.values())


def test_few_keys_of_a_zipf_distribution_take_most_records() -> None:
    groups = choice(ZipfKeys(distribution="zipf", count=1_000)).groups(list(range(5_000)), 100)
    seen = Counter(key for group in groups for key in group.keys or ())
    assert seen[b"key-0"] > 1.5 * seen[b"key-1"] > 2 * seen[b"key-5"]


def test_a_hot_partition_takes_its_share() -> None:
    hot = HotPartition(distribution="hot-partition", partition=1, share=0.8)
    counts = Counter(
        {
            group.partition: len(group.intended_us)
            for group in choice(hot).groups(list(range(3_000)), 100)
        }
    )
    assert counts[1] == pytest.approx(2_400, rel=0.05)
    assert counts[0] == pytest.approx(counts[2], abs=1)


def test_lognormal_sizes() -> None:
    size = LognormalSize(distribution="lognormal", median=200, max=2_000)
    drawn = Choice(size, NoKeys(), PARTITIONS, 1_000, 1).sizes(5_000)
    assert isinstance(drawn, list)
    assert min(drawn) >= BYTES_MIN
    assert max(drawn) == 2_000
    assert sorted(drawn)[2_500] == pytest.approx(200, rel=0.1)
    assert typical_size(size) == 210


def test_the_same_seed_makes_the_same_choices() -> None:
    keys = UniformKeys(distribution="uniform")
    first, second = (list(choice(keys, 7).groups([1, 2, 3], 100)) for _ in range(2))
    assert first == second
