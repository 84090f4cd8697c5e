"""Which offsets belong to existing topics: by topic id, or by the time of the commit."""

from __future__ import annotations

import pytest

from raylog.actors.group.rules.existing import NOTHING_DELETED, ExistingTopics
from raylog.actors.group.rules.offset_store import Topics
from raylog.actors.group.rules.pending import PendingOffset, Producer, StoredOffset
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.uuids import ZERO_UUID
from tests.worlds.metadata import id_of, topic_records

DELETED_MS = 100
SAME, OTHER = id_of("t"), id_of("t", 2)


def existing(*, deleted: bool = True) -> ExistingTopics:
    """Topic t, of whose name another one was seen to be deleted."""
    image = MetadataImage()
    image.apply_all(topic_records("t", 3))
    return ExistingTopics(image, {"t": DELETED_MS} if deleted else NOTHING_DELETED)


def stored(topic_id: bytes = ZERO_UUID, at_ms: int = DELETED_MS) -> StoredOffset:
    return StoredOffset(5, -1, "", at_ms, -1, topic_id)


def waiting(topic: str, found: StoredOffset) -> list[PendingOffset]:
    return [PendingOffset(0, Producer(7, 0), "g", topic, 0, found)]


@pytest.mark.parametrize(
    ("topic_id", "at_ms", "is_there"),
    [
        (SAME, DELETED_MS - 1, True),
        (SAME, DELETED_MS + 1, True),
        (OTHER, DELETED_MS + 1, False),
        (ZERO_UUID, DELETED_MS - 1, False),
        (ZERO_UUID, DELETED_MS, False),
        (ZERO_UUID, DELETED_MS + 1, True),
    ],
)
def test_an_offset_without_a_topics_id_is_of_the_topic_that_was_there_then(
    topic_id: bytes, at_ms: int, *, is_there: bool
) -> None:
    found = stored(topic_id, at_ms)
    assert existing().have("t", found) is is_there
    assert existing(deleted=False).have("t", found) is (topic_id != OTHER)
    assert not existing().have("u", found), "there is no such topic"


def test_offsets_of_deleted_topics_are_found_unless_others_replaced_them() -> None:
    gone, here = stored(OTHER), stored(SAME)
    topics: Topics = {"t": {0: here, 1: gone, 2: gone}, "u": {0: here}}
    pending = {
        ("t", 0): waiting("t", gone),
        ("t", 2): waiting("t", gone) + waiting("t", here),
        ("t", 3): waiting("t", gone),
        ("t", 4): waiting("t", here),
        ("u", 0): waiting("u", here),
        ("u", 1): waiting("u", here),
    }
    assert list(existing().lack(topics, pending)) == [("t", 1), ("u", 0), ("t", 3), ("u", 1)]
    assert list(existing().lack({}, {})) == []
