"""The groups of one partition of `__consumer_offsets`: a machine fed with requests and records.

Every handler looks at the groups, appends records to its step and answers; `replay` alone changes
hard state, at once for what a step appends and in the same code for what is loaded from the log.

A group that has committed offsets and never had members is `Empty` and of no protocol type. No
object is kept for it: its offsets are all there is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from raylog.actors.group import offsets
from raylog.actors.group.api import consumer_describe_failed, describe_failed, failed
from raylog.actors.group.base import Asked, GroupRecord, Step, TimerKey
from raylog.actors.group.classic import ClassicGroup, check_join, check_sync, create
from raylog.actors.group.offsets import OffsetStore
from raylog.actors.group.settings import GroupSettings
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.errors import (
    ErrorCode,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    KafkaError,
    NonEmptyGroup,
    UnknownMemberId,
    error_of,
)
from raylog.wire.internal.offsets import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from raylog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from raylog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from raylog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequest
from raylog.wire.messages.leave_group import LeaveGroupRequest
from raylog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from raylog.wire.messages.offset_commit import OffsetCommitRequest
from raylog.wire.messages.offset_delete import OffsetDeleteRequest
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from raylog.wire.messages.sync_group import SyncGroupRequest

EMPTY = "Empty"
DEAD = "Dead"
CLASSIC_TYPE = "classic"
SEVERAL_GROUPS_SINCE = 8
NOT_FOUND_SINCE = 6
"""Versions of OffsetFetch, and of DescribeGroups, that brought these."""
EPOCHS_IN_COMMITS_SINCE = 9


class Shard:
    """The machine of one partition. Requests for other partitions' groups are not its business."""

    def __init__(self, settings: GroupSettings) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self._settings = settings

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

    def loaded(self, step: Step) -> None:
        """Everything in the log was replayed: sessions begin."""
        for group in tuple(self.groups.values()):
            group.loaded(step)
        known = step.image.topic_ids
        for group_id, topics in tuple(self.offsets.groups.items()):
            gone = {topic: stored for topic, stored in topics.items() if topic not in known}
            if gone:
                offsets.forget(step, group_id, offsets.all_partitions(gone))

    def unload(self) -> list[Asked[Any]]:
        """This broker coordinates these groups no longer; returns who waits for an answer."""
        return [asked for group in self.groups.values() for asked in group.unload()]

    def topics_deleted(self, step: Step, names: Collection[str]) -> None:
        """Offsets of deleted topics go with them."""
        for group_id, topics in tuple(self.offsets.groups.items()):
            gone = {name: topics[name] for name in names if name in topics}
            if gone:
                offsets.forget(step, group_id, offsets.all_partitions(gone))

    def expire(self, step: Step) -> None:
        """Forget offsets that were kept long enough, and groups of which nothing is left."""
        for group_id, stored in tuple(self.offsets.groups.items()):
            group = self.groups.get(group_id)
            gone = offsets.expired(
                stored,
                step.now_ms,
                self._settings.offsets_retention_ms,
                _nothing if group is None else group.subscribes,
                _itself if group is None else group.offset_expires_after,
            )
            offsets.forget(step, group_id, list(gone))
        for group_id, group in tuple(self.groups.items()):
            if group.is_empty() and group_id not in self.offsets.groups:
                group.delete(step)

    # ---- replay --------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Take in a record."""
        key = record.key
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            self.offsets.replay(key, record.value)  # type: ignore[arg-type]  # a pair by its key
        elif isinstance(key, GroupMetadataKey):
            self._replay_classic(key.group, record)

    def _replay_classic(self, group_id: str, record: GroupRecord) -> None:
        if record.value is None:
            group = self.groups.pop(group_id, None)
        else:
            group = self._classic(group_id)
        if group is not None:
            group.replay(record)

    def _classic(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings)
        return group

    # ---- the classic protocol ------------------------------------------------------------

    def _join(self, step: Step, asked: Asked[JoinGroupRequest]) -> None:
        request = asked.request
        group_id = _required(request.group_id)
        check_join(request, self._settings)
        if group_id not in self.groups:
            if request.member_id:
                raise UnknownMemberId(f"there is no group {group_id}")
            create(step, group_id)
        self.groups[group_id].join(step, asked)

    def _sync(self, step: Step, asked: Asked[SyncGroupRequest]) -> None:
        check_sync(asked.request, asked.version)
        self._member_group(asked.request.group_id).sync(step, asked)

    def _heartbeat(self, step: Step, asked: Asked[HeartbeatRequest]) -> None:
        self._member_group(asked.request.group_id).heartbeat(step, asked)

    def _leave(self, step: Step, asked: Asked[LeaveGroupRequest]) -> None:
        self._member_group(asked.request.group_id).leave(step, asked)

    def _member_group(self, group_id: str) -> ClassicGroup:
        """The group that a member belongs to; without one it is no member."""
        group = self.groups.get(_required(group_id))
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id}")
        return group

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

    def _fetch(self, step: Step, asked: Asked[OffsetFetchRequest]) -> None:
        """What the answer tells is below the high watermark when it leaves."""
        request, version = asked.request, asked.version
        if version >= SEVERAL_GROUPS_SINCE:
            groups = [self._fetch_group(step.image, one, version) for one in request.groups]
            step.answer(asked, OffsetFetchResponse(groups=groups))
            return
        topics = request.topics
        only = OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes)
                for one in topics
            ],
        )
        found = self._fetch_group(step.image, only, version)
        if found.error_code:
            raise error_of(found.error_code)
        step.answer(asked, _single(found))

    def _fetch_group(
        self, image: MetadataImage, asked: OffsetFetchRequestGroup, version: int
    ) -> OffsetFetchResponseGroup:
        group = self.groups.get(asked.group_id)
        try:
            if group is not None:
                group.check_fetch(asked.member_id, asked.member_epoch)
        except KafkaError as failure:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=int(failure.code))
        return offsets.fetch(image, self.offsets.of(asked.group_id), asked, version)

    def _delete_offsets(self, step: Step, asked: Asked[OffsetDeleteRequest]) -> None:
        group_id = _required(asked.request.group_id)
        group = self.groups.get(group_id)
        if group is None:
            self._require(group_id)
        elif not group.is_empty() and group.protocol_type != "consumer":
            raise NonEmptyGroup(f"group {group_id} has members")
        subscribes = _nothing if group is None or group.is_empty() else group.subscribes
        offsets.delete(step, asked, self.offsets.of(group_id), subscribes)

    # ---- groups as a whole ---------------------------------------------------------------

    def _exists(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.offsets.groups

    def _require(self, group_id: str) -> None:
        if not self._exists(group_id):
            raise GroupIdNotFound(f"Group {group_id} not found.")

    def _list(self, step: Step, asked: Asked[ListGroupsRequest]) -> None:
        states = {state.lower() for state in asked.request.states_filter}
        types = {kind.lower() for kind in asked.request.types_filter}
        listed = [
            ListedGroup(
                group_id=group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name(),
                group_type=CLASSIC_TYPE,
            )
            for group_id, group in self.groups.items()
        ]
        listed.extend(
            ListedGroup(
                group_id=group_id, protocol_type="", group_state=EMPTY, group_type=CLASSIC_TYPE
            )
            for group_id in self.offsets.groups
            if group_id not in self.groups
        )
        step.answer(
            asked,
            ListGroupsResponse(
                groups=[
                    one
                    for one in listed
                    if (not states or one.group_state.lower() in states)
                    and (not types or one.group_type in types)
                ]
            ),
        )

    def _describe(self, step: Step, asked: Asked[DescribeGroupsRequest]) -> None:
        groups = [self._described(step, one, asked.version) for one in asked.request.groups]
        step.answer(asked, DescribeGroupsResponse(groups=groups))

    def _described(self, step: Step, group_id: str, version: int) -> DescribedGroup:
        group = self.groups.get(group_id)
        if group is not None:
            return group.describe(step.image)
        if group_id in self.offsets.groups:
            return DescribedGroup(
                error_code=int(ErrorCode.NONE), group_id=group_id, group_state=EMPTY
            )
        if version >= NOT_FOUND_SINCE:
            missing = describe_failed(
                group_id, version, GroupIdNotFound(f"Group {group_id} not found.")
            )
            missing.group_state = DEAD
            return missing
        return DescribedGroup(error_code=int(ErrorCode.NONE), group_id=group_id, group_state=DEAD)

    def _describe_consumers(self, step: Step, asked: Asked[ConsumerGroupDescribeRequest]) -> None:
        groups = []
        for group_id in asked.request.group_ids:
            known = "is not a consumer group." if self._exists(group_id) else "not found."
            missing = GroupIdNotFound(f"Group {group_id} {known}")
            groups.append(consumer_describe_failed(group_id, missing))
        step.answer(asked, ConsumerGroupDescribeResponse(groups=groups))

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
        self._require(group_id)
        group = self.groups.get(group_id)
        if group is not None and not group.is_empty():
            raise NonEmptyGroup(f"group {group_id} has members")
        offsets.forget(step, group_id, offsets.all_partitions(self.offsets.of(group_id)))
        if group is not None:
            group.delete(step)


def _required(group_id: str) -> str:
    """The group's id, which only offsets may do without."""
    if not group_id:
        raise InvalidGroupId("the group id is empty")
    return group_id


def _nothing(_topic: str) -> bool:
    return False


def _itself(commit_ms: int) -> int:
    return commit_ms


def _single(found: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """The answer up to version 7, which is about one group."""
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in found.topics
        ],
    )


_HANDLERS: dict[type, Callable[[Shard, Step, Asked[Any]], None]] = {
    JoinGroupRequest: Shard._join,
    SyncGroupRequest: Shard._sync,
    HeartbeatRequest: Shard._heartbeat,
    LeaveGroupRequest: Shard._leave,
    OffsetCommitRequest: Shard._commit,
    OffsetFetchRequest: Shard._fetch,
    OffsetDeleteRequest: Shard._delete_offsets,
    ListGroupsRequest: Shard._list,
    DescribeGroupsRequest: Shard._describe,
    ConsumerGroupDescribeRequest: Shard._describe_consumers,
    DeleteGroupsRequest: Shard._delete,
}
