"""Short helpers for sessions with classic groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from raylog.actors.coordination.rules.step import ClientCall, Step
from raylog.actors.group.rules.classic import ClassicGroup, create
from raylog.actors.group.rules.settings import GroupSettings
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.blobs import encode_value
from raylog.wire.internal.consumer_protocol import ConsumerProtocolSubscription
from raylog.wire.internal.offsets import GroupMetadataValue
from raylog.wire.messages.describe_groups import DescribedGroup
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from raylog.wire.messages.offset_commit import OffsetCommitRequest
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.worlds.coordination.steps import Ask
from tests.worlds.group.machine import GroupWorld

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
COMMIT_VERSION = 8
NEW = GroupSettings(initial_rebalance_delay_ms=0)


def subscription(*topics: str) -> bytes:
    """Return a consumer's encoded subscription."""
    return encode_value(ConsumerProtocolSubscription(topics=list(topics)), 1)


@dataclass(slots=True)
class Session:
    """A world with one classic group, and its clients' requests."""

    settings: GroupSettings = NEW
    world: GroupWorld = field(init=False)

    def __post_init__(self) -> None:
        self.world = GroupWorld(lambda group_id: ClassicGroup(group_id, self.settings))

    @property
    def group(self) -> ClassicGroup:
        group = self.world.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> str:
        return self.group.state_name()

    @property
    def last_record(self) -> GroupMetadataValue:
        value = self.world.log[-1].value
        assert isinstance(value, GroupMetadataValue)
        return value

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: dict[str, bytes] | tuple[str, ...] = ("range",),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = JOIN_VERSION,
        client_id: str = "client",
    ) -> Ask:
        """Send a JoinGroup request to the group, as the shard does."""
        if not isinstance(protocols, dict):
            protocols = {name: subscription("t") for name in protocols}
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms if version >= 1 else -1,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols.items()
            ],
        )

        def handle(step: Step, call: ClientCall[JoinGroupRequest]) -> None:
            if GROUP not in self.world.groups:
                create(step, GROUP)
            self.group.join(step, call)

        return self.world.submit(handle, request, version, client_id)

    def enter(self, **terms: Any) -> Ask:
        """Join as a new dynamic member: get an id, then join with it."""
        ask = self.join(**terms)
        if ask.answer is not None and ask.answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(ask.answer.member_id, **terms)
        return ask

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol: tuple[str | None, str | None] | None = None,
        version: int = SYNC_VERSION,
    ) -> Ask:
        """Send a SyncGroup request, by default for the current generation and protocol."""
        named = (
            protocol if protocol is not None else (self.group.protocol_type, self.group.protocol)
        )
        kind, name = named if version >= SYNC_VERSION else (None, None)
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name=name,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )
        return self.world.ask(ClassicGroup.sync, request, version)

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        """Send a heartbeat and return its error code."""
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return code_of(self.world.ask(ClassicGroup.heartbeat, request, HEARTBEAT_VERSION))

    def leave(self, *who: str | tuple[str, str | None]) -> list[ErrorCode]:
        """Send one LeaveGroup for several members, each given by id or by (id, instance id)."""
        members = [
            MemberIdentity(member_id=each)
            if isinstance(each, str)
            else MemberIdentity(member_id=each[0], group_instance_id=each[1])
            for each in who
        ]
        request = LeaveGroupRequest(group_id=GROUP, members=members)
        answer = self.world.ask(ClassicGroup.leave, request, LEAVE_VERSION).answer
        assert isinstance(answer, LeaveGroupResponse)
        assert answer.error_code == ErrorCode.NONE
        return [ErrorCode(member.error_code) for member in answer.members]

    def commit(self, member_id: str, generation: int, *, instance: str | None = None) -> ErrorCode:
        """Send an OffsetCommit and return its error code."""
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
        )

        def handle(step: Step, call: ClientCall[OffsetCommitRequest]) -> None:
            self.group.check_commit(step, call.request, call.version)

        ask = self.world.submit(handle, request, COMMIT_VERSION)
        return ErrorCode.NONE if ask.error is None else code_of(ask)

    def describe(self) -> DescribedGroup:
        """Return the group as DescribeGroups describes it."""
        return self.group.describing().whole()

    def stable(self, members: int = 1, **terms: Any) -> list[str]:
        """Make a stable group of `members` dynamic members with the assignments `A0`, `A1`, …"""
        ids = [self.enter(**terms).asked.request.member_id]
        self.world.advance(self.settings.initial_rebalance_delay_ms)
        for _ in range(members - 1):
            ids.append(self.enter(**terms).asked.request.member_id)
            for member_id in ids[:-1]:
                self.join(member_id, **terms)
        self.settle(ids)
        return ids

    def settle(self, ids: list[str]) -> None:
        """Sync all members, with the assignments `A0`, `A1`, …"""
        leader = self.group.leader
        assert leader is not None
        assignments = {member_id: f"A{index}".encode() for index, member_id in enumerate(ids)}
        self.sync(leader, assignments)
        for member_id in ids:
            if member_id != leader:
                self.sync(member_id)
        assert self.state == "Stable"


def code_of(ask: Ask) -> ErrorCode:
    """Return the error of an ask: raised, or in its answer."""
    if ask.error is not None:
        return ask.error.code
    assert ask.answer is not None, "still waits"
    return ErrorCode(ask.answer.error_code)
