"""Which partition holds a group: as Apache Kafka places it."""

import pytest

from raylog.actors.coordination.placement import group_partition, java_hash
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import OFFSETS_TOPIC
from raylog.wire.errors import CoordinatorNotAvailable
from tests.support.shards import topic_records


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", 0),  # the smallest int32 has no absolute value
        ("console-consumer-12345", 158455506),
        ("é", 233),
        ("😀", 1772899),  # two UTF-16 units, as Java counts them
    ],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_groups_are_spread_over_the_partitions() -> None:
    image = MetadataImage()
    with pytest.raises(CoordinatorNotAvailable):
        group_partition(image, "g")
    image.apply_all(topic_records(OFFSETS_TOPIC, 50))
    index, partition = group_partition(image, "hello")
    assert index == 99162322 % 50
    assert partition is image.topics[image.topic_ids[OFFSETS_TOPIC]].partitions[index]
