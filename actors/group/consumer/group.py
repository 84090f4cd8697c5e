"""The machine of one KIP-848 group, as the coordinator's shard uses it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from raylog.actors.coordination.step import Asked, Change, LogRecord, Step, TimerKey
from raylog.actors.group.consumer import (
    checks,
    classic_members,
    describing,
    heartbeats,
    rebalance,
)
from raylog.actors.group.consumer.context import REGEX_TIMER, Downgrade, GroupContext
from raylog.actors.group.consumer.state import GroupState
from raylog.actors.group.consumer.targets import Assigning
from raylog.actors.group.consumer.writing import GroupLog
from raylog.actors.group.settings import GroupSettings
from raylog.actors.group.telling import Telling
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.messages.consumer_group_describe import DescribedGroup
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequest
from raylog.wire.messages.leave_group import LeaveGroupRequest
from raylog.wire.messages.offset_commit import OffsetCommitRequest
from raylog.wire.messages.sync_group import SyncGroupRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest


class ConsumerGroup:
    """One group of the KIP-848 protocol.

    Transitions, as `state_name` tells them:
    - Empty -> Assigning: a member joins: the group epoch rises.
    - Assigning -> Reconciling: the target for the group epoch is computed, in the heartbeat of
      any member once the assignment interval since the last one has passed.
    - Reconciling -> Stable: every member has reached the target, by its own heartbeats.
    - any -> Assigning: members come, go or change what they subscribe to, or its topics change.
    - any -> Empty: the last member leaves or is silent for the session timeout.
    - any -> a classic group, when only classic members are left and the migration policy allows it.
    """

    def __init__(self, group_id: str, settings: GroupSettings, assigning: Assigning) -> None:
        self.group_id = group_id
        self._group = GroupContext(group_id, settings, assigning)

    protocol_type = "consumer"

    @property
    def state(self) -> GroupState:
        """What the records say; not to be changed."""
        return self._group.state

    @property
    def assignor_error(self) -> str | None:
        """Why the newest target could not be computed; None if it could."""
        return self._group.assignor_error

    def consumer_heartbeat(self, step: Step, asked: Asked[ConsumerGroupHeartbeatRequest]) -> None:
        """A member joins, lives or leaves."""
        heartbeats.heartbeat(self._group, step, asked)

    def join(self, step: Step, asked: Asked[JoinGroupRequest]) -> None:
        """A member that speaks the classic protocol joins; it is answered at once."""
        classic_members.join(self._group, step, asked)

    def sync(self, step: Step, asked: Asked[SyncGroupRequest]) -> None:
        """A classic member fetches its assignment."""
        classic_members.sync(self._group, step, asked)

    def heartbeat(self, step: Step, asked: Asked[HeartbeatRequest]) -> None:
        """A classic member lives; it is told if it has to join again."""
        classic_members.heartbeat(self._group, step, asked)

    def leave(self, step: Step, asked: Asked[LeaveGroupRequest]) -> None:
        """Members leave by the classic protocol."""
        classic_members.leave(self._group, step, asked)

    def take_downgrade(self) -> Downgrade | None:
        """What a downgrade in this step left to do; see `migration`."""
        downgrade, self._group.downgrade = self._group.downgrade, None
        return downgrade

    def metadata_changed(self, step: Step, topics: AbstractSet[str]) -> None:
        """Topics were created or deleted, or have more partitions."""
        rebalance.metadata_changed(self._group, step, topics)

    def assignment_is_ready(self, step: Step) -> None:
        """An assignor that worked elsewhere is done: ask it again."""
        rebalance.assignment_is_ready(self._group, step)

    def timer(self, step: Step, key: TimerKey) -> None:
        """A time set by this group has come."""
        match key:
            case ("session", str(member_id)):
                rebalance.session_time_passed(self._group, step, member_id)
            case ("rebalance", str(member_id)):
                rebalance.revocation_time_passed(self._group, step, member_id)
            case ("join" | "sync", str(member_id)):
                rebalance.classic_time_passed(self._group, step, member_id)
            case ("regex",):
                rebalance.resolve_regexes(self._group, step)
            case _:
                raise AssertionError(f"no timer is called {key}")

    def loaded(self, step: Step) -> None:
        """Sessions and revocations are timed anew after a load."""
        rebalance.start_timers(self._group, step)

    def reverted(self, step: Step) -> None:
        """The log has refused records of this group."""
        rebalance.refused(self._group, step)

    def unload(self) -> list[Asked[Any]]:
        """Nobody waits in such a group: every request is answered at once."""
        return []

    def check_commit(self, step: Step, request: OffsetCommitRequest, version: int) -> None:
        """Refuse a commit of a member that is none, or not at the epoch it says."""
        checks.check_commit(self._group, request, version, step.image)

    def check_transactional_commit(self, step: Step, request: TxnOffsetCommitRequest) -> None:
        """Refuse a member at another epoch (KIP-447); who names no member may commit."""
        checks.check_transactional_commit(self._group, request, step.image)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse to tell offsets to a member at another epoch; anyone else may ask."""
        if member_id is None and member_epoch < 0:
            return
        profile = checks.member_profile(self._group, member_id or "")
        checks.check_epoch(profile, member_epoch, self._group.state.holding(member_id or "").epoch)

    def state_name(self) -> str:
        """As ListGroups names it."""
        return describing.state_name(self._group.state)

    def weight(self) -> int:
        """How much there is to be told of the group: members, and partitions twice."""
        return self._group.state.weight()

    def consumer_describing(self, image: MetadataImage) -> Telling[DescribedGroup]:
        """The group for ConsumerGroupDescribe."""
        return describing.described(self._group, image)

    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self._group.state.profiles

    def is_new(self) -> bool:
        """Whether no record is of it: a group whose first request failed is not kept."""
        return self._group.state == GroupState()

    def subscribes(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, by name or by a pattern."""
        return rebalance.subscribes(self._group.state, topic)

    def offset_expires_after(self, commit_ms: int) -> int | None:
        """The time from which the retention of an offset committed at `commit_ms` counts."""
        return commit_ms

    def delete(self, step: Step) -> None:
        """Append the group's tombstones; its offsets are the caller's."""
        step.cancel_timer(self.group_id, REGEX_TIMER)
        GroupLog(self.group_id, step).forget_group(self._group.state)

    def replay(self, record: LogRecord) -> Change:
        """Take a record of this group."""
        return self._group.state.replay(record)
