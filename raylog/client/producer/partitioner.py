"""Which partition a record goes to: by its key as Kafka's clients agree, else the sticky one.

| setting `partitioner` | with a key | without one | as in |
|---|---|---|---|
| default, murmur2_random | murmur2 | sticky | Kafka's clients |
| round_robin | in turn | in turn | Kafka's RoundRobinPartitioner |
| consistent_random | CRC-32 (empty: as without one) | sticky | librdkafka, its default |
| consistent | CRC-32 | that of an empty key | librdkafka |
| murmur2 | murmur2 | that of an empty key | librdkafka |
| random | any | any | librdkafka |

Sticky (KIP-480, KIP-794): a partition gets about `batch_bytes`, then another has its turn. With
`partitioner_adaptive` a partition where batches wait to be sent is passed over the more often, the
more of them wait; brokers that took nothing for `partitioner_availability_timeout_ms` are avoided.
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
"""After so many partitions were passed over the next one is taken."""
_WORDS = [struct.Struct(f"<{count}I") for count in range(_CACHED_KEY_BYTES // 4 + 1)]

KeyHash = Callable[[bytes, int], int]
"""(key, number of partitions) to partition."""
Partitioner = Callable[[str, bytes | None, object, object, Sequence[int]], int]
"""(topic, key's bytes, key, value, partitions) to partition."""


def murmur2(data: bytes) -> int:
    """MurmurHash2 as Kafka's Java client computes it, as an unsigned 32-bit number."""
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
    """The partition of a key; the same on every client that partitions as Java does."""
    return (murmur2(key) & _POSITIVE) % partition_count


def crc32_partition(key: bytes, partition_count: int) -> int:
    """The partition of a key; the same on every client that partitions as librdkafka does."""
    return zlib.crc32(key) % partition_count


_partition_of_short_key = lru_cache(maxsize=16_384)(partition_of_key)


def cached_partition_of_key(key: bytes, partition_count: int) -> int:
    """`partition_of_key`, remembered for short keys: most come again."""
    if len(key) <= _CACHED_KEY_BYTES:
        return _partition_of_short_key(key, partition_count)
    return partition_of_key(key, partition_count)


class Turns:
    """The partition whose turn it is, by topic: those that have a leader, in order."""

    def __init__(
        self,
        *,
        waiting: Callable[[str], Mapping[int, int]] | None = None,
        avoided: Callable[[], Collection[int]] = tuple,
        chance: Callable[[], float],
    ) -> None:
        """`waiting` tells how many batches wait, by partition of a topic; None: all are equal.

        `avoided` are brokers that take nothing at the moment; `chance` is from 0 to 1.
        """
        self._waiting = waiting
        self._avoided = avoided
        self._chance = chance
        self._last: dict[str, int] = {}
        self._available: dict[str, tuple[TopicView, list[int]]] = {}

    def next(self, view: TopicView) -> int:
        """The next partition; all have their turn."""
        available = self._led(view)
        place = self._last.get(view.name, -1) + 1
        if place >= len(available):
            place = 0
        self._last[view.name] = place
        return available[place]

    def next_free(self, view: TopicView) -> int:
        """The next partition, but rather one where little waits, and whose broker takes it."""
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
        """Any partition."""
        led = self._led(view)
        return led[int(self._chance() * len(led)) % len(led)]

    def forget(self, topic: str) -> None:
        """Begin with its first partition when it is used again."""
        self._last.pop(topic, None)
        self._available.pop(topic, None)

    def _led(self, view: TopicView) -> list[int]:
        """Partitions that have a leader, in order; all of them if none has."""
        known = self._available.get(view.name)
        if known is not None and known[0] is view:
            return known[1]
        led = [index for index, at in view.partitions.items() if at.leader >= 0]
        available = sorted(led or view.partitions)
        self._available[view.name] = (view, available)
        return available
