"""One shard of the group coordinator and its assignors, without log, links or clock."""

from __future__ import annotations

from typing import Any

from raylog.actors.common_messages import TopicId
from raylog.actors.coordination.rules.step import Change, LogRecord, Step, TimerKey
from raylog.actors.group.assigning import Assigning
from raylog.actors.group.rules.consumer import ConsumerGroup
from raylog.actors.group.rules.failures import ListGroupsPart
from raylog.actors.group.rules.listing import Group
from raylog.actors.group.rules.settings import GroupSettings
from raylog.actors.group.rules.shard import Shard
from raylog.actors.metadata.records import TopicDeleted
from raylog.wire.errors import ErrorCode
from raylog.wire.internal.blobs import decode_blob, encode_value
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
from raylog.wire.messages.list_groups import ListGroupsRequest
from raylog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from raylog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.worlds.coordination.steps import Ask, StepWorld, through_bytes
from tests.worlds.metadata import id_of, topic_records

GROUP = "g"
AT_ONCE = GroupSettings(consumer_assignment_interval_ms=0, initial_rebalance_delay_ms=0)
"""No group waits for more members."""
Owned = dict[str, list[int]]


def forget(shard: Shard, step: Step, deleted: set[str]) -> None:
    """Tell a shard that topics were deleted, as its host does."""
    shard.topics_changed(step, deleted, shard.groups)
    shard.forget_gone(step, shard.walk(deleted))


class ShardWorld(StepWorld):
    """A shard; members' requests go to the group `g`.

    The log does not record which records are transactional, so tests with these must not crash it.
    """

    def __init__(self, settings: GroupSettings = AT_ONCE) -> None:
        super().__init__()
        self.settings = settings
        self.shard = Shard(settings, Assigning())

    @property
    def group(self) -> Group:
        """The group."""
        return self.shard.groups[GROUP]

    @property
    def consumer(self) -> ConsumerGroup:
        """The group, which must be a KIP-848 group."""
        assert isinstance(self.group, ConsumerGroup)
        return self.group

    @property
    def durable(self) -> bool | None:
        """Whether the last response waits for the log."""
        return self.asks[-1].durable

    def topics(self, **partitions: int) -> None:
        """Create topics."""
        for name, count in partitions.items():
            self.image.apply_all(topic_records(name, count))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and tell the shard."""
        self.image.apply(TopicDeleted(id_of(name)))
        self.run(lambda step: forget(self.shard, step, {name}))

    def replay(self, record: LogRecord) -> Change:
        """Replay a record into the shard."""
        return self.shard.replay(record)

    def fire(self, group_id: str, key: TimerKey, step: Step) -> None:
        """Fire a group's timer."""
        self.shard.timer(step, group_id, key)

    def expire(self) -> None:
        """Remove expired offsets."""
        self.run(lambda step: self.shard.expire(step, list(self.shard.walk())))

    def send(self, request: Any, version: int) -> Ask:
        """Send a request that may have to wait for its response."""
        if isinstance(request, ListGroupsRequest):
            request = ListGroupsPart(through_bytes(request, version), self.shard.group_ids())
        in_transaction = isinstance(request, TxnOffsetCommitRequest)
        replay = self.shard.replay_in(request) if in_transaction else None
        return self.submit(self.shard.handle, request, version, replay=replay)

    def ask(self, request: Any, version: int) -> Any:
        """Send a request that is answered at once, and return the response."""
        return self._answer(self.send(request, version))

    def _answer(self, ask: Ask) -> Any:
        self.advance(0)  # the initial rebalance delay, though it is 0, is a timer
        assert ask.error is None
        assert ask.answer is not None, "it waits"
        return ask.answer

    def crash(self) -> None:
        """Lose everything but the log, and load it."""
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
        """Send a KIP-848 heartbeat."""
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
        """Join as a KIP-848 member."""
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
    ) -> Ask:
        """Send a consumer's JoinGroup, which may have to wait."""
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
        """Send a JoinGroup that is answered at once."""
        response: JoinGroupResponse = self._answer(self.send_join(member_id, *topics, **fields))
        return response

    def sync(
        self,
        member_id: str,
        generation: int,
        assigned: dict[str, Owned] | None = None,
        **fields: Any,
    ) -> SyncGroupResponse:
        """Send a SyncGroup; `assigned` is the leader's assignment."""
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
        """Send a classic heartbeat."""
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        return ErrorCode(self.ask(request, 4).error_code)

    def leave(self, *members: tuple[str, str | None]) -> LeaveGroupResponse:
        """Send a LeaveGroup for (member id, instance id) pairs."""
        identities = [
            MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in members
        ]
        response: LeaveGroupResponse = self.ask(
            LeaveGroupRequest(group_id=GROUP, member_id="", members=identities), 5
        )
        return response

    def owned(self, response: ConsumerGroupHeartbeatResponse) -> Owned | None:
        """Return the assignment in a response by topic name; None if it has none."""
        if response.assignment is None:
            return None
        return {
            self.image.topics[TopicId(one.topic_id)].name: one.partitions
            for one in response.assignment.topic_partitions
        }


def subscription_blob(*topics: str, owned: Owned | None = None) -> bytes:
    """Return a consumer's encoded subscription, with the partitions it owns."""
    owns = [TopicPartition(topic=name, partitions=some) for name, some in (owned or {}).items()]
    return encode_value(ConsumerProtocolSubscription(topics=list(topics), owned_partitions=owns), 3)


def assignment_blob(owned: Owned, user_data: bytes | None = None) -> bytes:
    """Return one member's encoded assignment."""
    assigned = [TopicPartition(topic=name, partitions=some) for name, some in owned.items()]
    return encode_value(
        ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=user_data), 3
    )


def assigned_by(blob: bytes) -> Owned:
    """Return the partitions of an encoded assignment."""
    found = decode_blob(ConsumerProtocolAssignment, blob)
    return {one.topic: one.partitions for one in found.assigned_partitions}
