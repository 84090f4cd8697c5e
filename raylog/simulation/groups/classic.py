"""Members of classic groups: they join, their leader assigns, they commit, and leave or vanish."""

from __future__ import annotations

from itertools import cycle

from raylog.simulation.asking import UNANSWERED
from raylog.simulation.cluster import Cluster
from raylog.simulation.groups.committing import BY_NAME, GroupClient, Member, Place, stored
from raylog.simulation.groups.history import GroupLedger
from raylog.wire.errors import (
    ErrorCode,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from raylog.wire.internal.blobs import decode_blob, encode_value
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from raylog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PROTOCOL_TYPE, PROTOCOL = "consumer", "round-robin"
JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5
SESSION_MS, REBALANCE_MS = 1_500, 2_000
BLOB_VERSION = 3
LEAVES, VANISHES = 0.04, 0.02
"""Probabilities after a heartbeat: to leave, and to be silent for longer than the session."""


class ClassicMember(GroupClient):
    """One member. It rejoins until told to stop."""

    def __init__(self, cluster: Cluster, ledger: GroupLedger, number: int, topic: str) -> None:
        super().__init__(cluster, ledger, number)
        self.is_calm = False
        """Whether it stays in the group."""
        self.partitions: frozenset[int] = frozenset()
        """Its assignment, as long as it may use it."""
        self._topic = topic
        self._member_id = ""
        self._generation = -1

    async def run(self, pause_s: float) -> None:
        """Be a member until told to stop."""
        while not self.stopping:
            try:
                await self._join()
                await self._stay(pause_s)
            except (UnknownMemberId, IllegalGeneration):
                self._member_id = ""
            except RebalanceInProgress:
                pass  # it joins again
            except (*UNANSWERED, KafkaError):
                await self.asking.pause()
            self.partitions = frozenset()
        self.stopped = True

    async def _join(self) -> None:
        subscription = ConsumerProtocolSubscription(topics=[self._topic])
        metadata = encode_value(subscription, BLOB_VERSION)
        request = JoinGroupRequest(
            group_id=self.ledger.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)],
        )
        joined: JoinGroupResponse = await self._joined(request)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        self.ledger.joined(joined.generation_id, joined.leader, joined.protocol_name)
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id:
            members = [one.member_id for one in joined.members]
            assignments = await self._assign(members)
        syncing = SyncGroupRequest(
            group_id=self.ledger.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        synced = await self.asking.ask_coordinator(self.ledger.group_id, syncing, SYNC)
        got = bytes(synced.assignment)
        self.ledger.synced(self._generation, joined.leader, self._member_id, got, self.now_s)
        given = decode_blob(ConsumerProtocolAssignment, got).assigned_partitions
        self.partitions = frozenset(index for one in given for index in one.partitions)

    async def _joined(self, request: JoinGroupRequest) -> JoinGroupResponse:
        """Join. A member without an id gets one first and repeats its request with it."""
        group_id = self.ledger.group_id
        needs_id = {ErrorCode.MEMBER_ID_REQUIRED}
        answer = await self.asking.ask_coordinator(group_id, request, JOIN, fine=needs_id)
        if answer.error_code in needs_id:
            request.member_id = answer.member_id
            answer = await self.asking.ask_coordinator(group_id, request, JOIN)
        assert isinstance(answer, JoinGroupResponse), "that is what was asked for"
        return answer

    async def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """Assign the partitions round robin."""
        known = await self.asking.topic(self._topic)
        given: dict[str, list[int]] = {one: [] for one in sorted(members)}
        for partition, one in zip(known.partitions, cycle(given), strict=False):
            given[one].append(partition)
        blobs = {one: self._assignment(partitions) for one, partitions in given.items()}
        self.ledger.assigning(self._generation, self._member_id, blobs)
        return [
            SyncGroupRequestAssignment(member_id=one, assignment=blob)
            for one, blob in blobs.items()
        ]

    def _assignment(self, partitions: list[int]) -> bytes:
        of_topic = TopicPartition(topic=self._topic, partitions=partitions)
        return encode_value(
            ConsumerProtocolAssignment(assigned_partitions=[of_topic]), BLOB_VERSION
        )

    async def _stay(self, pause_s: float) -> None:
        """Commit and send heartbeats until an error, or until the member leaves."""
        known = await self.asking.topic(self._topic)
        places = [Place(self._topic, known.topic_id, one) for one in sorted(self.partitions)]
        member = Member(self._member_id, self._generation)
        positions = {place: stored(await self.fetch(place, BY_NAME)) for place in places}
        while not self.stopping:
            await self._beat()
            for place in places:
                positions[place] += self.random.randint(1, 5)
                commit = await self.commit(place, positions[place], member, BY_NAME)
                self.ledger.acked_in(self._generation, commit)
            await self.asking.pause(min(pause_s, SESSION_MS / 4_000))
            drawn = 1.0 if self.is_calm else self.random.random()
            if drawn < LEAVES:
                await self._leave()
                return
            if drawn < LEAVES + VANISHES:
                await self.asking.runtime.sleep(1.5 * SESSION_MS / 1_000)

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.ledger.group_id, generation_id=self._generation, member_id=self._member_id
        )
        await self.asking.ask_coordinator(self.ledger.group_id, request, HEARTBEAT)

    async def _leave(self) -> None:
        member_id, self._member_id = self._member_id, ""
        leaving = LeaveGroupRequest(
            group_id=self.ledger.group_id, members=[MemberIdentity(member_id=member_id)]
        )
        await self.asking.ask_coordinator(self.ledger.group_id, leaving, LEAVE)
