"""The groups of one partition of `__consumer_offsets`: a machine fed with requests and records.

Every handler looks at the groups, appends records to its step and answers; `replay` alone changes
hard state, at once for what a step appends and in the same code for what is loaded from the log.

A group that has committed or pending offsets and never had members is `Empty` and of no protocol
type. No object is kept for it: its place among the offsets is all there is. It outlives the last of
them, as in Apache Kafka, until the next look for expired ones, DeleteGroups, or a load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from raylog.actors.coordination.step import (
    NO_CHANGE,
    Asked,
    Change,
    LogRecord,
    Several,
    Step,
    TimerKey,
    Undo,
)
from raylog.actors.group import listing, offsets, transactions
from raylog.actors.group.api import DeleteGroupPart, ListGroupsPart, failed
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.classic import ClassicGroup, check_join, check_sync, create
from raylog.actors.group.classic.metadata import delete as delete_classic
from raylog.actors.group.consumer import RECORD_KEYS, ConsumerGroup
from raylog.actors.group.consumer.context import REGEX_TIMER, cancel_timers
from raylog.actors.group.consumer.migration import settle as settle_migration
from raylog.actors.group.consumer.migration import upgrade
from raylog.actors.group.consumer.requests import check_fields
from raylog.actors.group.existing import NOTHING_DELETED, ExistingTopics
from raylog.actors.group.fetching import fetching
from raylog.actors.group.listing import Group
from raylog.actors.group.offset_store import OffsetStore, Partitions
from raylog.actors.group.settings import GroupSettings
from raylog.actors.group.sweeping import Part, parts
from raylog.actors.group.telling import InTurns, Telling
from raylog.actors.transaction.api import Marker
from raylog.wire.errors import (
    ErrorCode,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    KafkaError,
    NonEmptyGroup,
    UnknownMemberId,
)
from raylog.wire.internal.consumer_groups import ConsumerGroupMetadataKey
from raylog.wire.internal.offsets import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequest
from raylog.wire.messages.leave_group import LeaveGroupRequest
from raylog.wire.messages.offset_commit import OffsetCommitRequest
from raylog.wire.messages.offset_delete import OffsetDeleteRequest
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from raylog.wire.messages.sync_group import SyncGroupRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

EPOCHS_IN_COMMITS_SINCE = 9
"""The version of OffsetCommit that carries member epochs (KIP-848)."""
EPOCH_AT_EVERY_END_SINCE = 2
"""The transaction version that raises a producer's epoch at the end of each transaction."""
JOIN_EPOCH = 0
"""The member epoch with which a member joins a KIP-848 group."""


class Shard:
    """The machine of one partition. Requests for other partitions' groups are not its business."""

    def __init__(
        self,
        settings: GroupSettings,
        assigning: Assigning,
        deleted: Mapping[str, int] = NOTHING_DELETED,
    ) -> None:
        """`deleted` has when topics were seen to be deleted, by name.

        It has them until the log has the tombstones of their offsets.
        """
        self._deleted = deleted
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self._displaced: list[ClassicGroup] = []
        """Groups that were none after all, with who waits in them."""
        self._settings = settings
        self._assigning = assigning

    # ---- events --------------------------------------------------------------------------

    def handle(self, step: Step, asked: Asked[Any]) -> None:
        """Answer a request, now or later."""
        try:
            _HANDLERS[type(asked.request)](self, step, asked)
        except KafkaError as failure:
            response = failed(asked.request, asked.version, failure)
            (step.answer if step.records else step.answer_now)(asked, response)

    def timer(self, step: Step, group_id: str, key: TimerKey) -> None:
        """A timer of a group fired."""
        group = self.groups.get(group_id)
        if group is not None:
            group.timer(step, key)
            self._settle(step, group)

    def loaded(self, step: Step, group_ids: Iterable[str] | None = None) -> None:
        """Everything in the log was replayed: sessions begin, of all groups or of these."""
        for group_id in tuple(self.groups) if group_ids is None else group_ids:
            group = self.groups.get(group_id)
            if group is not None:
                group.loaded(step)

    def unload(self) -> list[Asked[Any]]:
        """This broker coordinates these groups no longer; returns who waits for an answer."""
        for group_id in self.groups:
            self._assigning.forget(group_id)
        return [asked for group in self.groups.values() for asked in group.unload()]

    def topics_changed(self, step: Step, names: AbstractSet[str], group_ids: Iterable[str]) -> None:
        """Topics were deleted, created, or have more partitions: KIP-848 groups assign anew.

        Offsets of deleted topics go with them, though others may have their names by now: see
        `forget_gone`.
        """
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.metadata_changed(step, names)

    def walk(self, topics: Collection[str] | None = None) -> Iterator[Part]:
        """Of all groups, what they have committed of these topics, or of all."""
        return parts(self.offsets, self.group_ids(), topics)

    def forget_gone(self, step: Step, found: Iterable[Part]) -> None:
        """Forget those of these offsets that are of topics that are gone."""
        existing = ExistingTopics(step.image, self._deleted)
        for group_id, topic, partitions in found:
            if topic is None:
                continue
            stored = self._stored(group_id, topic, partitions)
            pending = self.offsets.pending.of(group_id)
            waiting = {
                (topic, at): pending[topic, at] for at in partitions if (topic, at) in pending
            }
            offsets.forget(step, group_id, list(existing.lack({topic: stored}, waiting)))

    def _stored(self, group_id: str, topic: str, partitions: Iterable[int]) -> Partitions:
        found = self.offsets.of(group_id).get(topic, {})
        return {at: found[at] for at in partitions if at in found}

    def assignment_is_ready(self, step: Step, group_id: str) -> None:
        """What an assignor worked out elsewhere is there."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.assignment_is_ready(step)

    def group_ids(self) -> list[str]:
        """Every group that has members, offsets or a record of its own."""
        others = self.offsets.groups
        return [*self.groups, *(group_id for group_id in others if group_id not in self.groups)]

    def expire(self, step: Step, found: Sequence[Part]) -> None:
        """Forget offsets that were kept long enough, and groups of which nothing is left.

        Those of topics that are gone go as well. The subscriptions of these groups have been read.
        """
        self.forget_gone(step, found)
        for group_id, topic, partitions in found:
            group = self.groups.get(group_id)
            if topic is not None:
                gone = offsets.expired(
                    {topic: self._stored(group_id, topic, partitions)},
                    self.offsets.pending.of(group_id),
                    step.now_ms,
                    self._settings.offsets_retention_ms,
                    _nothing if group is None else group.subscribes,
                    _itself if group is None else group.offset_expires_after,
                )
                offsets.forget(step, group_id, list(gone))
                continue
            left = self.offsets.of(group_id) or self.offsets.pending.of(group_id)
            if not left and (group is None or group.is_empty()):
                self._bury(step, group_id)

    def unread_subscriptions(self, group_ids: Iterable[str]) -> dict[str, tuple[bytes, ...]]:
        """What `topics_of` has to read before it is known which topics these groups read."""
        groups = {group_id: self.groups.get(group_id) for group_id in group_ids}
        return {
            group_id: unread
            for group_id, group in groups.items()
            if isinstance(group, ClassicGroup) and (unread := group.unread_subscriptions())
        }

    def subscriptions_were_read(
        self, group_id: str, subscriptions: tuple[bytes, ...], topics: frozenset[str] | None
    ) -> None:
        """Take what `topics_of` has made of them; harmless where that is out of date."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            group.subscriptions_were_read(subscriptions, topics)

    def _bury(self, step: Step, group_id: str) -> None:
        """Forget a group without members and offsets; harmless where there is none."""
        group = self.groups.get(group_id)
        if group is not None:
            group.delete(step)
        elif group_id in self.offsets.groups:
            delete_classic(group_id, step)

    def may_end(self, marker: Marker) -> bool:
        """Whether a marker is of the open transaction as far as offsets tell; the log knows more.

        In version 2 the end of a transaction has a higher epoch than what is in it (KIP-890).
        """
        if marker.transaction_version < EPOCH_AT_EVERY_END_SINCE:
            return True
        return marker.producer_epoch > self.offsets.pending.epoch_of(marker.producer_id)

    # ---- replay --------------------------------------------------------------------------

    def replay(self, record: LogRecord) -> Change:
        """Take in a record."""
        key = record.key
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            return self.offsets.replay(key, record.value)  # type: ignore[arg-type]  # a pair by its key
        if isinstance(key, GroupMetadataKey):
            return self._replay_classic(key.group, record)
        if isinstance(key, RECORD_KEYS):
            return self._replay_consumer(key.group_id, record)  # type: ignore[attr-defined]  # all have it
        return NO_CHANGE

    def replay_in(self, request: TxnOffsetCommitRequest) -> Callable[[LogRecord], Change]:
        """What takes in the records that come of a request: offsets of an open transaction.

        They are confirmed or reverted by their numbers, all at once.
        """
        producer = transactions.producer_of(request)

        def replay(record: LogRecord) -> Change:
            key, value = record.key, record.value
            assert isinstance(key, OffsetCommitKey), "only offsets are written in transactions"
            assert isinstance(value, OffsetCommitValue), "a tombstone stands outside of them"
            self.offsets.replay_pending(producer, key, value)
            return NO_CHANGE

        return replay

    def _replay_classic(self, group_id: str, record: LogRecord) -> Change:
        """A group that has changed its protocol leaves a tombstone of what it was."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            changed = group.replay(record)
            return self._removed(group_id, changed) if record.value is None else changed
        if record.value is None:
            return self.offsets.bury(group_id)
        fresh = ClassicGroup(group_id, self._settings)
        return Several(self._placed(group_id, fresh), fresh.replay(record))

    def _replay_consumer(self, group_id: str, record: LogRecord) -> Change:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            changed = group.replay(record)
            is_gone = record.value is None and isinstance(record.key, ConsumerGroupMetadataKey)
            return self._removed(group_id, changed) if is_gone else changed
        if record.value is None:
            return NO_CHANGE
        fresh = self._new_consumer(group_id)
        return Several(self._placed(group_id, fresh), fresh.replay(record))

    def _placed(self, group_id: str, group: Group) -> Change:
        """Put a group in the place of whatever is there."""
        before = self.groups.get(group_id)
        self.groups[group_id] = group
        return Undo(partial(self._put_back, group_id, before))

    def _removed(self, group_id: str, changed: Change) -> Change:
        """Take a group away, whose tombstone has `changed` it."""
        group = self.groups.pop(group_id)
        self._assigning.forget(group_id)
        gone = Undo(partial(self._put_back, group_id, group))
        return Several(changed, gone, self.offsets.bury(group_id))

    def _put_back(self, group_id: str, group: Group | None) -> None:
        """A group is there again, or none, instead of the one that is there now."""
        displaced = self.groups.pop(group_id, None)
        if isinstance(displaced, ClassicGroup):
            self._displaced.append(displaced)
        if group is not None:
            self.groups[group_id] = group

    def reverted(self, step: Step, records: Sequence[LogRecord], failure: KafkaError) -> None:
        """The log has refused these records: see to the groups that they were about.

        Who waits in a group that never was is told.
        """
        displaced, self._displaced = self._displaced, []
        for one in displaced:
            one.cancel_timers(step)
            for asked in one.unload():
                step.answer_now(asked, failed(asked.request, asked.version, failure))
        of_classic = [key.group for key, _, _ in records if isinstance(key, GroupMetadataKey)]
        of_consumer: list[Any] = [key for key, _, _ in records if isinstance(key, RECORD_KEYS)]
        group_ids = dict.fromkeys([*of_classic, *(key.group_id for key in of_consumer)])
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup) and group.is_new():
                del self.groups[group_id]
                self._assigning.forget(group_id)
        for key in of_consumer:
            self._forget_timers(step, key.group_id, getattr(key, "member_id", None))
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if group is not None:
                group.reverted(step)

    def _forget_timers(self, step: Step, group_id: str, member_id: str | None) -> None:
        """Cancel what a KIP-848 group that is none waits for, or a member that is none."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            step.cancel_timer(group_id, REGEX_TIMER)
        if member_id is not None and not (
            isinstance(group, ConsumerGroup) and member_id in group.state.profiles
        ):
            cancel_timers(step, group_id, member_id)

    def _new_consumer(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._settings, self._assigning)

    # ---- members -------------------------------------------------------------------------

    def _join(self, step: Step, asked: Asked[JoinGroupRequest]) -> None:
        request = asked.request
        group_id = _required(request.group_id)
        check_join(request, self._settings, asked.client_id)
        group = self.groups.get(group_id)
        if group is None or (isinstance(group, ConsumerGroup) and group.is_empty()):
            if request.member_id:
                raise UnknownMemberId(f"there is no group {group_id} with members")
            if group is not None:
                group.delete(step)
            create(step, group_id)
        group = self._member_group(group_id)
        try:
            group.join(step, asked)
        except KafkaError as failure:
            if isinstance(group, ClassicGroup):
                raise
            # Kafka does not repeat the member id in a KIP-848 group's refusal.
            refused = failed(JoinGroupRequest(), asked.version, failure)
            (step.answer if step.records else step.answer_now)(asked, refused)
        self._settle(step, group)

    def _sync(self, step: Step, asked: Asked[SyncGroupRequest]) -> None:
        check_sync(asked.request, asked.version)
        self._member_group(asked.request.group_id).sync(step, asked)

    def _heartbeat(self, step: Step, asked: Asked[HeartbeatRequest]) -> None:
        self._member_group(asked.request.group_id).heartbeat(step, asked)

    def _leave(self, step: Step, asked: Asked[LeaveGroupRequest]) -> None:
        group = self._member_group(asked.request.group_id)
        group.leave(step, asked)
        self._settle(step, group)

    def _member_group(self, group_id: str) -> Group:
        """The group that a classic member belongs to; without one it is no member."""
        group = self.groups.get(_required(group_id))
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id}")
        return group

    def _settle(self, step: Step, group: Group) -> None:
        """A KIP-848 group whose last such member has gone is a classic one by now."""
        if isinstance(group, ConsumerGroup):
            settle_migration(step, group, self.groups)

    def _consumer_heartbeat(self, step: Step, asked: Asked[ConsumerGroupHeartbeatRequest]) -> None:
        request = asked.request
        group_id = request.group_id
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            upgrade(step, group, self._settings, asked)
            group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.consumer_heartbeat(step, asked)
            self._settle(step, group)
            return
        check_fields(request, asked.version, self._settings.consumer_assignors)
        if request.member_epoch != JOIN_EPOCH:
            kind = "Consumer group" if request.member_epoch > JOIN_EPOCH else "Group"
            raise GroupIdNotFound(f"{kind} {group_id} not found.")
        fresh = self.groups[group_id] = self._new_consumer(group_id)
        try:
            fresh.consumer_heartbeat(step, asked)
        finally:
            if fresh.is_new() and self.groups.get(group_id) is fresh:
                del self.groups[group_id]

    # ---- offsets -------------------------------------------------------------------------

    def _commit(self, step: Step, asked: Asked[OffsetCommitRequest]) -> None:
        offsets.commit(
            step,
            asked,
            lambda: self._check_commit(step, asked),
            self._settings.offset_metadata_bytes_max,
        )

    def _check_commit(self, step: Step, asked: Asked[OffsetCommitRequest]) -> None:
        request = asked.request
        group = self.groups.get(request.group_id)
        if group is not None:
            group.check_commit(step, request, asked.version)
        elif request.generation_id_or_member_epoch >= 0:
            if request.group_id in self.offsets.groups:
                raise UnknownMemberId(f"group {request.group_id} has no members")
            if asked.version >= EPOCHS_IN_COMMITS_SINCE:
                raise GroupIdNotFound(f"there is no group {request.group_id}")
            raise IllegalGeneration(f"there is no group {request.group_id}")

    def _commit_in_transaction(self, step: Step, asked: Asked[TxnOffsetCommitRequest]) -> None:
        """The step's `replay` is to be `replay_in` of the request."""
        _required(asked.request.group_id)
        transactions.commit(
            step,
            asked,
            lambda: self._check_transactional_commit(step, asked.request),
            self._settings.offset_metadata_bytes_max,
        )

    def _check_transactional_commit(self, step: Step, request: TxnOffsetCommitRequest) -> None:
        group = self.groups.get(request.group_id)
        if group is not None:
            group.check_transactional_commit(step, request)
        elif request.generation_id >= 0:
            if request.group_id in self.offsets.groups:
                raise UnknownMemberId(f"group {request.group_id} has no members")
            raise IllegalGeneration(f"there is no group {request.group_id}")

    def _fetch(self, step: Step, asked: Asked[OffsetFetchRequest]) -> None:
        """What the answer tells is below the high watermark when it leaves.

        As in Kafka, what is stable is told once the log has all that was asked before, and
        otherwise what is committed now, whatever becomes of the log.
        """
        request = asked.request
        answer = step.answer if request.require_stable else step.answer_now
        answer(asked, self._fetching(step, request, asked.version).whole())

    def _tell(self, step: Step, asked: Asked[InTurns]) -> None:
        """Answer with a Telling."""
        request, version, image = asked.request.request, asked.version, step.image
        match request:
            case DescribeGroupsRequest():
                told: Telling[Any] = listing.describing(
                    self.groups, self.offsets, image, request, version
                )
            case ConsumerGroupDescribeRequest():
                told = listing.consumer_describing(self.groups, self.offsets, image, request)
            case _:
                told = self._fetching(step, request, version)
                if not request.require_stable:
                    step.answer_now(asked, told)
                    return
        step.answer(asked, told)

    def _fetching(
        self, step: Step, request: OffsetFetchRequest, version: int
    ) -> Telling[OffsetFetchResponse]:
        existing = ExistingTopics(step.image, self._deleted)
        return fetching(self.groups, self.offsets, existing, request, version)

    def _delete_offsets(self, step: Step, asked: Asked[OffsetDeleteRequest]) -> None:
        group_id = _required(asked.request.group_id)
        group = self.groups.get(group_id)
        if group is None:
            self._require(group_id)
        elif not group.is_empty() and group.protocol_type != "consumer":
            raise NonEmptyGroup(f"group {group_id} has members")
        subscribes = _nothing if group is None or group.is_empty() else group.subscribes
        offsets.delete(step, asked, self.offsets_of(group_id), subscribes)

    # ---- groups as a whole ---------------------------------------------------------------

    def _require(self, group_id: str) -> None:
        if group_id not in self.groups and group_id not in self.offsets.groups:
            raise GroupIdNotFound(f"Group {group_id} not found.")

    def _list(self, step: Step, asked: Asked[ListGroupsPart]) -> None:
        step.answer(asked, listing.listed(self.groups, self.offsets, asked.request))

    def _describe(self, step: Step, asked: Asked[DescribeGroupsRequest]) -> None:
        found = listing.describing(
            self.groups, self.offsets, step.image, asked.request, asked.version
        )
        step.answer(asked, found.whole())

    def _describe_consumers(self, step: Step, asked: Asked[ConsumerGroupDescribeRequest]) -> None:
        found = listing.consumer_describing(self.groups, self.offsets, step.image, asked.request)
        step.answer(asked, found.whole())

    def _delete(self, step: Step, asked: Asked[DeleteGroupsRequest]) -> None:
        results = []
        for group_id in asked.request.groups_names:
            code = ErrorCode.NONE
            try:
                self._delete_group(step, group_id)
            except KafkaError as failure:
                code = failure.code
            results.append(DeletableGroupResult(group_id=group_id, error_code=int(code)))
        step.answer(asked, DeleteGroupsResponse(results=results))

    def _delete_group(self, step: Step, group_id: str) -> None:
        self._check_deletable(group_id)
        offsets.forget(step, group_id, self.offsets_of(group_id))
        self._bury(step, group_id)

    def _delete_part(self, step: Step, asked: Asked[DeleteGroupPart]) -> None:
        group_id = asked.request.group_id
        self._check_deletable(group_id)
        found = self.offsets_of(group_id)
        offsets.forget(step, group_id, [one for one in asked.request.partitions if one in found])
        step.answer(asked, DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id)]))

    def _check_deletable(self, group_id: str) -> None:
        self._require(group_id)
        group = self.groups.get(group_id)
        if group is not None and not group.is_empty():
            raise NonEmptyGroup(f"group {group_id} has members")

    def offsets_of(self, group_id: str) -> Collection[tuple[str, int]]:
        """Every partition of which the group has a committed or a pending offset."""
        pending = self.offsets.pending.of(group_id)
        return offsets.all_partitions(self.offsets.of(group_id), pending)


def _required(group_id: str) -> str:
    """The group's id, which only offsets may do without."""
    if not group_id:
        raise InvalidGroupId("the group id is empty")
    return group_id


def _nothing(_topic: str) -> bool:
    return False


def _itself(commit_ms: int) -> int:
    return commit_ms


_HANDLERS: dict[type, Callable[[Shard, Step, Asked[Any]], None]] = {
    JoinGroupRequest: Shard._join,
    SyncGroupRequest: Shard._sync,
    HeartbeatRequest: Shard._heartbeat,
    LeaveGroupRequest: Shard._leave,
    ConsumerGroupHeartbeatRequest: Shard._consumer_heartbeat,
    OffsetCommitRequest: Shard._commit,
    TxnOffsetCommitRequest: Shard._commit_in_transaction,
    OffsetFetchRequest: Shard._fetch,
    OffsetDeleteRequest: Shard._delete_offsets,
    InTurns: Shard._tell,
    ListGroupsPart: Shard._list,
    DescribeGroupsRequest: Shard._describe,
    ConsumerGroupDescribeRequest: Shard._describe_consumers,
    DeleteGroupsRequest: Shard._delete,
    DeleteGroupPart: Shard._delete_part,
}
