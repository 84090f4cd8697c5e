"""Which partition a record goes to: by its key as Kafka's clients agree, else the sticky one."""

from __future__ import annotations

from collections.abc import Sequence

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 as Kafka's Java client computes it, as an unsigned 32-bit number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition of a key; the same on every client that partitions as Java does."""
    return (murmur2(key) & _POSITIVE) % partition_count


def next_sticky(current: int, available: Sequence[int]) -> int:
    """The partition for keyless records after a batch for `current` is full (KIP-480).

    Round robin over partitions that have a leader: even over time, and the same every run.
    """
    later = [partition for partition in available if partition > current]
    return min(later) if later else min(available)
