"""Embedded data of classic consumers: read as it is, written in the member's version."""

from __future__ import annotations

import pytest

from raylog.actors.group.rules.consumer.embedded import (
    assignment_blob,
    assignment_of,
    partitions_of,
)
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.internal.consumer_protocol import TopicPartition
from tests.worlds.metadata import id_of, topic_records


@pytest.fixture
def image() -> MetadataImage:
    made = MetadataImage()
    for name in ("t", "a"):
        made.apply_all(topic_records(name, 3))
    return made


@pytest.mark.parametrize(
    ("subscription", "version"),
    [
        (b"", 0),
        (b"\xff\xff", 0),
        (b"\x00\x00", 0),
        (b"\x00\x01rest", 1),
        (b"\x00\x02", 2),
        (b"\x00\x03", 3),
        (b"\x00\x04", 3),
        (b"\x7f\xff", 3),
    ],
)
def test_an_assignment_has_the_version_of_the_subscription(
    image: MetadataImage, subscription: bytes, version: int
) -> None:
    blob = assignment_blob({id_of("t"): {2, 0}}, image, subscription)
    assert int.from_bytes(blob[:2], "big") == version
    (found,) = assignment_of(blob).assigned_partitions
    assert (found.topic, found.partitions) == ("t", [0, 2])


def test_topics_are_reported_in_order_and_deleted_ones_are_not(image: MetadataImage) -> None:
    given = {id_of("t"): {1}, id_of("gone"): {0}, id_of("a"): {2}}
    found = assignment_of(assignment_blob(given, image, b"")).assigned_partitions
    assert [(one.topic, one.partitions) for one in found] == [("a", [2]), ("t", [1])]


def test_empty_assignment_blob_means_no_partitions() -> None:
    assert assignment_of(b"").assigned_partitions == []


def test_owned_partitions_of_unknown_topics_are_ignored(image: MetadataImage) -> None:
    said = [
        TopicPartition(topic="t", partitions=[2, 1]),
        TopicPartition(topic="gone", partitions=[0]),
        TopicPartition(topic="a", partitions=[]),
    ]
    assert partitions_of(said, image) == {id_of("t"): frozenset({1, 2})}
