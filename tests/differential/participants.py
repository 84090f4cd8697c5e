"""The participants of a session: members of groups in both protocols, and other clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raylog.wire.api import ApiKey
from raylog.wire.internal.blobs import encode_value
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from raylog.wire.messages import consumer_group_heartbeat
from raylog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raylog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.wire.messages.delete_groups import DeleteGroupsRequest
from raylog.wire.messages.describe_groups import DescribeGroupsRequest
from raylog.wire.messages.heartbeat import HeartbeatRequest
from raylog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raylog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raylog.wire.messages.list_groups import ListGroupsRequest
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from raylog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.differential.session_stage import Stage

LONG_MS = 60_000
"""A timeout that no session reaches."""
GROUP_MAX_V = 7  # of OffsetFetch: one group in the outer fields
Offsets = Mapping[str, Mapping[int, int]]
"""Topic to partition to offset."""


def subscription(*topics: str, version: int = 1, note: str = "", **other: Any) -> bytes:
    """What a classic consumer sends with each of its protocols.

    Apache Kafka never answers a group of consumers in which one sent anything else.
    """
    fields = {"topics": sorted(topics), "user_data": note.encode()} | other
    blob = ConsumerProtocolSubscription(**fields)
    return encode_value(blob, version)


def assignment(topics: Mapping[str, Sequence[int]]) -> bytes:
    """What a classic leader gives to a member."""
    given = [TopicPartition(topic=t, partitions=list(ps)) for t, ps in topics.items()]
    return encode_value(ConsumerProtocolAssignment(assigned_partitions=given), 1)


class Classic:
    """A member in the classic protocol. The stage remembers its answers."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        *,
        group: str | None = None,
        protocols: Mapping[str, bytes] | Iterable[str] = ("range",),
        instance: str | None = None,
        session_ms: int = LONG_MS,
        rebalance_ms: int = LONG_MS,
        protocol_type: str = "consumer",
    ) -> None:
        self.stage, self.name, self.instance = stage, name, instance
        self.group = stage.group if group is None else group
        if not isinstance(protocols, Mapping):
            protocols = {one: subscription("t2", note=f"{name}/{one}") for one in protocols}
        self.protocols = dict(protocols)
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.protocol_type = protocol_type
        self.synced = -1
        """The generation that it has asked for its assignment in, where the script keeps it."""

    def _joined(self) -> Any:
        return self.stage.last.get((self.name, ApiKey.JOIN_GROUP))

    @property
    def member_id(self) -> str:
        """As the last join told it; "" before."""
        last = self._joined()
        return last.member_id if last else ""

    @property
    def generation(self) -> int:
        """As the last join told it."""
        last = self._joined()
        return last.generation_id if last else -1

    @property
    def is_leader(self) -> bool:
        """Whether the last join made it the leader."""
        last = self._joined()
        return bool(last) and last.leader == last.member_id != ""

    def join(self, version: int = 9, **other: Any) -> Any:
        """Join once; the answer may be MEMBER_ID_REQUIRED, or none yet."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": self.session_ms,
            "member_id": self.member_id,
            "protocol_type": self.protocol_type,
            "protocols": [
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self.protocols.items()
            ],
        }
        if version >= 1:
            fields["rebalance_timeout_ms"] = self.rebalance_ms
        if version >= 5:
            fields["group_instance_id"] = self.instance
        return self.stage.step(self.name, JoinGroupRequest(**(fields | other)), version)

    def enter(self, version: int = 9) -> Any:
        """Join as a new member does, twice where it must first be given an id."""
        answer = self.join(version)
        if version >= 4 and self.instance is None and not self.stage.is_parked(self.name):
            answer = self.join(version)
        return answer

    def sync(self, given: Mapping[str, bytes] | None = None, version: int = 5, **other: Any) -> Any:
        """Ask for the assignment. `given`, by member id, is what a leader brings.

        A leader that is not told otherwise gives each member one partition.
        """
        if given is None:
            last = self._joined()
            members = sorted(last.members, key=lambda m: m.metadata) if last else []
            given = {m.member_id: self._share(n) for n, m in enumerate(members)}
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "assignments": [
                SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in given.items()
            ],
        }
        if version >= 3:
            fields["group_instance_id"] = self.instance
        if version >= 5:
            last = self._joined()
            fields["protocol_type"] = self.protocol_type
            fields["protocol_name"] = last.protocol_name if last else None
        return self.stage.step(self.name, SyncGroupRequest(**(fields | other)), version)

    def _share(self, number: int) -> bytes:
        if self.protocol_type == "consumer":
            return assignment({"t2": [number]})
        return b"assigned %d" % number

    def heartbeat(self, version: int = 4, *, by: str | None = None, **other: Any) -> Any:
        """One heartbeat; `by` sends it over another actor's connection."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
        }
        if version >= 3:
            fields["group_instance_id"] = self.instance
        return self.stage.step(by or self.name, HeartbeatRequest(**(fields | other)), version)

    def leave(
        self,
        version: int = 5,
        *,
        by: str | None = None,
        who: Sequence[tuple[str, str | None]] | None = None,
        **other: Any,
    ) -> Any:
        """Leave, or make those leave who are named by member and instance id."""
        fields: dict[str, Any] = {"group_id": self.group}
        if version < 3:
            fields["member_id"] = self.member_id
        else:
            leaving = [(self.member_id, self.instance)] if who is None else who
            fields["members"] = [
                MemberIdentity(member_id=member_id, group_instance_id=instance)
                for member_id, instance in leaving
            ]
        return self.stage.step(by or self.name, LeaveGroupRequest(**(fields | other)), version)

    def commit(self, offsets: Offsets, version: int = 9, **other: Any) -> Any:
        """Commit as this member."""
        fields: dict[str, Any] = {
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
        }
        if version >= 7:
            fields["group_instance_id"] = self.instance
        outsider = Outsider(self.stage, self.name, group=self.group)
        return outsider.commit(offsets, version, **(fields | other))


def together(*members: Classic, version: int = 9) -> None:
    """Bring new members into one stable generation, the first of them as its leader."""
    for member in members:
        member.enter(version)
        for other in members:
            if other is member:
                break
            if not member.stage.is_parked(other.name):
                other.join(version)
    for member in sorted(members, key=lambda m: not m.is_leader):
        member.sync(version=min(version, 5))


class Outsider:
    """A client that asks about a group, or commits for it, without being a member."""

    def __init__(self, stage: Stage, name: str = "outsider", *, group: str | None = None) -> None:
        self.stage, self.name = stage, name
        self.group = stage.group if group is None else group

    def commit(
        self, offsets: Offsets, version: int = 9, metadata: str | None = "", **other: Any
    ) -> Any:
        """Commit, by default with no generation and no member id."""
        topics = [self._topic(topic, of, version, metadata) for topic, of in offsets.items()]
        request = OffsetCommitRequest(**({"group_id": self.group, "topics": topics} | other))
        return self.stage.step(self.name, request, version)

    def _topic(
        self, topic: str, offsets: Mapping[int, int], version: int, metadata: str | None
    ) -> OffsetCommitRequestTopic:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=0 if version >= 6 else -1,
                committed_metadata=metadata,
            )
            for partition, offset in offsets.items()
        ]
        if version >= 10:
            topic_id = b"u" * 16 if topic == "unknown id" else self.stage.topic_id(topic)
            return OffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions)
        return OffsetCommitRequestTopic(name=topic, partitions=partitions)

    def fetch(
        self, topics: Mapping[str, Sequence[int]] | None, version: int = 9, **other: Any
    ) -> Any:
        """Fetch committed offsets; of all partitions where `topics` is None."""
        if version <= GROUP_MAX_V:
            asked = _mapped(
                topics, lambda t, ps: OffsetFetchRequestTopic(name=t, partition_indexes=ps)
            )
            request = OffsetFetchRequest(**({"group_id": self.group, "topics": asked} | other))
            return self.stage.step(self.name, request, version)
        group = self.fetched_group(topics, version, **other)
        return self.stage.step(self.name, OffsetFetchRequest(groups=[group]), version)

    def fetched_group(
        self, topics: Mapping[str, Sequence[int]] | None, version: int, **other: Any
    ) -> OffsetFetchRequestGroup:
        """One group of a fetch of several."""

        def one(topic: str, partitions: list[int]) -> OffsetFetchRequestTopics:
            if version < 10:
                return OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)
            topic_id = b"u" * 16 if topic == "unknown id" else self.stage.topic_id(topic)
            return OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=partitions)

        fields = {"group_id": self.group} | other
        return OffsetFetchRequestGroup(topics=_mapped(topics, one), **fields)

    def forget(self, topics: Mapping[str, Sequence[int]]) -> Any:
        """OffsetDelete."""
        asked = [
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in partitions],
            )
            for topic, partitions in topics.items()
        ]
        request = OffsetDeleteRequest(group_id=self.group, topics=asked)
        return self.stage.step(self.name, request, 0)

    def describe(self, *groups: str, version: int = 6, allowed: bool = False) -> Any:
        """DescribeGroups."""
        request = DescribeGroupsRequest(
            groups=list(groups or [self.group]), include_authorized_operations=allowed
        )
        return self.stage.step(self.name, request, version)

    def describe_consumers(self, *groups: str, version: int = 1, allowed: bool = False) -> Any:
        """ConsumerGroupDescribe."""
        request = ConsumerGroupDescribeRequest(
            group_ids=list(groups or [self.group]), include_authorized_operations=allowed
        )
        return self.stage.step(self.name, request, version)

    def list(self, version: int = 5, **filters: list[str]) -> Any:
        """ListGroups; only the session's own are noted."""
        return self.stage.step(self.name, ListGroupsRequest(**filters), version)

    def delete(self, *groups: str, version: int = 2) -> Any:
        """DeleteGroups."""
        request = DeleteGroupsRequest(groups_names=list(groups or [self.group]))
        return self.stage.step(self.name, request, version)

    def until_state(self, state: str) -> Any:
        """Wait until the classic group is in a state."""
        asked = DescribeGroupsRequest(groups=[self.group])
        return self.stage.until(
            self.name, lambda: (asked, 6), lambda answer: answer.groups[0].group_state == state
        )


def _mapped(topics: Mapping[str, Sequence[int]] | None, make: Any) -> Any:
    if topics is None:
        return None
    return [make(topic, list(partitions)) for topic, partitions in topics.items()]


class Consumer:
    """A KIP-848 member, which owns what it was last assigned."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        *topics: str,
        group: str | None = None,
        instance: str | None = None,
        member_id: str | None = None,
        assignor: str | None = "range",
        regex: str | None = None,
        rack: str | None = None,
        version: int = 1,
    ) -> None:
        self.stage, self.name, self.instance, self.version = stage, name, instance, version
        self.group = stage.group if group is None else group
        self.topics: list[str] | None = list(topics)
        self.regex, self.assignor, self.rack = regex, assignor, rack
        # It sorts before any that a broker makes: some assignors go by the order of ids.
        self._chosen = member_id or (f"!{name}" if version else "")
        self.owned: list[Any] = []
        self.epoch = 0
        """As the last heartbeat that succeeded told it."""

    def _last_answer(self) -> Any:
        return self.stage.last.get((self.name, ApiKey.CONSUMER_GROUP_HEARTBEAT))

    @property
    def member_id(self) -> str:
        """Its own choice, or the broker's."""
        last = self._last_answer()
        return self._chosen or (last.member_id if last and last.member_id else "")

    def join(self, **other: Any) -> Any:
        """The first heartbeat, which tells all."""
        self.owned = []
        fields: dict[str, Any] = {
            "member_epoch": 0,
            "instance_id": self.instance,
            "rack_id": self.rack,
            "rebalance_timeout_ms": LONG_MS,
            "subscribed_topic_names": self.topics,
            "server_assignor": self.assignor,
            "topic_partitions": [],
        }
        if self.version >= 1:
            fields["subscribed_topic_regex"] = self.regex
        return self._ask(fields | other)

    def heartbeat(self, **other: Any) -> Any:
        """The next heartbeat: it tells nothing new."""
        return self._ask({"member_epoch": self.epoch} | other)

    def confirm(self, **other: Any) -> Any:
        """A heartbeat that says it owns what it was last assigned."""
        return self._ask({"member_epoch": self.epoch, "topic_partitions": self.owned} | other)

    def leave(self, epoch: int = -1) -> Any:
        """Leave; with -2 as a static member that will be back."""
        return self._ask({"member_epoch": epoch, "instance_id": self.instance})

    def settle(self, times: int = 3) -> None:
        """Confirm a few times: what is given up or comes from others takes some."""
        for _ in range(times):
            self.confirm()

    def until_assigned(self, count: int) -> Any:
        """Repeat heartbeats until so many partitions were assigned; the last answer is noted."""
        return self.stage.until(self.name, self._confirming, lambda _: self._take() == count)

    def until_epoch(self, above: int) -> Any:
        """Repeat heartbeats until the member epoch is above one."""
        return self.stage.until(
            self.name, self._confirming, lambda last: last.error_code != 0 or self.epoch > above
        )

    def commit(self, offsets: Offsets, version: int = 9, **other: Any) -> Any:
        """Commit as this member."""
        fields: dict[str, Any] = {
            "generation_id_or_member_epoch": self.epoch,
            "member_id": self.member_id,
        }
        outsider = Outsider(self.stage, self.name, group=self.group)
        return outsider.commit(offsets, version, **(fields | other))

    def _confirming(self) -> tuple[ConsumerGroupHeartbeatRequest, int]:
        self._take()
        fields = {"member_epoch": self.epoch, "topic_partitions": self.owned}
        return self._request(fields), self.version

    def _request(self, fields: Mapping[str, Any]) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            **({"group_id": self.group, "member_id": self.member_id} | dict(fields))
        )

    def _ask(self, fields: Mapping[str, Any]) -> Any:
        answer = self.stage.step(self.name, self._request(fields), self.version)
        self._take()
        return answer

    def _take(self) -> int:
        """Take what was assigned as owned; returns how many partitions that are."""
        last = self._last_answer()
        if last is None or last.error_code:
            return 0
        self.epoch = last.member_epoch
        if last.assignment is not None:
            self.owned = [
                consumer_group_heartbeat.TopicPartitions(
                    topic_id=one.topic_id, partitions=list(one.partitions)
                )
                for one in last.assignment.topic_partitions
            ]
        return sum(len(one.partitions) for one in self.owned)
