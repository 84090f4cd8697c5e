"""A KIP-848 group with topics, and members that send heartbeats to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raylog.actors.common_messages import TopicId
from raylog.actors.group.rules.consumer import ConsumerGroup
from raylog.actors.group.rules.settings import GroupSettings
from raylog.actors.metadata.records import PartitionCreated, TopicCreated, TopicDeleted
from raylog.assignors.api import Member, MemberAssignment, PluginError, Topic
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.messages.consumer_group_describe import DescribedGroup
from raylog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.worlds.group.machine import GroupWorld

GROUP = "g"
Owned = dict[str, list[int]]


@dataclass(slots=True)
class FewMoves:
    """An assignor that assigns evenly, moves little, fails on request and counts its calls."""

    error: str | None = None
    names: list[str] = field(default_factory=list)
    """The names of the assignors that were asked for."""
    members: Sequence[Member] = ()
    """The members of the last call."""
    topics: Mapping[str, Topic] = field(default_factory=dict)

    def assign(
        self, group_id: str, name: str, members: Sequence[Member], topics: Mapping[str, Topic]
    ) -> dict[str, MemberAssignment]:
        """Keep owned partitions where possible; give the rest to the members that have least."""
        assert group_id == GROUP
        self.names.append(name)
        self.members, self.topics = members, topics
        if self.error is not None:
            raise PluginError(self.error)
        given: dict[str, list[tuple[str, int]]] = {one.member_id: [] for one in members}
        total = sum(topic.partitions for topic in topics.values())
        most = -(-total // max(1, len(members)))
        free = {(name, one) for name, topic in topics.items() for one in range(topic.partitions)}
        for member in members:
            owned = [(name, one) for name, some in member.owned.items() for one in some]
            kept = [one for one in owned if one in free and one[0] in member.topics][:most]
            given[member.member_id].extend(kept)
            free -= set(kept)
        for topic_name, partition in sorted(free):
            takers = [one.member_id for one in members if topic_name in one.topics]
            if takers:
                least = min(takers, key=lambda member_id: len(given[member_id]))
                given[least].append((topic_name, partition))
        return {member_id: MemberAssignment(_grouped(some)) for member_id, some in given.items()}


def _grouped(pairs: list[tuple[str, int]]) -> Owned:
    grouped: Owned = {}
    for name, partition in sorted(pairs):
        grouped.setdefault(name, []).append(partition)
    return grouped


class ConsumerWorld:
    """One group `g`. Tests create topics as they need them; assignments are not delayed."""

    def __init__(self, settings: GroupSettings | None = None, **topics: int) -> None:
        self.assigning = FewMoves()
        self.settings = settings or GroupSettings(consumer_assignment_interval_ms=0)
        self.world = GroupWorld(self._new)
        for name, partitions in topics.items():
            self.create_topic(name, partitions)

    def _new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self.settings, self.assigning)

    @property
    def group(self) -> ConsumerGroup:
        """The group, created if there is none."""
        groups = self.world.groups
        if GROUP not in groups:
            groups[GROUP] = self._new(GROUP)
        found: ConsumerGroup = groups[GROUP]
        return found

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic and tell the group."""
        image = self.world.image
        topic_id = TopicId(name.encode().ljust(16, b"."))
        image.apply(TopicCreated(topic_id, name))
        self._add_partitions(topic_id, 0, partitions)
        self._changed({name})

    def grow_topic(self, name: str, partitions: int) -> None:
        """Add partitions to a topic and tell the group."""
        topic = self.world.image.topic(name)
        assert topic is not None
        self._add_partitions(topic.topic_id, len(topic.partitions), partitions)
        self._changed({name})

    def delete_topic(self, name: str) -> None:
        """Delete a topic and tell the group."""
        self.world.image.apply(TopicDeleted(self.world.image.topic_ids[name]))
        self._changed({name})

    def _add_partitions(self, topic_id: TopicId, first: int, end: int) -> None:
        for index in range(first, end):
            self.world.image.apply(PartitionCreated(topic_id, index, (1,), (1,), 1, 0, 0, {1: "i"}))

    def _changed(self, names: set[str]) -> None:
        if GROUP in self.world.groups:
            self.world.run(lambda step: self.group.metadata_changed(step, names))
            self.world.advance(0)

    def ask(self, member_id: str, epoch: int, *, version: int = 1, **fields: Any) -> Any:
        """Send a heartbeat without checks; return its Ask."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        _ = self.group
        return self.world.ask(ConsumerGroup.consumer_heartbeat, request, version)

    def beat(
        self,
        member_id: str,
        epoch: int,
        owned: Owned | None = None,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat that must be accepted; return the response."""
        if owned is not None:
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=self.world.image.topic_ids[name], partitions=some)
                for name, some in owned.items()
            ]
        ask = self.ask(member_id, epoch, **fields)
        if ask.error is not None:
            raise ask.error
        response: ConsumerGroupHeartbeatResponse = ask.answer
        assert response.error_code == ErrorCode.NONE
        return response

    def join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Join or rejoin as a member."""
        fields.setdefault("rebalance_timeout_ms", 30_000)
        if "subscribed_topic_regex" not in fields or topics:
            fields["subscribed_topic_names"] = list(topics)
        return self.beat(member_id, 0, {}, **fields)

    def refused(self, member_id: str, epoch: int, **fields: Any) -> KafkaError:
        """Send a heartbeat that must be refused without a trace; return the error."""
        before = len(self.world.log)
        ask = self.ask(member_id, epoch, **fields)
        assert isinstance(ask.error, KafkaError)
        assert len(self.world.log) == before
        return ask.error

    def owned(self, response: ConsumerGroupHeartbeatResponse) -> Owned | None:
        """Return the assignment in a response by topic name; None if it has none."""
        if response.assignment is None:
            return None
        return {
            self.world.image.topics[TopicId(one.topic_id)].name: one.partitions
            for one in response.assignment.topic_partitions
        }

    def epoch(self, member_id: str) -> int:
        """Return a member's epoch."""
        return self.group.state.holding(member_id).epoch

    def describe(self) -> DescribedGroup:
        """Return the group as ConsumerGroupDescribe describes it."""
        return self.group.consumer_describing(self.world.image).whole()

    def assignments(self) -> dict[str, Owned]:
        """Return what each member owns now, by topic name."""
        return {
            member.member_id: {
                one.topic_name: one.partitions for one in member.assignment.topic_partitions
            }
            for member in self.describe().members
        }
