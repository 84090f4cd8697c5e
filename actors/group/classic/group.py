"""The machine of one classic group, as the coordinator's shard uses it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import starmap
from typing import Any

from raylog.actors.coordination.step import Asked, Change, LogRecord, Step, TimerKey, Undo
from raylog.actors.group.classic import joining, leaving, metadata, rebalance, syncing
from raylog.actors.group.classic.answers import refuse_join, refuse_sync
from raylog.actors.group.classic.members import Member
from raylog.actors.group.classic.rebalance import prepare as begin_rebalance
from raylog.actors.group.classic.state import CONSUMER_PROTOCOL, GroupState, State
from raylog.actors.group.settings import GroupSettings
from raylog.actors.group.telling import Telling, adding
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
    - PreparingRebalance -> CompletingRebalance: all have joined, or the time to do so has passed.
    - PreparingRebalance -> Empty: nobody is left. Recorded.
    - CompletingRebalance -> Stable: the leader brings the assignment. Recorded.
    - CompletingRebalance, Stable -> PreparingRebalance: a member joins, changes, leaves, is silent
      for its session timeout or does not sync in time, or the leader joins again.
    - Empty -> Dead: the group is deleted. Recorded as a tombstone.
    """

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self._group = GroupState(group_id, settings)

    @property
    def protocol_type(self) -> str:
        """Such as "consumer"; empty if no member ever was."""
        return self._group.roster.protocol_type or ""

    @property
    def generation(self) -> int:
        """Counts the rebalances completed."""
        return self._group.generation

    @property
    def protocol(self) -> str | None:
        """The assignor that the members voted for; None without members."""
        return self._group.protocol

    @property
    def state(self) -> State:
        """Where the group is."""
        return self._group.state

    @property
    def leader(self) -> str | None:
        """The leader's member id; None without members."""
        return self._group.roster.leader

    @property
    def members(self) -> list[Member]:
        """In the order they joined; not to be changed."""
        return list(self._group.roster.members.values())

    def join(self, step: Step, asked: Asked[JoinGroupRequest]) -> None:
        """Answer once the generation is complete."""
        joining.join(self._group, step, asked)

    def sync(self, step: Step, asked: Asked[SyncGroupRequest]) -> None:
        """Answer once the leader has brought the assignment and it is recorded."""
        syncing.sync(self._group, step, asked)

    def heartbeat(self, step: Step, asked: Asked[HeartbeatRequest]) -> None:
        """A member is alive; it is told if it has to join again."""
        request = asked.request
        member = self._group.roster.member(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        self._group.restart_session(step, member)
        preparing = self._group.state is State.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE
        step.answer(asked, HeartbeatResponse(error_code=code))

    def leave(self, step: Step, asked: Asked[LeaveGroupRequest]) -> None:
        """Members go; the others rebalance."""
        leaving.leave(self._group, step, asked)

    def timer(self, step: Step, key: TimerKey) -> None:
        """A time set by this group has come."""
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
        """Sessions start anew after a load; a group above a lowered limit rebalances."""
        rebalance.restore_timers(self._group, step)
        is_large = len(self._group.roster.members) > self._group.settings.size_max
        if is_large and self._group.state is State.STABLE:
            rebalance.prepare(self._group, step)

    def reverted(self, step: Step) -> None:
        """The log has refused records of this group."""
        rebalance.refused(self._group, step)

    def unload(self) -> list[Asked[Any]]:
        """Who waits here; the group is not to be used any more."""
        roster = self._group.roster
        waiting: list[Asked[Any]] = [*roster.joining.values(), *roster.syncing.values()]
        roster.joining.clear()
        roster.syncing.clear()
        return waiting

    def interrupt(self, step: Step, code: ErrorCode) -> None:
        """Answer who waits with this error: the group is about to become another kind."""
        roster = self._group.roster
        for member_id, asked in roster.joining.items():
            refuse_join(step, asked, code, member_id)
        for syncing_asked in roster.syncing.values():
            refuse_sync(step, syncing_asked, code)
        roster.joining.clear()
        roster.syncing.clear()

    def retire(self, step: Step) -> None:
        """The group is about to become another kind: who waits is told, and no timer is left."""
        self.interrupt(step, ErrorCode.REBALANCE_IN_PROGRESS)
        self.cancel_timers(step)
        self._group.roster.pending.clear()

    def cancel_timers(self, step: Step) -> None:
        """The group is none any more."""
        rebalance.cancel_timers(self._group, step)

    def adopt(
        self, step: Step, protocols: Mapping[str, dict[str, bytes]], *, rebalance: bool
    ) -> None:
        """Members that came from a KIP-848 group: all that each supports, by member id."""
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
        """Refuse a commit from outside the generation; one from inside renews the session.

        Someone without member id and generation may commit while the group is empty.
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
            # It has joined this generation but holds no partitions of it yet.
            raise RebalanceInProgress("members have not been given their assignments")
        group.restart_session(step, member)

    def check_transactional_commit(self, step: Step, request: TxnOffsetCommitRequest) -> None:
        """Refuse a member from outside the generation (KIP-447).

        Someone without member id and generation may commit at any time: up to version 2 there is
        no place for them.
        """
        del step
        group, generation = self._group, request.generation_id
        is_nobody = not request.member_id and request.group_instance_id is None
        if generation < 0 and (is_nobody or group.state is State.EMPTY):
            return
        group.roster.member(request.member_id, request.group_instance_id)
        self._check_generation(generation)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anyone may ask for the offsets of a classic group."""

    def state_name(self) -> str:
        """As ListGroups names it."""
        return self._group.state.value

    def is_empty(self) -> bool:
        """Whether it has no members and none is on its way into a first generation."""
        return self._group.state is State.EMPTY

    def subscribes(self, topic: str) -> bool:
        """Whether members of this generation read the topic; True where that is unreadable."""
        return self._group.subscribes(topic)

    def unread_subscriptions(self) -> tuple[bytes, ...]:
        """What has to be read before it is known which topics its members read."""
        return self._group.unread()

    def subscriptions_were_read(
        self, subscriptions: tuple[bytes, ...], topics: frozenset[str] | None
    ) -> None:
        """Take what `topics_of` has made of `unread_subscriptions`."""
        self._group.read(subscriptions, topics)

    def offset_expires_after(self, commit_ms: int) -> int | None:
        """The time from which the retention of an offset committed at `commit_ms` counts.

        None: not now. Whether its topic is subscribed is another question.
        """
        group = self._group
        if group.roster.protocol_type is None:
            return commit_ms
        if group.state is State.EMPTY:
            return group.since_ms if group.since_ms != -1 else commit_ms
        reads = group.roster.protocol_type == CONSUMER_PROTOCOL and group.topics() is not None
        return commit_ms if reads and group.state is State.STABLE else None

    def weight(self) -> int:
        """How much there is to be told of the group: its members."""
        return len(self._group.roster.members)

    def describing(self) -> Telling[DescribedGroup]:
        """The group for DescribeGroups; metadata is told of a stable one only."""
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
        return Telling(found, adding(starmap(_described, members), found.members))

    def delete(self, step: Step) -> None:
        """Append the group's tombstone; its offsets are the caller's."""
        metadata.delete(self.group_id, step)

    def replay(self, record: LogRecord) -> Change:
        """Take a record of this group."""
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
