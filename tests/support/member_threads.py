"""Group members over raw connections, in threads, which keep all responses of the coordinator.

They do what a client must: retry while there is no coordinator, and rejoin when told to.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from raylog.wire.errors import ErrorCode
from raylog.wire.internal.blobs import decode_blob, encode_value
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from raylog.wire.messages import consumer_group_heartbeat
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.wire_client import WireClient

BEAT_S = 0.1
RETRY_S = 0.05
SESSION_MS = 6_000
"""A leave that only a killed coordinator knew of takes effect after this time."""
REBALANCE_MS = 8_000
END_S = 30.0
ABSENT = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Errors for a coordinator that is absent at the moment: retry."""


@dataclass(frozen=True, slots=True)
class Place:
    """A member's assignment. `generation` is the member epoch in KIP-848."""

    generation: int = -1
    member_id: str = ""
    partitions: frozenset[int] = frozenset()


class RawMember:
    """A member in a thread. `place` is None during a rebalance."""

    def __init__(self, name: str, address: str, group: str, topic: str, partitions: int) -> None:
        self.name = name
        self.place: Place | None = None
        self.confirmed_at = 0.0
        """When the last acknowledged commit at `place` was sent; monotonic time in s."""
        self.committed: dict[int, int] = {}
        """The newest acknowledged commit of each partition."""
        self.failures: list[str] = []
        self.group, self.topic, self.partitions = group, topic, partitions
        self._address = address
        self._ending = threading.Event()
        self._client: WireClient | None = None
        self._offsets = iter(range(1, 1 << 40))
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def leave(self) -> None:
        """Leave the group and end the thread."""
        self._ending.set()
        self._thread.join(END_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        self._forget()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._live()
            self._leave()
        except Exception as failure:  # noqa: BLE001 - the test's main thread tells it
            self.failures.append(f"{self.name}: {failure!r}")
        self.place = None

    def _live(self) -> None:
        """Join, and work as a member until it must rejoin."""
        raise NotImplementedError

    def _leave(self) -> None:
        raise NotImplementedError

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and return the response; retry while the coordinator is absent."""
        while True:
            try:
                if self._client is None:
                    self._client = self._find()
                answer = self._client.ask(request, version)
            except (OSError, EOFError):
                self._forget()
            else:
                if _error_of(answer) not in ABSENT:
                    return answer
                self._forget()
            time.sleep(RETRY_S)

    def _find(self) -> WireClient:
        """Return a connection to the coordinator; raise OSError if there is none."""
        host, _, port = self._address.rpartition(":")
        with WireClient(host, int(port), END_S) as client:
            asked = FindCoordinatorRequest(coordinator_keys=[self.group])
            (found,) = client.ask(asked, 4).coordinators
        if found.error_code:
            raise OSError(f"no coordinator: {ErrorCode(found.error_code).name}")
        return WireClient(found.host, found.port, END_S)

    def _forget(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def commit(self, place: Place, version: int) -> ErrorCode:
        """Commit the next offset for all owned partitions."""
        offset = next(self._offsets) + place.generation * 1_000_000
        parts = [
            OffsetCommitRequestPartition(partition_index=p, committed_offset=offset)
            for p in sorted(place.partitions)
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=place.generation,
            member_id=place.member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=parts)],
        )
        sent_at = time.monotonic()
        error = _error_of(self.ask(request, version))
        if error is ErrorCode.NONE:
            self.confirmed_at = sent_at
            self.committed.update(dict.fromkeys(place.partitions, offset))
        return error


def _error_of(answer: Any) -> ErrorCode:
    code = getattr(answer, "error_code", None)
    if code is None:  # OffsetCommit has one per partition, here all equal
        codes = {part.error_code for topic in answer.topics for part in topic.partitions}
        code = max(codes, default=0)
    return ErrorCode(code)


class ClassicMember(RawMember):
    """A member in the classic protocol; as a leader it assigns partitions round-robin."""

    _member_id = ""

    def _live(self) -> None:
        self.place = None
        joined = self.ask(self._join(), 9)
        if joined.error_code:
            self._refused(joined)
            return
        place = self._sync(joined)
        if place is None:
            return
        self.place = place
        while not self._ending.wait(BEAT_S):
            error = self._beat(place)
            if error is not ErrorCode.NONE:
                self._member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else self._member_id
                return

    def _join(self) -> JoinGroupRequest:
        wants = encode_value(ConsumerProtocolSubscription(topics=[self.topic]), 1)
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=wants)],
        )

    def _refused(self, joined: Any) -> None:
        known = joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self._member_id = joined.member_id if known else ""
        if joined.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._member_id = joined.member_id

    def _sync(self, joined: Any) -> Place | None:
        self._member_id = joined.member_id
        names = sorted(member.member_id for member in joined.members)
        dealt = {
            name: [p for p in range(self.partitions) if p % len(names) == at]
            for at, name in enumerate(names)
        }
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=self._share(parts))
                for name, parts in dealt.items()
            ],
        )
        synced = self.ask(request, 5)
        if synced.error_code:
            if synced.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            return None
        given = decode_blob(ConsumerProtocolAssignment, synced.assignment).assigned_partitions
        owned = frozenset(p for one in given for p in one.partitions)
        return Place(joined.generation_id, joined.member_id, owned)

    def _share(self, partitions: list[int]) -> bytes:
        part = TopicPartition(topic=self.topic, partitions=partitions)
        return encode_value(ConsumerProtocolAssignment(assigned_partitions=[part]), 1)

    def _beat(self, place: Place) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=place.generation, member_id=place.member_id
        )
        error = _error_of(self.ask(request, 4))
        return self.commit(place, 8) if error is ErrorCode.NONE else error

    def _leave(self) -> None:
        members = [MemberIdentity(member_id=self._member_id)]
        self.ask(LeaveGroupRequest(group_id=self.group, members=members), 5)


class ConsumerMember(RawMember):
    """A KIP-848 member. `place` is None while its assignment is unconfirmed."""

    _epoch = 0
    _owned: frozenset[int] = frozenset()
    _confirm = False

    def _live(self) -> None:
        known = self._epoch > 0
        answer = self.ask(self._beat(known), 1)
        if answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.place, self._epoch, self._owned = None, 0, frozenset()
            return
        assert not answer.error_code, f"{ErrorCode(answer.error_code).name}: {answer.error_message}"
        self._epoch = answer.member_epoch
        self._confirm = answer.assignment is not None
        if answer.assignment is not None:
            given = answer.assignment.topic_partitions
            self._owned = frozenset(p for one in given for p in one.partitions)
        place = Place(self._epoch, self._name(), self._owned)
        self.place = None if self._confirm else place
        if self.place is not None:
            self.commit(place, 9)
        if not self._confirm:
            self._ending.wait(BEAT_S)

    def _name(self) -> str:
        return f"{self.name} of {self.group}"

    def _beat(self, known: bool) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._name(), member_epoch=self._epoch
        )
        if not known:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = [self.topic]
            request.server_assignor = "uniform"
        if not known or self._confirm:
            parts = sorted(self._owned)
            one = consumer_group_heartbeat.TopicPartitions
            request.topic_partitions = (
                [one(topic_id=self._topic_id(), partitions=parts)] if parts else []
            )
        return request

    def _topic_id(self) -> bytes:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)])
        assert self._client is not None
        topic_id: bytes = self._client.ask(asked, 12).topics[0].topic_id
        return topic_id

    def _leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self._name(), member_epoch=-1
        )
        self.ask(request, 1)
