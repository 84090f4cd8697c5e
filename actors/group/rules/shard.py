"""The machine of one partition of `__consumer_offsets`: its groups and their requests.

Every handler reads the groups, appends records to its step and answers. Only `replay` changes hard
state. It runs as soon as a step appends a record, and in the same way when the log is loaded.

A group that has committed or pending offsets and never had members is `Empty` and has no protocol
type. There is no group object for it, only an entry among the offsets. As in Apache Kafka it
outlives its last offset until the next check for expired offsets, DeleteGroups, or a load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from raylog.actors.coordination.rules.step import (
    NO_CHANGE,
    Change,
    ClientCall,
    LogRecord,
    Several,
    Step,
    TimerKey,
    Undo,
)
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.rules import listing, offsets, transactions
from raylog.actors.group.rules.classic import ClassicGroup, check_join, check_sync, create
from raylog.actors.group.rules.classic.metadata import delete as delete_classic
from raylog.actors.group.rules.consumer import RECORD_KEYS, ConsumerGroup
from raylog.actors.group.rules.consumer.context import REGEX_TIMER, cancel_timers
from raylog.actors.group.rules.consumer.migration import settle as settle_migration
from raylog.actors.group.rules.consumer.migration import upgrade
from raylog.actors.group.rules.consumer.requests import check_fields
from raylog.actors.group.rules.existing import NOTHING_DELETED, ExistingTopics
from raylog.actors.group.rules.failures import DeleteGroupPart, ListGroupsPart, failed
from raylog.actors.group.rules.gradual import GradualResponse, InTurns
from raylog.actors.group.rules.listing import Group
from raylog.actors.group.rules.offset_fetch import fetch_offsets
from raylog.actors.group.rules.offset_store import OffsetStore, Partitions
from raylog.actors.group.rules.settings import GroupSettings
from raylog.actors.group.rules.sweeping import Part, parts
from raylog.actors.transaction.messages import Marker
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
"""From this version on, OffsetCommit carries member epochs (KIP-848)."""
EPOCH_AT_EVERY_END_SINCE = 2
"""The transaction version that raises the producer epoch at the end of each transaction."""
JOIN_EPOCH = 0
"""The member epoch with which a member joins a KIP-848 group."""
Describe = DescribeGroupsRequest | ConsumerGroupDescribeRequest


class Shard:
    """The machine of one partition; it receives only requests for its own groups."""

    def __init__(
        self,
        settings: GroupSettings,
        assigning: Assigning,
        deleted: Mapping[str, int] = NOTHING_DELETED,
    ) -> None:
        """`deleted` maps names of deleted topics to the times at which the deletions were seen.

        An entry stays until the log has the tombstones of the topic's offsets.
        """
        self._deleted = deleted
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self._displaced: list[ClassicGroup] = []
        """Groups whose creation was reverted, together with their waiting requests."""
        self._settings = settings
        self._assigning = assigning

    # ---- events --------------------------------------------------------------------------

    def handle(self, step: Step, call: ClientCall[Any]) -> None:
        """Answer a request, now or later."""
        try:
            _HANDLERS[type(call.request)](self, step, call)
        except KafkaError as failure:
            response = failed(call.request, call.version, failure)
            (step.answer if step.records else step.answer_now)(call, response)

    def timer(self, step: Step, group_id: str, key: TimerKey) -> None:
        """Handle a group's timer."""
        group = self.groups.get(group_id)
        if group is not None:
            group.timer(step, key)
            self._settle(step, group)

    def loaded(self, step: Step, group_ids: Iterable[str] | None = None) -> None:
        """Start the sessions of these groups, or of all, after the log was replayed."""
        for group_id in tuple(self.groups) if group_ids is None else group_ids:
            group = self.groups.get(group_id)
            if group is not None:
                group.loaded(step)

    def unload(self) -> list[ClientCall[Any]]:
        """Stop coordinating these groups; return the waiting requests."""
        for group_id in self.groups:
            self._assigning.forget(group_id)
        return [call for group in self.groups.values() for call in group.unload()]

    def topics_changed(self, step: Step, names: AbstractSet[str], group_ids: Iterable[str]) -> None:
        """Update KIP-848 groups after topics were created, deleted, or got more partitions.

        For the offsets of deleted topics, whose names may be in use again, see `forget_gone`.
        """
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.metadata_changed(step, names)

    def walk(self, topics: Collection[str] | None = None) -> Iterator[Part]:
        """Walk over the offsets that all groups have committed for these topics, or for all."""
        return parts(self.offsets, self.group_ids(), topics)

    def forget_gone(self, step: Step, found: Iterable[Part]) -> None:
        """Forget the offsets among these whose topics are deleted."""
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
        """Continue with the result of an assignor that ran in another process."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.assignment_is_ready(step)

    def group_ids(self) -> list[str]:
        """Return every group that has members, offsets or a record of its own."""
        others = self.offsets.groups
        return [*self.groups, *(group_id for group_id in others if group_id not in self.groups)]

    def expire(self, step: Step, found: Sequence[Part]) -> None:
        """Forget expired offsets, and groups that have nothing left.

        Also forgets offsets of deleted topics. The subscriptions of these groups must have been
        read.
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
        """Return what `topics_of` must read to know which topics these groups read."""
        groups = {group_id: self.groups.get(group_id) for group_id in group_ids}
        return {
            group_id: unread
            for group_id, group in groups.items()
            if isinstance(group, ClassicGroup) and (unread := group.unread_subscriptions())
        }

    def subscriptions_were_read(
        self, group_id: str, subscriptions: tuple[bytes, ...], topics: frozenset[str] | None
    ) -> None:
        """Set the result of `topics_of`; ignored if it is outdated."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            group.subscriptions_were_read(subscriptions, topics)

    def _bury(self, step: Step, group_id: str) -> None:
        """Delete a group without members and offsets, if it exists."""
        group = self.groups.get(group_id)
        if group is not None:
            group.delete(step)
        elif group_id in self.offsets.groups:
            delete_classic(group_id, step)

    def may_end(self, marker: Marker) -> bool:
        """Whether the offsets allow a marker to end the open transaction; the log also checks.

        In version 2 the end of a transaction has a higher epoch than its contents (KIP-890).
        """
        if marker.transaction_version < EPOCH_AT_EVERY_END_SINCE:
            return True
        return marker.producer_epoch > self.offsets.pending.epoch_of(marker.producer_id)

    # ---- replay --------------------------------------------------------------------------

    def replay(self, record: LogRecord) -> Change:
        """Apply a record."""
        key = record.key
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            return self.offsets.replay(key, record.value)  # type: ignore[arg-type]  # a pair by its key
        if isinstance(key, GroupMetadataKey):
            return self._replay_classic(key.group, record)
        if isinstance(key, RECORD_KEYS):
            return self._replay_consumer(key.group_id, record)  # type: ignore[attr-defined]  # all have it
        return NO_CHANGE

    def replay_in(self, request: TxnOffsetCommitRequest) -> Callable[[LogRecord], Change]:
        """Return the replay function for a request with offsets of an open transaction.

        These offsets are confirmed or reverted together, by their numbers.
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
        """Apply a record of a classic group.

        A group that changes its protocol leaves a tombstone.
        """
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
        """Replace the current group."""
        before = self.groups.get(group_id)
        self.groups[group_id] = group
        return Undo(partial(self._put_back, group_id, before))

    def _removed(self, group_id: str, changed: Change) -> Change:
        """Remove a group whose tombstone was applied as `changed`."""
        group = self.groups.pop(group_id)
        self._assigning.forget(group_id)
        gone = Undo(partial(self._put_back, group_id, group))
        return Several(changed, gone, self.offsets.bury(group_id))

    def _put_back(self, group_id: str, group: Group | None) -> None:
        """Restore the previous group, or remove the group if there was none."""
        displaced = self.groups.pop(group_id, None)
        if isinstance(displaced, ClassicGroup):
            self._displaced.append(displaced)
        if group is not None:
            self.groups[group_id] = group

    def reverted(self, step: Step, records: Sequence[LogRecord], failure: KafkaError) -> None:
        """Repair the groups whose records the log has refused.

        Requests that wait in a group whose creation was reverted get the failure.
        """
        displaced, self._displaced = self._displaced, []
        for one in displaced:
            one.cancel_timers(step)
            for call in one.unload():
                step.answer_now(call, failed(call.request, call.version, failure))
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
        """Cancel the timers of a reverted KIP-848 group, or of a reverted member."""
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

    def _join(self, step: Step, call: ClientCall[JoinGroupRequest]) -> None:
        request = call.request
        group_id = _required(request.group_id)
        check_join(request, self._settings, call.client_id)
        group = self.groups.get(group_id)
        if group is None or (isinstance(group, ConsumerGroup) and group.is_empty()):
            if request.member_id:
                raise UnknownMemberId(f"there is no group {group_id} with members")
            if group is not None:
                group.delete(step)
            create(step, group_id)
        group = self._member_group(group_id)
        try:
            group.join(step, call)
        except KafkaError as failure:
            if isinstance(group, ClassicGroup):
                raise
            # Kafka does not repeat the member id when a KIP-848 group refuses.
            refused = failed(JoinGroupRequest(), call.version, failure)
            (step.answer if step.records else step.answer_now)(call, refused)
        self._settle(step, group)

    def _sync(self, step: Step, call: ClientCall[SyncGroupRequest]) -> None:
        check_sync(call.request, call.version)
        self._member_group(call.request.group_id).sync(step, call)

    def _heartbeat(self, step: Step, call: ClientCall[HeartbeatRequest]) -> None:
        self._member_group(call.request.group_id).heartbeat(step, call)

    def _leave(self, step: Step, call: ClientCall[LeaveGroupRequest]) -> None:
        group = self._member_group(call.request.group_id)
        group.leave(step, call)
        self._settle(step, group)

    def _member_group(self, group_id: str) -> Group:
        """Return the group of a classic member; raises UnknownMemberId if there is none."""
        group = self.groups.get(_required(group_id))
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id}")
        return group

    def _settle(self, step: Step, group: Group) -> None:
        """Complete the downgrade of a group whose last KIP-848 member has left."""
        if isinstance(group, ConsumerGroup):
            settle_migration(step, group, self.groups)

    def _consumer_heartbeat(
        self, step: Step, call: ClientCall[ConsumerGroupHeartbeatRequest]
    ) -> None:
        request = call.request
        group_id = request.group_id
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            upgrade(step, group, self._settings, call)
            group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.consumer_heartbeat(step, call)
            self._settle(step, group)
            return
        check_fields(request, call.version, self._settings.consumer_assignors)
        if request.member_epoch != JOIN_EPOCH:
            kind = "Consumer group" if request.member_epoch > JOIN_EPOCH else "Group"
            raise GroupIdNotFound(f"{kind} {group_id} not found.")
        fresh = self.groups[group_id] = self._new_consumer(group_id)
        try:
            fresh.consumer_heartbeat(step, call)
        finally:
            if fresh.is_new() and self.groups.get(group_id) is fresh:
                del self.groups[group_id]

    # ---- offsets -------------------------------------------------------------------------

    def _commit(self, step: Step, call: ClientCall[OffsetCommitRequest]) -> None:
        offsets.commit(
            step,
            call,
            lambda: self._check_commit(step, call),
            self._settings.offset_metadata_bytes_max,
        )

    def _check_commit(self, step: Step, call: ClientCall[OffsetCommitRequest]) -> None:
        request = call.request
        group = self.groups.get(request.group_id)
        if group is not None:
            group.check_commit(step, request, call.version)
        elif request.generation_id_or_member_epoch >= 0:
            if request.group_id in self.offsets.groups:
                raise UnknownMemberId(f"group {request.group_id} has no members")
            if call.version >= EPOCHS_IN_COMMITS_SINCE:
                raise GroupIdNotFound(f"there is no group {request.group_id}")
            raise IllegalGeneration(f"there is no group {request.group_id}")

    def _commit_in_transaction(self, step: Step, call: ClientCall[TxnOffsetCommitRequest]) -> None:
        """Commit offsets; the step's `replay` must be `replay_in` of the request."""
        _required(call.request.group_id)
        transactions.commit(
            step,
            call,
            lambda: self._check_transactional_commit(step, call.request),
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

    def _fetch(self, step: Step, call: ClientCall[OffsetFetchRequest]) -> None:
        """Answer with committed offsets.

        As in Kafka, a stable fetch waits for everything that was requested before it. Other fetches
        return what is committed now, even if the log then fails.
        """
        request = call.request
        answer = step.answer if request.require_stable else step.answer_now
        answer(call, self._fetch_offsets(step, request, call.version).whole())

    def _tell(self, step: Step, call: ClientCall[InTurns]) -> None:
        """Answer with a GradualResponse."""
        request = call.request.request
        if isinstance(request, OffsetFetchRequest):
            answer = step.answer if request.require_stable else step.answer_now
            answer(call, self._fetch_offsets(step, request, call.version))
        else:
            step.answer(call, self._describing(step, request, call.version))

    def _fetch_offsets(
        self, step: Step, request: OffsetFetchRequest, version: int
    ) -> GradualResponse[OffsetFetchResponse]:
        existing = ExistingTopics(step.image, self._deleted)
        return fetch_offsets(self.groups, self.offsets, existing, request, version)

    def _delete_offsets(self, step: Step, call: ClientCall[OffsetDeleteRequest]) -> None:
        group_id = _required(call.request.group_id)
        group = self.groups.get(group_id)
        if group is None:
            self._require(group_id)
        elif not group.is_empty() and group.protocol_type != "consumer":
            raise NonEmptyGroup(f"group {group_id} has members")
        subscribes = _nothing if group is None or group.is_empty() else group.subscribes
        offsets.delete(step, call, self.offsets_of(group_id), subscribes)

    # ---- groups as a whole ---------------------------------------------------------------

    def _require(self, group_id: str) -> None:
        if group_id not in self.groups and group_id not in self.offsets.groups:
            raise GroupIdNotFound(f"Group {group_id} not found.")

    def _list(self, step: Step, call: ClientCall[ListGroupsPart]) -> None:
        step.answer(call, listing.listed(self.groups, self.offsets, call.request))

    def _describe(self, step: Step, call: ClientCall[Describe]) -> None:
        step.answer(call, self._describing(step, call.request, call.version).whole())

    def _describing(self, step: Step, request: Describe, version: int) -> GradualResponse[Any]:
        if isinstance(request, ConsumerGroupDescribeRequest):
            return listing.consumer_describing(self.groups, self.offsets, step.image, request)
        return listing.describing(self.groups, self.offsets, request, version)

    def _delete(self, step: Step, call: ClientCall[DeleteGroupsRequest]) -> None:
        results = []
        for group_id in call.request.groups_names:
            code = ErrorCode.NONE
            try:
                self._delete_group(step, group_id)
            except KafkaError as failure:
                code = failure.code
            results.append(DeletableGroupResult(group_id=group_id, error_code=int(code)))
        step.answer(call, DeleteGroupsResponse(results=results))

    def _delete_group(self, step: Step, group_id: str) -> None:
        self._check_deletable(group_id)
        offsets.forget(step, group_id, self.offsets_of(group_id))
        self._bury(step, group_id)

    def _delete_part(self, step: Step, call: ClientCall[DeleteGroupPart]) -> None:
        group_id = call.request.group_id
        self._check_deletable(group_id)
        found = self.offsets_of(group_id)
        offsets.forget(step, group_id, [one for one in call.request.partitions if one in found])
        step.answer(call, DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id)]))

    def _check_deletable(self, group_id: str) -> None:
        self._require(group_id)
        group = self.groups.get(group_id)
        if group is not None and not group.is_empty():
            raise NonEmptyGroup(f"group {group_id} has members")

    def offsets_of(self, group_id: str) -> Collection[tuple[str, int]]:
        """Return every partition for which the group has a committed or a pending offset."""
        pending = self.offsets.pending.of(group_id)
        return offsets.all_partitions(self.offsets.of(group_id), pending)


def _required(group_id: str) -> str:
    """Return the group id; raises if it is empty, which only requests about offsets allow."""
    if not group_id:
        raise InvalidGroupId("the group id is empty")
    return group_id


def _nothing(_topic: str) -> bool:
    return False


def _itself(commit_ms: int) -> int:
    return commit_ms


_HANDLERS: dict[type, Callable[[Shard, Step, ClientCall[Any]], None]] = {
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
    ConsumerGroupDescribeRequest: Shard._describe,
    DeleteGroupsRequest: Shard._delete,
    DeleteGroupPart: Shard._delete_part,
}
