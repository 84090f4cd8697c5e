"""Which partition of `__consumer_offsets` holds a group."""

from __future__ import annotations

from functools import lru_cache

from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.names import OFFSETS_TOPIC
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
    topic = image.topic(OFFSETS_TOPIC)
    if topic is None or not topic.partitions:
        raise CoordinatorNotAvailable(f"there is no topic {OFFSETS_TOPIC} yet")
    index = java_hash(group_id) % len(topic.partitions)
    return index, topic.partitions[index]
