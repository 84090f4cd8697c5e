"""Which partition of an internal topic holds a group or a transactional id."""

from __future__ import annotations

from functools import lru_cache

from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.wire.errors import CoordinatorNotAvailable


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """The hash by which Kafka spreads keys over coordinators: Java's of a string, sign dropped.

    The smallest int32, which has no absolute value, becomes 0.
    """
    encoded = text.encode("utf-16-be", "surrogatepass")
    number = 0
    for at in range(0, len(encoded), 2):
        number = (31 * number + (encoded[at] << 8) + encoded[at + 1]) & 0xFFFFFFFF
    if number == 0x80000000:
        return 0
    return number if number < 0x80000000 else 0x100000000 - number


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
