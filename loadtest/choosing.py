"""Chooses the sizes, keys and partitions of records, as a scenario says."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raylog.client.producer.partitioner import partition_of_key
from raylog.loadtest.records import BYTES_MIN
from raylog.loadtest.scenario import (
    FixedSize,
    HotPartition,
    Keys,
    LognormalSize,
    NoKeys,
    Size,
    UniformKeys,
    ZipfKeys,
)


class Group(NamedTuple):
    """Records for one partition, by their intended times."""

    partition: int
    intended_us: list[int]
    keys: list[bytes] | None
    """None if the records have no keys."""


class Choice:
    """The distributions of one user's records. They are repeatable, given the seed."""

    def __init__(
        self, size: Size, keys: Keys, partitions: Sequence[int], batch_bytes: int, seed: int
    ) -> None:
        """`partitions` are the topic's. Records without keys change theirs after `batch_bytes`."""
        self._chance = random.Random(seed)  # noqa: S311 — no secret depends on it
        self._size = size
        self._partitions = list(partitions)
        self._batch_bytes = batch_bytes
        self._left_bytes = batch_bytes
        self._turns = itertools.cycle(self._partitions)
        for _ in range(seed % len(self._partitions) + 1):
            self._current = next(self._turns)
        self._hot = keys if isinstance(keys, HotPartition) else None
        self._keys: list[bytes] | None = None
        self._places: list[int] = []
        self._weights: list[float] | None = None
        if isinstance(keys, UniformKeys | ZipfKeys):
            self._use_keys(keys)
        else:
            assert isinstance(keys, NoKeys | HotPartition), f"unknown keys {keys}"

    def sizes(self, count: int) -> int | list[int]:
        """The sizes of `count` values in bytes; a single number if they are equal."""
        if isinstance(self._size, FixedSize):
            return self._size.bytes
        return [_lognormal(self._size, self._chance) for _ in range(count)]

    def groups(self, intended_us: list[int], size: int) -> Iterator[Group]:
        """Partitions and keys for records of about `size` bytes."""
        if self._keys is not None:
            yield from self._keyed(intended_us, self._keys)
        elif self._hot is not None:
            yield from self._hot_and_others(intended_us, self._hot)
        else:
            yield from self._sticky(intended_us, size)

    def _use_keys(self, keys: UniformKeys | ZipfKeys) -> None:
        self._keys = [b"key-%d" % number for number in range(keys.count)]
        count = len(self._partitions)
        self._places = [self._partitions[partition_of_key(key, count)] for key in self._keys]
        if isinstance(keys, ZipfKeys):
            weights = (rank**-keys.exponent for rank in range(1, keys.count + 1))
            self._weights = list(itertools.accumulate(weights))

    def _keyed(self, intended_us: list[int], keys: list[bytes]) -> Iterator[Group]:
        chosen = self._chance.choices(
            range(len(keys)), cum_weights=self._weights, k=len(intended_us)
        )
        groups: dict[int, Group] = {}
        for at_us, number in zip(intended_us, chosen, strict=True):
            place = self._places[number]
            group = groups.get(place)
            if group is None:
                group = groups[place] = Group(place, [], [])
            group.intended_us.append(at_us)
            assert group.keys is not None, "groups of keys have some"
            group.keys.append(keys[number])
        yield from groups.values()

    def _hot_and_others(self, intended_us: list[int], hot: HotPartition) -> Iterator[Group]:
        groups: dict[int, list[int]] = {}
        for at_us in intended_us:
            place = hot.partition
            if self._chance.random() >= hot.share:
                place = next(self._turns)
                if place == hot.partition and len(self._partitions) > 1:
                    place = next(self._turns)
            groups.setdefault(place, []).append(at_us)
        for place, times in groups.items():
            yield Group(place, times, None)

    def _sticky(self, intended_us: list[int], size: int) -> Iterator[Group]:
        start = 0
        while start < len(intended_us):
            count = min(len(intended_us) - start, max(1, self._left_bytes // size))
            yield Group(self._current, intended_us[start : start + count], None)
            start += count
            self._left_bytes -= count * size
            if self._left_bytes < size:
                self._left_bytes = self._batch_bytes
                self._current = next(self._turns)


def _lognormal(size: LognormalSize, chance: random.Random) -> int:
    drawn = chance.lognormvariate(math.log(size.median), size.sigma)
    return max(BYTES_MIN, min(size.max, int(drawn)))


def typical_size(size: Size) -> int:
    """The approximate size of a record with its overhead, in bytes."""
    value = size.bytes if isinstance(size, FixedSize) else size.median
    return value + 10
