"""Maps groups and transactional ids to the partitions of their internal topics."""

from __future__ import annotations

from array import array
from functools import cache, lru_cache
from operator import mul
from sys import byteorder

from raylog.actors.coordinator_kinds import KINDS
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.wire.errors import CoordinatorNotAvailable

KEPT_CHARACTERS_MAX = 255
"""The hash of longer keys is not cached: keys of up to 32 KiB would take hundreds of MiB."""
KEY_CHARACTERS = 250
"""Hashing this many characters of a key takes as long as handling one more key."""


def java_hash(text: str) -> int:
    """Kafka's hash for assigning keys to coordinators: Java's string hash without its sign.

    The smallest int32, which has no absolute value, becomes 0.
    """
    return _kept_hash(text) if len(text) <= KEPT_CHARACTERS_MAX else _hash(text)


def key_weight(key: str) -> int:
    """Cost of placing a key, relative to a short key."""
    return 1 + len(key) // KEY_CHARACTERS


def _hash(text: str) -> int:
    units = array("H", text.encode(_UTF_16, "surrogatepass"))
    powers = _powers(1 << (len(units) - 1).bit_length()) if units else ()
    number: int = sum(map(mul, reversed(units), powers)) & 0xFFFFFFFF
    if number == 0x80000000:
        return 0
    return number if number < 0x80000000 else 0x100000000 - number


_UTF_16 = "utf-16-le" if byteorder == "little" else "utf-16-be"
_kept_hash = lru_cache(maxsize=10_000)(_hash)


@cache
def _powers(count: int) -> tuple[int, ...]:
    """The powers of 31, modulo 2**32, which are the weights of characters, last one first."""
    powers = [1]
    while len(powers) < count:
        powers.append(powers[-1] * 31 & 0xFFFFFFFF)
    return tuple(powers)


def partition_of(image: MetadataImage, role: str, key: str) -> tuple[int, PartitionState]:
    """Return the partition whose leader coordinates a key in a role.

    Raises CoordinatorNotAvailable if the topic does not exist yet.
    """
    name = KINDS[role].topic
    topic = image.topic(name)
    if topic is None or not topic.partitions:
        raise CoordinatorNotAvailable(f"there is no topic {name} yet")
    index = java_hash(key) % len(topic.partitions)
    return index, topic.partitions[index]
