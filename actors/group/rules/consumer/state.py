"""The recorded state of a KIP-848 group; changed only by `replay`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from raylog.actors.common_messages import TopicId
from raylog.actors.coordination.rules.step import NO_CHANGE, Change, LogRecord, Undo, put
from raylog.actors.group.rules.consumer.member import (
    Epochs,
    Holding,
    Partitions,
    Profile,
    holding_of,
    profile_of,
)
from raylog.wire.internal.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

FIRST_EPOCH = 1
"""The epoch of a group without records, as in Kafka. A member that subscribes to nothing stays at
this epoch."""


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a pattern matched."""

    topics: frozenset[str]
    version: int
    """The metadata offset against which it was resolved."""
    timestamp_ms: int


@dataclass(slots=True)
class GroupState:
    """Members, target and epochs. Every partition in `owners` has an owner.

    Replay accepts records in any order that compaction may leave: anything missing has a default,
    and the tombstone of something unknown is ignored.
    """

    group_epoch: int = FIRST_EPOCH
    """Incremented when members, subscriptions or topics change."""
    metadata_hash: int = 0
    """Hash over the subscribed topics; 0 if none of them exists, or if unknown."""
    target_epoch: int = FIRST_EPOCH
    """The group epoch for which the target was computed."""
    target_timestamp_ms: int = 0
    """The time at which it was computed; 0 if never, or if unknown."""
    profiles: dict[str, Profile] = field(default_factory=dict)
    """The members, by member id."""
    holdings: dict[str, Holding] = field(default_factory=dict)
    targets: dict[str, Partitions] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    """Member id by instance id."""
    topic_counts: Counter[str] = field(default_factory=Counter)
    """How many members subscribe to a topic by name."""
    regex_counts: Counter[str] = field(default_factory=Counter)
    """How many members subscribe with a pattern."""
    owners: dict[TopicId, dict[int, set[str]]] = field(default_factory=dict)
    """Member ids by partition, for assigned partitions and for those being revoked.

    A partition has one owner, unless the assignor shares partitions between members.
    """

    def replay(self, record: LogRecord) -> Change:
        """Apply a record."""
        return _REPLAY[type(record.key)](self, record.key, record.value)

    def holding(self, member_id: str) -> Holding:
        """Return what a member owns."""
        return self.holdings.get(member_id, _NOTHING)

    def target(self, member_id: str) -> Partitions:
        """Return what a member should own; empty if it is not in the target yet."""
        return self.targets.get(member_id, _NO_PARTITIONS)

    def weight(self) -> int:
        """Return the number of members, plus the partitions that they own and should own."""
        return len(self.profiles) + 2 * sum(map(len, self.owners.values()))

    def is_free(self, topic_id: TopicId, partition: int) -> bool:
        """Whether no member has to give up the partition first.

        A member that owns it and should keep it shares it with the others that should own it.
        """
        return all(
            partition in self.target(member_id).get(topic_id, ())
            for member_id in self.owners.get(topic_id, _NO_OWNERS).get(partition, ())
        )

    def topics_of(self, profile: Profile) -> frozenset[str]:
        """Return the topics that a member subscribes to; a pattern counts as last resolved."""
        names = frozenset(profile.topic_names)
        resolved = self.regexes.get(profile.topic_regex)
        return names if resolved is None else names | resolved.topics

    def subscribed(self) -> set[str]:
        """Return the topics that any member subscribes to."""
        names = set(self.topic_counts)
        for regex in self.regex_counts:
            resolved = self.regexes.get(regex)
            if resolved is not None:
                names |= resolved.topics
        return names

    # ---- one record each -----------------------------------------------------------------

    def _profile(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> Change:
        member_id = key.member_id
        old = self._put_profile(member_id, None if value is None else profile_of(value))
        return Undo(lambda: self._put_profile(member_id, old))

    def _put_profile(self, member_id: str, profile: Profile | None) -> Profile | None:
        """Replace a member's profile; return the previous one."""
        old = self.profiles.pop(member_id, None)
        if old is not None:
            self._count(old, -1)
            if self.static_ids.get(old.instance_id or "") == member_id:
                del self.static_ids[old.instance_id or ""]
        if profile is not None:
            self.profiles[member_id] = profile
            self._count(profile, 1)
            if profile.instance_id is not None:
                self.static_ids[profile.instance_id] = member_id
        return old

    def _count(self, profile: Profile, step: int) -> None:
        for name in profile.topic_names:
            _add(self.topic_counts, name, step)
        if profile.topic_regex:
            _add(self.regex_counts, profile.topic_regex, step)

    def _set(self, **values: Any) -> Change:
        """Set fields; the previous values stay untouched for a revert."""
        before = {name: getattr(self, name) for name in values}

        def put(found: dict[str, Any]) -> None:
            for name, value in found.items():
                setattr(self, name, value)

        put(values)
        return Undo(partial(put, before))

    def _epoch(
        self, _key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
    ) -> Change:
        if value is not None:
            return self._set(group_epoch=value.epoch, metadata_hash=value.metadata_hash)
        nothing = GroupState()  # the whole group is deleted
        return self._set(**{one.name: getattr(nothing, one.name) for one in fields(nothing)})

    def _target_epoch(
        self,
        _key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> Change:
        if value is None:
            return self._set(targets={}, target_epoch=FIRST_EPOCH, target_timestamp_ms=0)
        return self._set(
            target_epoch=value.assignment_epoch, target_timestamp_ms=value.assignment_timestamp
        )

    def _target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> Change:
        partitions = None
        if value is not None:
            partitions = {
                TopicId(bytes(one.topic_id)): frozenset(one.partitions)
                for one in value.topic_partitions
            }
        return put(self.targets, key.member_id, partitions)

    def _holding(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> Change:
        member_id = key.member_id
        old = self._put_holding(member_id, None if value is None else holding_of(value))
        return Undo(lambda: self._put_holding(member_id, old))

    def _put_holding(self, member_id: str, holding: Holding | None) -> Holding | None:
        """Replace what a member owns; return what it owned before."""
        old = self.holdings.pop(member_id, None)
        if old is not None:
            self._disown(member_id, old.assigned)
            self._disown(member_id, old.revoking)
        if holding is not None:
            self.holdings[member_id] = holding
            self._own(member_id, holding.assigned)
            self._own(member_id, holding.revoking)
        return old

    def _own(self, member_id: str, partitions: Epochs) -> None:
        for topic_id, epochs in partitions.items():
            owners = self.owners.setdefault(topic_id, {})
            for partition in epochs:
                owners.setdefault(partition, set()).add(member_id)

    def _disown(self, member_id: str, partitions: Epochs) -> None:
        for topic_id, epochs in partitions.items():
            owners = self.owners.get(topic_id, {})
            for partition in epochs:
                of_partition = owners.get(partition, set())
                of_partition.discard(member_id)
                if not of_partition:
                    owners.pop(partition, None)
            if not owners:
                self.owners.pop(topic_id, None)

    def _regex(
        self,
        key: ConsumerGroupRegularExpressionKey,
        value: ConsumerGroupRegularExpressionValue | None,
    ) -> Change:
        resolved = None
        if value is not None:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        return put(self.regexes, key.regular_expression, resolved)

    def _old_metadata(self, _key: ConsumerGroupPartitionMetadataKey, _value: object) -> Change:
        """Ignore what Kafka up to 4.0 wrote in place of the hash, which stays unknown."""
        return NO_CHANGE


_NOTHING = Holding()
_NO_PARTITIONS: Partitions = {}
_NO_OWNERS: dict[int, set[str]] = {}


def _add(counts: Counter[str], name: str, step: int) -> None:
    counts[name] += step
    if not counts[name]:
        del counts[name]


_REPLAY: dict[type, Callable[[GroupState, Any, Any], Change]] = {
    ConsumerGroupMemberMetadataKey: GroupState._profile,
    ConsumerGroupMetadataKey: GroupState._epoch,
    ConsumerGroupTargetAssignmentMetadataKey: GroupState._target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: GroupState._target,
    ConsumerGroupCurrentMemberAssignmentKey: GroupState._holding,
    ConsumerGroupRegularExpressionKey: GroupState._regex,
    ConsumerGroupPartitionMetadataKey: GroupState._old_metadata,
}
RECORD_KEYS = tuple(_REPLAY)
"""The keys of records that belong to groups of this kind."""
