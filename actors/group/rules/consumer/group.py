"""The machine of one KIP-848 group, as the coordinator's shard uses it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from raylog.actors.coordination.rules.step import Change, ClientCall, LogRecord, Step, TimerKey
from raylog.actors.group.rules.consumer import (
    checks,
    classic_members,
    describing,
    heartbeats,
    rebalance,
)
from raylog.actors.group.rules.consumer.context import REGEX_TIMER, Downgrade, GroupContext
from raylog.actors.group.rules.consumer.state import GroupState
from raylog.actors.group.rules.consumer.targets import Assigning
from raylog.actors.group.rules.consumer.writing import GroupLog
from raylog.actors.group.rules.gradual import GradualResponse
from raylog.actors.group.rules.settings import GroupSettings
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

    Transitions, in the states of `state_name`:
    - Empty -> Assigning: a member joins, which raises the group epoch.
    - Assigning -> Reconciling: the target for the group epoch is computed, in the heartbeat of
      any member after the assignment interval since the last target.
    - Reconciling -> Stable: every member has reached the target, by its own heartbeats.
    - any -> Assigning: members join, leave or change their subscription, or its topics change.
    - any -> Empty: the last member leaves or exceeds its session timeout.
    - any -> a classic group, when only classic members are left and the migration policy allows it.
    """

    def __init__(self, group_id: str, settings: GroupSettings, assigning: Assigning) -> None:
        self.group_id = group_id
        self._group = GroupContext(group_id, settings, assigning)

    protocol_type = "consumer"

    @property
    def state(self) -> GroupState:
        """The recorded state; not to be changed."""
        return self._group.state

    @property
    def assignor_error(self) -> str | None:
        """Why the newest target could not be computed; None if it could."""
        return self._group.assignor_error

    def consumer_heartbeat(
        self, step: Step, call: ClientCall[ConsumerGroupHeartbeatRequest]
    ) -> None:
        """Handle the heartbeat of a member that joins, stays or leaves."""
        heartbeats.heartbeat(self._group, step, call)

    def join(self, step: Step, call: ClientCall[JoinGroupRequest]) -> None:
        """Let a classic member join; it is answered at once."""
        classic_members.join(self._group, step, call)

    def sync(self, step: Step, call: ClientCall[SyncGroupRequest]) -> None:
        """Answer a classic member's assignment."""
        classic_members.sync(self._group, step, call)

    def heartbeat(self, step: Step, call: ClientCall[HeartbeatRequest]) -> None:
        """Extend a classic member's session, and tell it to join again if it must."""
        classic_members.heartbeat(self._group, step, call)

    def leave(self, step: Step, call: ClientCall[LeaveGroupRequest]) -> None:
        """Remove members by the classic protocol."""
        classic_members.leave(self._group, step, call)

    def take_downgrade(self) -> Downgrade | None:
        """Return what a downgrade in this step has left for the shard; see `migration`."""
        downgrade, self._group.downgrade = self._group.downgrade, None
        return downgrade

    def metadata_changed(self, step: Step, topics: AbstractSet[str]) -> None:
        """Handle topics that were created, deleted, or got more partitions."""
        rebalance.metadata_changed(self._group, step, topics)

    def assignment_is_ready(self, step: Step) -> None:
        """Call an assignor again whose work in another process is done."""
        rebalance.assignment_is_ready(self._group, step)

    def timer(self, step: Step, key: TimerKey) -> None:
        """Handle a timer of this group."""
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
        """Restart sessions and revocation times after a load."""
        rebalance.start_timers(self._group, step)

    def reverted(self, step: Step) -> None:
        """Repair the state after the log has refused records of this group."""
        rebalance.refused(self._group, step)

    def unload(self) -> list[ClientCall[Any]]:
        """Return an empty list: every request of such a group is answered at once."""
        return []

    def check_commit(self, step: Step, request: OffsetCommitRequest, version: int) -> None:
        """Refuse a commit of an unknown member, or with another epoch than the member's."""
        checks.check_commit(self._group, request, version, step.image)

    def check_transactional_commit(self, step: Step, request: TxnOffsetCommitRequest) -> None:
        """Refuse a member at another epoch (KIP-447); without a member, always accept."""
        checks.check_transactional_commit(self._group, request, step.image)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse a member at another epoch; without a member, always accept."""
        if member_id is None and member_epoch < 0:
            return
        profile = checks.member_profile(self._group, member_id or "")
        checks.check_epoch(profile, member_epoch, self._group.state.holding(member_id or "").epoch)

    def state_name(self) -> str:
        """The state's name in ListGroups."""
        return describing.state_name(self._group.state)

    def weight(self) -> int:
        """Return the cost of describing the group: its members, plus its partitions twice."""
        return self._group.state.weight()

    def consumer_describing(self, image: MetadataImage) -> GradualResponse[DescribedGroup]:
        """Describe the group for ConsumerGroupDescribe."""
        return describing.described(self._group, image)

    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self._group.state.profiles

    def is_new(self) -> bool:
        """Whether it has no records: a group whose first request failed is discarded."""
        return self._group.state == GroupState()

    def subscribes(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, by name or by a pattern."""
        return rebalance.subscribes(self._group.state, topic)

    def offset_expires_after(self, commit_ms: int) -> int | None:
        """Return the time from which the retention of an offset committed at `commit_ms` counts."""
        return commit_ms

    def delete(self, step: Step) -> None:
        """Append the group's tombstones; the caller handles its offsets."""
        step.cancel_timer(self.group_id, REGEX_TIMER)
        GroupLog(self.group_id, step).forget_group(self._group.state)

    def replay(self, record: LogRecord) -> Change:
        """Apply a record of this group."""
        return self._group.state.replay(record)
