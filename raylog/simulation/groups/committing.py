"""What all clients of groups share: they find the coordinator, commit and fetch offsets."""

from __future__ import annotations

from typing import NamedTuple

from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.simulation.asking import UNANSWERED, Asking, without_errors
from raylog.simulation.cluster import Cluster
from raylog.simulation.groups.history import NONE_STORED, Commit, GroupLedger
from raylog.wire.errors import (
    CoordinatorLoadInProgress,
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raylog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

BY_NAME, BY_ID = 9, 10
"""Versions of OffsetCommit and OffsetFetch without and with topic ids (KIP-848)."""
WITHOUT_EFFECT = (
    CoordinatorLoadInProgress,
    FencedMemberEpoch,
    IllegalGeneration,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
"""Errors after which nothing was written."""


class Place(NamedTuple):
    """A partition as a group's client names it."""

    topic: str
    topic_id: TopicId
    partition: int

    @property
    def key(self) -> PartitionKey:
        """The partition of this incarnation of the topic."""
        return self.topic_id, self.partition


class Member(NamedTuple):
    """The identity of a client that commits."""

    member_id: str = ""
    generation: int = -1
    """Generation or member epoch; -1 for a client that is no member."""


class GroupClient:
    """A client of one group."""

    def __init__(self, cluster: Cluster, ledger: GroupLedger, number: int) -> None:
        self.ledger = ledger
        self.asking = Asking(cluster, number)
        self.random = self.asking.random
        self.stopping = False
        self.stopped = False
        self._number = number
        self._loop = cluster.world.loop

    @property
    def label(self) -> str:
        """The name in messages."""
        return f"{self.ledger.group_id}.{self._number}"

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._loop.time()

    async def commit(self, place: Place, offset: int, member: Member, version: int) -> Commit:
        """Commit an offset once.

        Raises the error, or PeerLost or PeerTimeout if the outcome is unknown.
        """
        partition = OffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(
            name=place.topic, topic_id=place.topic_id, partitions=[partition]
        )
        request = OffsetCommitRequest(
            group_id=self.ledger.group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            topics=[topic],
        )
        commit = self.ledger.committing(place.key, offset, self.now_s)
        try:
            await self.asking.ask_coordinator(self.ledger.group_id, request, version)
        except WITHOUT_EFFECT:
            commit.is_refused = True
            raise
        commit.acked_s = self.now_s
        return commit

    async def fetch(self, place: Place, version: int, member: Member | None = None) -> int:
        """The group's offset of a partition. Raises like `commit`."""
        topics = OffsetFetchRequestTopics(
            name=place.topic, topic_id=place.topic_id, partition_indexes=[place.partition]
        )
        group = OffsetFetchRequestGroup(group_id=self.ledger.group_id, topics=[topics])
        if member is not None:
            group.member_id, group.member_epoch = member.member_id, member.generation
        asked_s = self.now_s
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        response = await self.asking.ask_coordinator(self.ledger.group_id, request, version)
        [[found]] = [one.partitions for one in without_errors(response).groups[0].topics]
        offset = int(found.committed_offset)
        self.ledger.read(place.key, offset, asked_s)
        return offset


class Committer(GroupClient):
    """Commits increasing offsets without being a member, as tools and some engines do."""

    def __init__(
        self, cluster: Cluster, ledger: GroupLedger, number: int, topic: str, partition: int
    ) -> None:
        super().__init__(cluster, ledger, number)
        self._topic = topic
        self._partition = partition
        self._offset = 0

    async def run(self, pause_s: float) -> None:
        """Commit and fetch offsets until told to stop."""
        while not self.stopping:
            try:
                known = await self.asking.topic(self._topic)
                place = Place(self._topic, known.topic_id, self._partition)
                await self._go_on(place)
            except (*UNANSWERED, KafkaError):
                await self.asking.pause()
            await self.asking.pause(pause_s)
        self.stopped = True

    async def _go_on(self, place: Place) -> None:
        """Commit some offsets of the current incarnation of a topic."""
        if self.random.random() < 0.5:
            found = await self.fetch(place, BY_ID)
            self._offset = max(self._offset, found)
        for _ in range(self.random.randint(1, 3)):
            self._offset += self.random.randint(1, 5)
            await self.commit(place, self._offset, Member(), BY_ID)


def stored(offset: int) -> int:
    """The position at which a consumer starts for a stored offset."""
    return 0 if offset == NONE_STORED else offset
