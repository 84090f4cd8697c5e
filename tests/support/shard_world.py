"""A shard of the group coordinator with its real assignors, topics, and a clock that tests move."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from raylog.actors.coordination.step import Asked, LogRecord, Step, TimerKey
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.consumer import ConsumerGroup
from raylog.actors.group.listing import Group
from raylog.actors.group.settings import GroupSettings
from raylog.actors.group.shard import Shard
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import PartitionCreated, TopicCreated
from raylog.actors.ports import TopicId
from raylog.wire.codec import decode, encode
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.blobs import (
    OFFSETS_TOPIC,
    decode_blob,
    decode_record,
    encode_key,
    encode_value,
)
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from raylog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from raylog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from raylog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from raylog.wire.schema import layout_of
from tests.support.steps import commit, set_timers

GROUP = "g"
START_MS = 1_700_000_000_000
AT_ONCE = GroupSettings(consumer_assignment_interval_ms=0, initial_rebalance_delay_ms=0)
"""Neither kind of group waits for more members."""
Owned = dict[str, list[int]]


@dataclass(slots=True)
class ShardWorld:
    """One shard; requests are about group `g`, and go through their bytes as records do."""

    settings: GroupSettings = AT_ONCE
    image: MetadataImage = field(default_factory=MetadataImage)
    now_ms: int = START_MS
    random: Random = field(default_factory=lambda: Random(7))
    log: list[LogRecord] = field(default_factory=list)
    timers: dict[tuple[str, TimerKey], float] = field(default_factory=dict)
    answers: dict[int, Any] = field(default_factory=dict)
    """By token, of requests whose answer nobody has taken yet."""
    waiting: dict[int, int] = field(default_factory=dict)
    """Versions by token, of requests that are not answered yet."""
    tokens: int = 0
    shard: Shard = field(init=False)

    def __post_init__(self) -> None:
        self.shard = Shard(self.settings, Assigning())

    @property
    def group(self) -> Group:
        """The group."""
        return self.shard.groups[GROUP]

    @property
    def consumer(self) -> ConsumerGroup:
        """The group, which is one of KIP-848."""
        assert isinstance(self.group, ConsumerGroup)
        return self.group

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic."""
        topic_id = TopicId(name.encode().ljust(16, b"."))
        self.image.apply(TopicCreated(topic_id, name))
        for index in range(partitions):
            self.image.apply(PartitionCreated(topic_id, index, (1,), (1,), 1, 0, 0, {1: "i"}))

    def run(self, event: Any) -> None:
        """Let one step happen, with all that comes of it."""
        step = Step(self.now_ms, float(self.now_ms), self.image, self.random, self.shard.replay)
        event(step)
        set_timers(self.timers, step.timers)
        for answer in step.answers:
            version = self.waiting.pop(answer.token)  # nothing is answered twice
            self.answers[answer.token] = _through(answer.response, version)
        self.log.extend(map(_through_bytes, step.records))
        commit(step)

    def send(self, request: Any, version: int) -> int:
        """Send a request; `answers` has what it is answered, in time, under what this returns."""
        self.tokens += 1
        asked = Asked(self.tokens, _through(request, version), version, "client", "/127.0.0.1")
        self.waiting[asked.token] = version
        self.run(lambda step: self.shard.handle(step, asked))
        return asked.token

    def ask(self, request: Any, version: int) -> Any:
        """Send a request that is answered at once."""
        return self.answers.pop(self.send(request, version))

    def advance(self, ms: int) -> None:
        """Move the clock, and call each timer as it falls due."""
        end_ms = self.now_ms + ms
        while due := [(at, key) for key, at in self.timers.items() if at <= end_ms]:
            at_ms, (group_id, key) = min(due, key=lambda one: one[0])
            del self.timers[group_id, key]
            self.now_ms = max(self.now_ms, int(at_ms))
            self.run(lambda step, group_id=group_id, key=key: self.shard.timer(step, group_id, key))
        self.now_ms = end_ms

    def crash(self) -> None:
        """Lose all but the log, and load it."""
        self.timers.clear()
        self.shard = Shard(self.settings, Assigning())
        for record in self.log:
            self.shard.replay(record).commit()
        self.run(self.shard.loaded)
        self.run(lambda step: self.shard.forget_gone(step, self.shard.walk()))

    # ---- members -------------------------------------------------------------------------

    def beat(
        self, member_id: str, epoch: int, owned: Owned | None = None, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat of KIP-848."""
        if owned is not None:
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=self.image.topic_ids[name], partitions=some)
                for name, some in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        response: ConsumerGroupHeartbeatResponse = self.ask(request, 1)
        return response

    def enter(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A member joins by KIP-848."""
        fields.setdefault("rebalance_timeout_ms", 30_000)
        return self.beat(member_id, 0, {}, subscribed_topic_names=list(topics), **fields)

    def send_join(
        self,
        member_id: str,
        *topics: str,
        owned: Owned | None = None,
        instance_id: str | None = None,
        version: int = 9,
        **fields: Any,
    ) -> int:
        """A JoinGroup of a consumer; `answers` has what it is answered, in time."""
        blob = subscription_blob(*topics, owned=owned)
        names = fields.pop("protocols", ("range",))
        fields.setdefault("protocol_type", "consumer")
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=blob) for name in names],
            **fields,
        )
        return self.send(request, version)

    def join(self, member_id: str, *topics: str, **fields: Any) -> JoinGroupResponse:
        """A JoinGroup that is answered at once."""
        token = self.send_join(member_id, *topics, **fields)
        self.advance(0)  # an initial rebalance's delay, which is none, is a timer
        response: JoinGroupResponse = self.answers.pop(token)
        return response

    def sync(
        self,
        member_id: str,
        generation: int,
        assigned: dict[str, Owned] | None = None,
        **fields: Any,
    ) -> SyncGroupResponse:
        """A SyncGroup, of a leader with what it assigns."""
        fields.setdefault("protocol_type", "consumer")
        fields.setdefault("protocol_name", "range")
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=one, assignment=assignment_blob(owned))
                for one, owned in (assigned or {}).items()
            ],
            **fields,
        )
        response: SyncGroupResponse = self.ask(request, 5)
        return response

    def live(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        """A classic heartbeat."""
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        return ErrorCode(self.ask(request, 4).error_code)

    def leave(self, *members: tuple[str, str | None]) -> LeaveGroupResponse:
        """A LeaveGroup for members and instances."""
        identities = [
            MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in members
        ]
        response: LeaveGroupResponse = self.ask(
            LeaveGroupRequest(group_id=GROUP, member_id="", members=identities), 5
        )
        return response

    def owned(self, response: ConsumerGroupHeartbeatResponse) -> Owned | None:
        """The assignment that an answer tells, by name; None if it tells none."""
        if response.assignment is None:
            return None
        return {
            self.image.topics[TopicId(one.topic_id)].name: one.partitions
            for one in response.assignment.topic_partitions
        }


def subscription_blob(*topics: str, owned: Owned | None = None) -> bytes:
    """What a consumer wants and has."""
    owns = [TopicPartition(topic=name, partitions=some) for name, some in (owned or {}).items()]
    return encode_value(ConsumerProtocolSubscription(topics=list(topics), owned_partitions=owns), 3)


def assignment_blob(owned: Owned, user_data: bytes | None = None) -> bytes:
    """What a leader assigns to one member."""
    assigned = [TopicPartition(topic=name, partitions=some) for name, some in owned.items()]
    return encode_value(
        ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=user_data), 3
    )


def assigned_by(blob: bytes) -> Owned:
    """What an assignment says."""
    found = decode_blob(ConsumerProtocolAssignment, blob)
    return {one.topic: one.partitions for one in found.assigned_partitions}


def _through(message: Any, version: int) -> Any:
    return decode(type(message), version, encode(message, version))


def _through_bytes(record: LogRecord) -> LogRecord:
    value = None
    if record.value is not None:
        versions = layout_of(type(record.value)).versions
        assert versions is not None
        version = versions[-1] if record.value_version is None else record.value_version
        value = encode_value(record.value, version)
    found = decode_record(OFFSETS_TOPIC, encode_key(record.key), value)
    assert found is not None
    return LogRecord(*found)
