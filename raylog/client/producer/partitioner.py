"""Chooses the partition of a record: by its key like Kafka's clients, else the sticky partition.

| setting `partitioner` | with a key | without a key | as in |
|---|---|---|---|
| default, murmur2_random | murmur2 | sticky | Kafka's clients |
| round_robin | in turn | in turn | Kafka's RoundRobinPartitioner |
| consistent_random | CRC-32 (an empty key counts as none) | sticky | librdkafka, its default |
| consistent | CRC-32 | like an empty key | librdkafka |
| murmur2 | murmur2 | like an empty key | librdkafka |
| random | random | random | librdkafka |

Sticky (KIP-480, KIP-794): a partition gets about `batch_bytes`, then the next one has its turn.
With `partitioner_adaptive`, a partition is skipped the more often, the more batches wait there.
Brokers that accepted nothing for `partitioner_availability_timeout_ms` are avoided.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

from raylog.client.cluster import TopicView

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_CACHED_KEY_BYTES = 64
_CHOICES_MAX = 16
"""After skipping this many partitions, the next one is used in any case."""
_WORDS = [struct.Struct(f"<{count}I") for count in range(_CACHED_KEY_BYTES // 4 + 1)]

KeyHash = Callable[[bytes, int], int]
"""Maps (key, number of partitions) to a partition."""
Partitioner = Callable[[str, bytes | None, object, object, Sequence[int]], int]
"""Maps (topic, key as bytes, key, value, partitions) to a partition."""


def murmur2(data: bytes) -> int:
    """Return MurmurHash2 as Kafka's Java client computes it, as an unsigned 32-bit number."""
    length = len(data)
    h = _SEED ^ length
    count = length >> 2
    words = _WORDS[count] if count < len(_WORDS) else struct.Struct(f"<{count}I")
    for word in words.unpack_from(data):
        k = word * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    if length & 3:
        h = (h ^ int.from_bytes(data[length & ~3 :], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return a key's partition, the same as all clients that partition like the Java client."""
    return (murmur2(key) & _POSITIVE) % partition_count


def crc32_partition(key: bytes, partition_count: int) -> int:
    """Return a key's partition, the same as all clients that partition like librdkafka."""
    return zlib.crc32(key) % partition_count


_partition_of_short_key = lru_cache(maxsize=16_384)(partition_of_key)


def cached_partition_of_key(key: bytes, partition_count: int) -> int:
    """Return `partition_of_key`, cached for short keys, because most keys recur."""
    if len(key) <= _CACHED_KEY_BYTES:
        return _partition_of_short_key(key, partition_count)
    return partition_of_key(key, partition_count)


class Turns:
    """Gives each topic's partitions turns: those with a leader, in order."""

    def __init__(
        self,
        *,
        waiting: Callable[[str], Mapping[int, int]] | None = None,
        avoided: Callable[[], Collection[int]] = tuple,
        chance: Callable[[], float],
    ) -> None:
        """`waiting` returns the number of waiting batches by partition of a topic; None: ignore it.

        `avoided` returns the brokers that accept nothing at present; `chance` a number from 0 to 1.
        """
        self._waiting = waiting
        self._avoided = avoided
        self._chance = chance
        self._last: dict[str, int] = {}
        self._available: dict[str, tuple[TopicView, list[int]]] = {}

    def next(self, view: TopicView) -> int:
        """Return the next partition; each has its turn."""
        available = self._led(view)
        place = self._last.get(view.name, -1) + 1
        if place >= len(available):
            place = 0
        self._last[view.name] = place
        return available[place]

    def next_free(self, view: TopicView) -> int:
        """Return the next partition, preferring few waiting batches and an available broker."""
        chosen = self.next(view)
        waiting = self._waiting(view.name) if self._waiting is not None else {}
        avoided = self._avoided()
        if not waiting and not avoided:
            return chosen
        most = max(waiting.values(), default=0)
        least = 0 if len(waiting) < len(self._led(view)) else min(waiting.values())
        for _ in range(_CHOICES_MAX):
            share = (most + 1 - waiting.get(chosen, 0)) / (most + 1 - least)
            if view.partitions[chosen].leader not in avoided and self._chance() < share:
                break
            chosen = self.next(view)
        return chosen

    def any(self, view: TopicView) -> int:
        """Return a random partition."""
        led = self._led(view)
        return led[int(self._chance() * len(led)) % len(led)]

    def forget(self, topic: str) -> None:
        """Forget a topic; its turns then start again at the first partition."""
        self._last.pop(topic, None)
        self._available.pop(topic, None)

    def _led(self, view: TopicView) -> list[int]:
        """Return the partitions that have a leader, in order; all partitions if none has one."""
        known = self._available.get(view.name)
        if known is not None and known[0] is view:
            return known[1]
        led = [index for index, at in view.partitions.items() if at.leader >= 0]
        available = sorted(led or view.partitions)
        self._available[view.name] = (view, available)
        return available
