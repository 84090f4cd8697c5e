"""Decides which offsets belong to existing topics, since a new topic may reuse a deleted name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from raylog.actors.group.rules.offset_store import Topics
from raylog.actors.group.rules.pending import PendingOffset, StoredOffset
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.uuids import ZERO_UUID

NOTHING_DELETED: Mapping[str, int] = MappingProxyType({})


class ExistingTopics(NamedTuple):
    """The topics that exist, and those that were recently deleted.

    Some offsets lack the topic id: those of old builds, those with their own retention time, and
    those of transactions on Kafka. They belong to the topic that now has the name, as in Kafka,
    unless they were committed before a topic of that name was seen to be deleted.
    """

    image: MetadataImage
    deleted: Mapping[str, int]
    """Name to the time at which the deletion was seen."""

    def have(self, topic: str, stored: StoredOffset) -> bool:
        """Whether an offset belongs to the topic that now has the name."""
        topic_id = self.image.topic_ids.get(topic)
        if topic_id is None or stored.topic_id == topic_id:
            return topic_id is not None
        if stored.topic_id != ZERO_UUID:
            return False
        deleted_ms = self.deleted.get(topic)
        return deleted_ms is None or stored.commit_timestamp > deleted_ms

    def lack(
        self, stored: Topics, pending: Mapping[tuple[str, int], Sequence[PendingOffset]]
    ) -> Iterator[tuple[str, int]]:
        """Yield partitions that have only offsets of deleted topics.

        A tombstone would remove other offsets as well.
        """
        for topic, partitions in stored.items():
            for index, one in partitions.items():
                others = pending.get((topic, index), ())
                if not self.have(topic, one) and not self._have_any(topic, others):
                    yield topic, index
        for (topic, index), found in pending.items():
            if index not in stored.get(topic, {}) and not self._have_any(topic, found):
                yield topic, index

    def _have_any(self, topic: str, pending: Sequence[PendingOffset]) -> bool:
        return any(self.have(topic, one.stored) for one in pending)
