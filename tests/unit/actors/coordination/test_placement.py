"""Which partition holds a group, as in Apache Kafka."""

import tracemalloc

import pytest

from raylog.actors.coordination.rules.placement import java_hash, partition_of
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import GROUP, OFFSETS_TOPIC
from raylog.wire.errors import CoordinatorNotAvailable
from tests.worlds.metadata import topic_records


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


@pytest.mark.parametrize("length", [254, 255, 256, 257, 1_023, 32_767])
@pytest.mark.parametrize("character", ["a", "é", "\uffff", "😀"])
def test_the_hash_of_long_texts_is_javas(length: int, character: str) -> None:
    text = character * length
    units = text.encode("utf-16-be")
    number = 0
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) % (1 << 32)
    expected = abs(number - (1 << 32) if number >= 1 << 31 else number)
    assert java_hash(text) == (0 if expected == 1 << 31 else expected)


@pytest.mark.long
def test_long_keys_are_not_kept() -> None:
    java_hash("x" * 32_767)
    tracemalloc.start()
    try:
        for number in range(100):
            java_hash(f"{number}".rjust(32_767, "x"))
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_groups_are_spread_over_the_partitions() -> None:
    image = MetadataImage()
    with pytest.raises(CoordinatorNotAvailable):
        partition_of(image, GROUP, "g")
    image.apply_all(topic_records(OFFSETS_TOPIC, 50))
    index, partition = partition_of(image, GROUP, "hello")
    assert index == 99162322 % 50
    assert partition is image.topics[image.topic_ids[OFFSETS_TOPIC]].partitions[index]
