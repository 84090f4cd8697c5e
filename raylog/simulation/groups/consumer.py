"""Members of consumer groups (KIP-848), whose coordinator assigns the partitions."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.simulation.asking import UNANSWERED
from raylog.simulation.cluster import Cluster
from raylog.simulation.groups.committing import BY_ID, GroupClient, Member, Place, stored
from raylog.simulation.groups.history import Ownership
from raylog.wire.errors import (
    FencedMemberEpoch,
    KafkaError,
    StaleMemberEpoch,
    UnknownMemberId,
)
from raylog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from raylog.wire.uuids import random_uuid, to_base64

VERSION = 1
JOINS, LEAVES = 0, -1
"""Member epochs with which a heartbeat joins and leaves."""
REBALANCE_MS = 3_000
GOES, VANISHES = 0.04, 0.02
"""Probabilities after a heartbeat: to leave, and to be silent for longer than the session."""


class ConsumerMember(GroupClient):
    """One member. It rejoins until told to stop."""

    def __init__(self, cluster: Cluster, ownership: Ownership, number: int, topic: str) -> None:
        super().__init__(cluster, ownership.ledger, number)
        self.is_calm = False
        """Whether it stays in the group."""
        self._ownership = ownership
        self._topic = topic
        self._member_id = ""
        self._epoch = JOINS
        self._positions: dict[Place, int] = {}

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that it owns."""
        return frozenset(place.partition for place in self._positions)

    async def run(self, pause_s: float) -> None:
        """Be a member until told to stop."""
        while not self.stopping:
            try:
                self._begin_anew()
                while not self.stopping:
                    await self._beat()
                    await self._commit()
                    await self.asking.pause(min(pause_s, self._ownership.session_s / 4))
                    await self._perhaps_go()
            except (FencedMemberEpoch, UnknownMemberId):
                pass  # it joins again
            except (*UNANSWERED, KafkaError):
                await self.asking.pause()
        self.stopped = True

    def _begin_anew(self) -> None:
        """Become a new member, which owns nothing."""
        self._ownership.kept(self._member_id, ())
        self._member_id = to_base64(random_uuid(self.random))
        self._epoch = JOINS
        self._positions.clear()

    async def _perhaps_go(self) -> None:
        drawn = 1.0 if self.is_calm else self.random.random()
        if drawn < GOES:
            self._ownership.kept(self._member_id, ())
            self._positions.clear()
            await self._ask(LEAVES, ())
            self._begin_anew()
        elif drawn < GOES + VANISHES:
            await self.asking.runtime.sleep(1.5 * self._ownership.session_s)

    async def _beat(self) -> None:
        """Report the owned partitions, then follow the assignment: first revoke, then add."""
        sent_s = self.now_s
        answer = await self._repeat(self._positions)
        self._ownership.answered(self._member_id, sent_s, self.now_s)
        self._epoch = answer.member_epoch
        if answer.assignment is None:
            return
        wanted = {
            Place(self._topic, TopicId(one.topic_id), partition)
            for one in answer.assignment.topic_partitions
            for partition in one.partitions
        }
        more = wanted - set(self._positions)
        for place in set(self._positions) - wanted:
            del self._positions[place]
        self._ownership.kept(self._member_id, _keys(self._positions))
        self._ownership.given(self._member_id, _keys(more), self.now_s)
        for place in sorted(more):
            self._positions[place] = stored(await self.fetch(place, BY_ID, self._as_member()))

    async def _repeat(self, owned: Iterable[Place]) -> ConsumerGroupHeartbeatResponse:
        """Repeat a heartbeat until it is answered."""
        while True:
            try:
                return await self._ask(self._epoch, owned)
            except UNANSWERED:
                if self.stopping:
                    raise
                await self.asking.pause()

    async def _ask(self, epoch: int, owned: Iterable[Place]) -> ConsumerGroupHeartbeatResponse:
        by_topic: dict[TopicId, list[int]] = {}
        for place in owned:
            by_topic.setdefault(place.topic_id, []).append(place.partition)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.ledger.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[self._topic],
            topic_partitions=[
                TopicPartitions(topic_id=one, partitions=found) for one, found in by_topic.items()
            ],
        )
        answer: ConsumerGroupHeartbeatResponse = await self.asking.ask_coordinator(
            self.ledger.group_id, request, VERSION
        )
        return answer

    def _as_member(self) -> Member:
        return Member(self._member_id, self._epoch)

    async def _commit(self) -> None:
        for place in tuple(self._positions):
            self._positions[place] += self.random.randint(1, 5)
            try:
                await self.commit(place, self._positions[place], self._as_member(), BY_ID)
            except StaleMemberEpoch:
                return  # the next heartbeat tells the epoch


def _keys(places: Iterable[Place]) -> list[PartitionKey]:
    return [place.key for place in places]
