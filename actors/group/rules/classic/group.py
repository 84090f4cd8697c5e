"""The machine of one classic group, as the coordinator's shard uses it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import starmap
from typing import Any

from raylog.actors.coordination.rules.step import (
    Change,
    ClientCall,
    LogRecord,
    Step,
    TimerKey,
    Undo,
)
from raylog.actors.group.rules.classic import joining, leaving, metadata, rebalance, syncing
from raylog.actors.group.rules.classic.answers import refuse_join, refuse_sync
from raylog.actors.group.rules.classic.members import Member
from raylog.actors.group.rules.classic.rebalance import prepare as begin_rebalance
from raylog.actors.group.rules.classic.state import CONSUMER_PROTOCOL, GroupState, State
from raylog.actors.group.rules.gradual import GradualResponse, adding
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import (
    ErrorCode,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMemberId,
)
from raylog.wire.internal.offsets import GroupMetadataValue
from raylog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from raylog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raylog.wire.messages.join_group import JoinGroupRequest
from raylog.wire.messages.leave_group import LeaveGroupRequest
from raylog.wire.messages.offset_commit import OffsetCommitRequest
from raylog.wire.messages.sync_group import SyncGroupRequest
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest


class ClassicGroup:
    """One group of the classic protocol.

    Transitions:
    - Empty -> PreparingRebalance: a first member joins.
    - PreparingRebalance -> CompletingRebalance: all members have joined, or time is up.
    - PreparingRebalance -> Empty: no member is left. Recorded.
    - CompletingRebalance -> Stable: the leader sends the assignment. Recorded.
    - CompletingRebalance, Stable -> PreparingRebalance: a member joins, changes, leaves, exceeds
      its session timeout or does not sync in time, or the leader joins again.
    - Empty -> Dead: the group is deleted. Recorded as a tombstone.
    """

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self._group = GroupState(group_id, settings)

    @property
    def protocol_type(self) -> str:
        """For example "consumer"; empty if the group has never had a member."""
        return self._group.roster.protocol_type or ""

    @property
    def generation(self) -> int:
        """The number of completed rebalances."""
        return self._group.generation

    @property
    def protocol(self) -> str | None:
        """The name of the assignor that the members voted for; None without members."""
        return self._group.protocol

    @property
    def state(self) -> State:
        """The group's state."""
        return self._group.state

    @property
    def leader(self) -> str | None:
        """The leader's member id; None without members."""
        return self._group.roster.leader

    @property
    def members(self) -> list[Member]:
        """The members in the order in which they joined. Do not modify the result."""
        return list(self._group.roster.members.values())

    def join(self, step: Step, call: ClientCall[JoinGroupRequest]) -> None:
        """Answer once the generation is complete."""
        joining.join(self._group, step, call)

    def sync(self, step: Step, call: ClientCall[SyncGroupRequest]) -> None:
        """Answer once the leader's assignment is recorded."""
        syncing.sync(self._group, step, call)

    def heartbeat(self, step: Step, call: ClientCall[HeartbeatRequest]) -> None:
        """Extend a member's session, and tell the member to join again if it must."""
        request = call.request
        member = self._group.roster.member(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        self._group.restart_session(step, member)
        preparing = self._group.state is State.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE
        step.answer(call, HeartbeatResponse(error_code=code))

    def leave(self, step: Step, call: ClientCall[LeaveGroupRequest]) -> None:
        """Remove members; the others rebalance."""
        leaving.leave(self._group, step, call)

    def timer(self, step: Step, key: TimerKey) -> None:
        """Handle a timer of this group."""
        match key:
            case ("session", str(member_id)):
                rebalance.session_time_passed(self._group, step, member_id)
            case ("join",):
                rebalance.join_time_passed(self._group, step)
            case ("sync",):
                rebalance.sync_time_passed(self._group, step)
            case _:
                raise AssertionError(f"no timer is called {key}")

    def loaded(self, step: Step) -> None:
        """Restart sessions after a load; rebalance if the group exceeds a lowered limit."""
        rebalance.restore_timers(self._group, step)
        is_large = len(self._group.roster.members) > self._group.settings.size_max
        if is_large and self._group.state is State.STABLE:
            rebalance.prepare(self._group, step)

    def reverted(self, step: Step) -> None:
        """Repair the state after the log has refused records of this group."""
        rebalance.refused(self._group, step)

    def unload(self) -> list[ClientCall[Any]]:
        """Return the waiting requests. The group must not be used afterwards."""
        roster = self._group.roster
        waiting: list[ClientCall[Any]] = [*roster.joining.values(), *roster.syncing.values()]
        roster.joining.clear()
        roster.syncing.clear()
        return waiting

    def interrupt(self, step: Step, code: ErrorCode) -> None:
        """Answer all waiting requests with this error, before the group changes its protocol."""
        roster = self._group.roster
        for member_id, call in roster.joining.items():
            refuse_join(step, call, code, member_id)
        for syncing_asked in roster.syncing.values():
            refuse_sync(step, syncing_asked, code)
        roster.joining.clear()
        roster.syncing.clear()

    def cancel_timers(self, step: Step) -> None:
        """Cancel all timers of a group that is gone."""
        rebalance.cancel_timers(self._group, step)

    def adopt(
        self, step: Step, protocols: Mapping[str, dict[str, bytes]], *, rebalance: bool
    ) -> None:
        """Adopt members of a KIP-848 group, with the protocols that each member supports."""
        roster = self._group.roster
        for member in tuple(roster.members.values()):
            roster.change(
                member,
                protocols[member.member_id],
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
            )
            self._group.restart_session(step, member)
        if rebalance:
            begin_rebalance(self._group, step)

    def check_commit(self, step: Step, request: OffsetCommitRequest, version: int) -> None:
        """Refuse a commit from outside the generation; a commit from inside renews the session.

        A commit without member id and generation is accepted while the group is empty.
        """
        group = self._group
        generation = request.generation_id_or_member_epoch
        if generation < 0 and group.state is State.EMPTY:
            return
        if generation < 0 and not request.member_id and request.group_instance_id is None:
            raise UnknownMemberId("only members commit to a group that has any")
        member = group.roster.member(request.member_id, request.group_instance_id)
        self._check_generation(generation)
        if group.state is State.COMPLETING_REBALANCE:
            # It has joined this generation but has no assignment yet.
            raise RebalanceInProgress("members have not been given their assignments")
        group.restart_session(step, member)

    def check_transactional_commit(self, step: Step, request: TxnOffsetCommitRequest) -> None:
        """Refuse a member from outside the generation (KIP-447).

        A commit without member id and generation is always accepted, because versions up to 2 have
        no fields for them.
        """
        group, generation = self._group, request.generation_id
        is_nobody = not request.member_id and request.group_instance_id is None
        if generation < 0 and (is_nobody or group.state is State.EMPTY):
            return
        group.roster.member(request.member_id, request.group_instance_id)
        self._check_generation(generation)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Accept: anyone may fetch the offsets of a classic group."""

    def state_name(self) -> str:
        """The state's name in ListGroups."""
        return self._group.state.value

    def is_empty(self) -> bool:
        """Whether it has no members and no member is joining a first generation."""
        return self._group.state is State.EMPTY

    def subscribes(self, topic: str) -> bool:
        """Whether members of this generation read the topic; True if that is unreadable."""
        return self._group.subscribes(topic)

    def unread_subscriptions(self) -> tuple[bytes, ...]:
        """Return the subscriptions that must be read to know the members' topics."""
        return self._group.unread()

    def subscriptions_were_read(
        self, subscriptions: tuple[bytes, ...], topics: frozenset[str] | None
    ) -> None:
        """Set the result of `topics_of` for `unread_subscriptions`."""
        self._group.read(subscriptions, topics)

    def offset_expires_after(self, commit_ms: int) -> int | None:
        """Return the time from which the retention of an offset committed at `commit_ms` counts.

        None if the offset does not expire now. Whether its topic is subscribed is checked
        separately.
        """
        group = self._group
        if group.roster.protocol_type is None:
            return commit_ms
        if group.state is State.EMPTY:
            return group.since_ms if group.since_ms != -1 else commit_ms
        reads = group.roster.protocol_type == CONSUMER_PROTOCOL and group.topics() is not None
        return commit_ms if reads and group.state is State.STABLE else None

    def weight(self) -> int:
        """Return the cost of describing the group: its number of members."""
        return len(self._group.roster.members)

    def describing(self) -> GradualResponse[DescribedGroup]:
        """Describe the group for DescribeGroups; only a stable group is described with metadata."""
        group = self._group
        protocol = group.protocol if group.state is State.STABLE else None
        found = DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=self.group_id,
            group_state=group.state.value,
            protocol_type=self.protocol_type,
            protocol_data=protocol or "",
        )
        members = [
            (member, b"" if protocol is None else member.protocols[protocol], member.assignment)
            for member in group.roster.members.values()
        ]
        return GradualResponse(found, adding(starmap(_described, members), found.members))

    def delete(self, step: Step) -> None:
        """Append the group's tombstone; the caller handles its offsets.

        Waiting requests are answered, and timers cancelled: another group may get the name.
        """
        self.interrupt(step, ErrorCode.REBALANCE_IN_PROGRESS)
        self.cancel_timers(step)
        self._group.roster.pending.clear()
        metadata.delete(self.group_id, step)

    def replay(self, record: LogRecord) -> Change:
        """Apply a record of this group."""
        if record.value is None:
            before, self._group.state = self._group.state, State.DEAD
            return Undo(partial(setattr, self._group, "state", before))
        assert isinstance(record.value, GroupMetadataValue)
        return self._group.settle(record.value)

    def _check_generation(self, generation: int) -> None:
        if generation != self._group.generation:
            raise IllegalGeneration(f"generation {generation} is not {self._group.generation}")


def _described(member: Member, metadata: bytes, assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=metadata,
        member_assignment=assignment,
    )
