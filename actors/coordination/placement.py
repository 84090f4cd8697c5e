"""Which partition of an internal topic holds a group or a transactional id."""

from __future__ import annotations

from array import array
from functools import cache, lru_cache
from operator import mul
from sys import byteorder

from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.wire.errors import CoordinatorNotAvailable

KEPT_CHARACTERS_MAX = 255
"""Of keys whose hash is kept; longer ones would take hundreds of MiB, as they may have 32 KiB."""
KEY_CHARACTERS = 250
"""So many of a key's characters take as long as one more thing that is asked about."""


def java_hash(text: str) -> int:
    """The hash by which Kafka spreads keys over coordinators: Java's of a string, sign dropped.

    The smallest int32, which has no absolute value, becomes 0.
    """
    return _kept_hash(text) if len(text) <= KEPT_CHARACTERS_MAX else _hash(text)


def key_weight(key: str) -> int:
    """How long it takes to place a key, where a short one counts as 1."""
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
    """The powers of 31 by which Java weighs characters from the last one on, as int32 has them."""
    powers = [1]
    while len(powers) < count:
        powers.append(powers[-1] * 31 & 0xFFFFFFFF)
    return tuple(powers)


def group_partition(image: MetadataImage, group_id: str) -> tuple[int, PartitionState]:
    """The partition that holds a group; raises CoordinatorNotAvailable while there is none."""
    return _partition(image, OFFSETS_TOPIC, group_id)


def transaction_partition(
    image: MetadataImage, transactional_id: str
) -> tuple[int, PartitionState]:
    """The same of a transactional id."""
    return _partition(image, TRANSACTIONS_TOPIC, transactional_id)


def _partition(image: MetadataImage, name: str, key: str) -> tuple[int, PartitionState]:
    topic = image.topic(name)
    if topic is None or not topic.partitions:
        raise CoordinatorNotAvailable(f"there is no topic {name} yet")
    index = java_hash(key) % len(topic.partitions)
    return index, topic.partitions[index]
