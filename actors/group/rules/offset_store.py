"""Stores the committed offsets of the groups in one shard."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from raylog.actors.group.rules.pending import PendingOffsets, Producer, StoredOffset
from raylog.wire.internal.offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from raylog.wire.uuids import ZERO_UUID

NO_EXPIRY = -1
Partitions = dict[int, StoredOffset]
Topics = dict[str, Partitions]


@dataclass(slots=True, eq=False)
class OffsetChange:
    """One offset that was set or deleted outside of transactions."""

    store: OffsetStore
    key: OffsetCommitKey | LegacyOffsetCommitKey
    before: StoredOffset | None
    """The value before the change."""
    is_first: bool
    """Whether the group had no entry before the change."""
    forgets: bool
    """Whether it is a tombstone."""
    pending_before: int
    """Pending offsets below this number precede the change in the log."""

    @property
    def where(self) -> tuple[str, str, int]:
        """Group, topic and partition."""
        return self.key.group, self.key.topic, self.key.partition

    def commit(self) -> None:
        """Mark offsets that transactions wrote there earlier as overtaken."""
        self.store.commit(self)

    def revert(self) -> None:
        """Restore the previous value."""
        self.store.revert(self)


class OffsetStore:
    """Group to topic to partition to offset. Changed only by replayed records.

    A replayed offset that is not committed yet is in `of` but not in `committed`. Offsets of
    transactions are in neither until their marker is committed.

    A group whose last offset was deleted keeps an empty entry until `drop_empty`. A group that has
    only pending offsets also has an empty entry.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Topics] = {}
        self.pending = PendingOffsets()
        self._changes: deque[OffsetChange] = deque()
        """Uncommitted changes, in log order; bounded by the number of records in flight."""
        self._changes_of: dict[str, deque[OffsetChange]] = {}
        """The same changes by group, so that a request about one group does not scan all of
        them."""

    def of(self, group_id: str) -> Topics:
        """Return a group's offsets as the log will have them. Do not modify the result."""
        return self.groups.get(group_id, {})

    def committed(self, group_id: str) -> Topics:
        """Return a group's offsets below the high watermark. Do not modify the result."""
        topics = self.of(group_id)
        changes = self._changes_of.get(group_id)
        if changes is None:
            return topics
        topics = topics.copy()
        for name in {change.key.topic for change in changes}:
            topics[name] = topics.get(name, {}).copy()
        for change in reversed(changes):
            partitions, index = topics[change.key.topic], change.key.partition
            if change.before is None:
                partitions.pop(index, None)
            else:
                partitions[index] = change.before
        return {name: partitions for name, partitions in topics.items() if partitions}

    def get(self, group_id: str, topic: str, partition: int) -> StoredOffset | None:
        """Return one offset."""
        return self.groups.get(group_id, {}).get(topic, {}).get(partition)

    def replay(
        self,
        key: OffsetCommitKey | LegacyOffsetCommitKey,
        value: OffsetCommitValue | LegacyOffsetCommitValue | None,
    ) -> OffsetChange:
        """Apply a record that is not part of a transaction."""
        group_id, topic, partition = key.group, key.topic, key.partition
        is_first = group_id not in self.groups
        before = None if is_first else self.get(group_id, topic, partition)
        if value is None:
            self.drop(group_id, topic, partition)
        else:
            self.put(group_id, topic, partition, _stored(value))
        change = OffsetChange(self, key, before, is_first, value is None, self.pending.next_number)
        self._changes.append(change)
        self._changes_of.setdefault(group_id, deque()).append(change)
        return change

    def commit(self, change: OffsetChange) -> None:
        """Commit a change: it overtakes the pending offsets before it in the log."""
        first = self._changes.popleft()
        assert first is change, "changes are committed in order"
        of_group = self._changes_of[change.key.group]
        of_group.popleft()
        self._drop_unchanged(change.key.group, of_group)
        if self.pending:
            key = change.key
            overtake = self.pending.forget if change.forgets else self.pending.overtake
            overtake(key.group, key.topic, key.partition, change.pending_before)

    def revert(self, change: OffsetChange) -> None:
        """Revert a change; later ones must have been reverted first."""
        last = self._changes.pop()
        assert last is change, "changes are reverted in the opposite order"
        of_group = self._changes_of[change.key.group]
        of_group.pop()
        self._drop_unchanged(change.key.group, of_group)
        key = change.key
        if change.before is None:
            self.drop(key.group, key.topic, key.partition)
        else:
            self.put(key.group, key.topic, key.partition, change.before)
        if change.is_first:
            self.drop_empty(key.group)

    def _drop_unchanged(self, group_id: str, changes: deque[OffsetChange]) -> None:
        if not changes:
            del self._changes_of[group_id]

    def replay_pending(
        self, producer: Producer, key: OffsetCommitKey, value: OffsetCommitValue
    ) -> None:
        """Apply a record of an open transaction."""
        self.groups.setdefault(key.group, {})
        self.pending.add(producer, key.group, key.topic, key.partition, _stored(value))

    def end_transaction(self, producer_id: int, before: int, *, committed: bool) -> None:
        """Apply a marker that ends the producer's offsets with numbers below `before`.

        Each offset that is now committed overtakes those that other transactions wrote before it.
        """
        ended = self.pending.end(producer_id, before)
        if not ended or not committed:
            return
        # Changes that are not committed yet follow the marker. Find the first one per partition.
        later = {
            change.where: change
            for group_id in {one.group_id for one in ended}
            for change in reversed(self._changes_of.get(group_id, ()))
        }
        for one in ended:
            if one.is_overtaken:
                continue
            where = one.group_id, one.topic, one.partition
            if (change := later.get(where)) is None:
                self.put(*where, one.stored)
            else:
                change.before = one.stored
            self.pending.overtake(*where, one.number)

    def revert_pending(self, numbers: Iterable[int]) -> None:
        """Remove pending offsets that the log has refused, and groups that had only these."""
        for group_id in self.pending.revert(numbers):
            self.drop_empty(group_id)

    def put(self, group_id: str, topic: str, partition: int, stored: StoredOffset) -> None:
        """Store an offset."""
        self.place(group_id, topic)[partition] = stored

    def place(self, group_id: str, topic: str) -> Partitions:
        """Return a topic's offsets, created if necessary; the caller must add an offset."""
        topics = self.groups.get(group_id)
        if topics is None:
            topics = self.groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        return partitions

    def drop(self, group_id: str, topic: str, partition: int) -> None:
        """Delete an offset, if it exists."""
        topics = self.groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            del topics[topic]

    def drop_empty(self, group_id: str) -> bool:
        """Delete a group's entry if it is empty; return whether this was done."""
        if self.groups.get(group_id, True) or self.pending.of(group_id):
            return False
        del self.groups[group_id]
        return True

    def bury(self, group_id: str) -> Burial:
        """Apply a group's tombstone, which removes its entry unless it has offsets."""
        return Burial(self, group_id, self.drop_empty(group_id))


@dataclass(slots=True)
class Burial:
    """The removal of a group's entry."""

    store: OffsetStore
    group_id: str
    was_there: bool

    def commit(self) -> None:
        """Remove the entry if the pending offsets that kept it are gone by now."""
        self.store.drop_empty(self.group_id)

    def revert(self) -> None:
        """Restore the group's entry."""
        if self.was_there:
            self.store.groups[self.group_id] = {}


def _stored(value: OffsetCommitValue | LegacyOffsetCommitValue) -> StoredOffset:
    if isinstance(value, LegacyOffsetCommitValue):
        return StoredOffset(
            value.offset, -1, value.metadata, value.commit_timestamp, NO_EXPIRY, ZERO_UUID
        )
    return StoredOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
