"""Replicas and their brokers: who is in sync, who leads, and operations to change both.

Changes are not retried once they were sent. A lost answer raises ConnectionLost or RequestTimedOut,
and the outcome is unknown; all changes are safe to repeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from raylog.client.admin.base import Operations, names_in
from raylog.client.admin.brokers import reached_broker
from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.errors import NotKafka, NotSupported
from raylog.client.matching import answers_among, answers_to, distinct_answers, named
from raylog.client.refusals import check, refusal
from raylog.wire.errors import KafkaError
from raylog.wire.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from raylog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from raylog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from raylog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
)
from raylog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from raylog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from raylog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from raylog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from raylog.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from raylog.wire.uuids import ZERO_UUID, from_base64, to_base64

METADATA_LOG = "__cluster_metadata"
_topic = named("topic")
Outcomes = dict[TopicPartition, KafkaError | None]
"""The result for each partition: None for success, otherwise the broker's error."""


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """The replicas of one partition, as broker ids."""

    topic: str
    partition: int
    leader: int
    """-1 if there is none."""
    leader_epoch: int
    replicas: Sequence[int]
    """All assigned replicas, the preferred leader first."""
    isr: Sequence[int]
    """Replicas in sync."""
    offline: Sequence[int] = ()
    elr: Sequence[int] | None = None
    """Replicas out of sync that hold all committed records (KIP-966); None if not known."""
    last_known_elr: Sequence[int] | None = None

    @property
    def key(self) -> TopicPartition:
        """The partition as a TopicPartition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def is_under_replicated(self) -> bool:
        """Whether an assigned replica is out of sync."""
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition being moved: its current replicas, and those being added and removed."""

    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """One replica of the metadata log; times in ms since 1970, -1 if unknown."""

    broker_id: int
    log_end_offset: int
    """-1 if unknown."""
    last_contact_ms: int
    caught_up_ms: int
    directory_id: str = ""
    """Id of the directory that holds it; empty if not known (before Kafka 3.9)."""


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The metadata quorum."""

    leader: int
    epoch: int
    high_watermark: int
    voters: list[QuorumMember]
    observers: list[QuorumMember]

    def lag(self, member: QuorumMember) -> int | None:
        """Return how many records behind the leader a member is; None if an offset is unknown."""
        ends = {one.broker_id: one.log_end_offset for one in self.voters}
        end = ends.get(self.leader, self.high_watermark)
        return max(0, end - member.log_end_offset) if member.log_end_offset >= 0 <= end else None


class ReplicaAdmin(Operations):
    """The operations; the blocking and the asyncio client offer each as one call."""

    async def describe_partitions(
        self, topics: Iterable[str] | None = None
    ) -> dict[TopicPartition, PartitionReplicas]:
        """Return leaders and replicas of topics (None: of all); raises UnknownTopicOrPartition.

        Brokers without this request (before Kafka 3.7) report everything but eligible leaders.
        """
        names = None if topics is None else names_in(topics, "topics")
        if names == []:
            return {}
        try:
            return await self._core.look(lambda: self._described(names))
        except NotSupported:
            return await self._from_metadata(names)

    async def _described(self, names: list[str] | None) -> dict[TopicPartition, PartitionReplicas]:
        node_id = await self._core.any_node()
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names or ()]
        )
        topics: set[str] = set()
        partitions: list[tuple[TopicPartition, PartitionReplicas]] = []
        while True:
            response = await self._core.ask(node_id, request, DescribeTopicPartitionsResponse)
            for topic in response.topics:
                name = topic.name or ""
                check(topic.error_code, _topic(name))
                topics.add(name)
                for one in topic.partitions:
                    key = TopicPartition(name, one.partition_index)
                    partitions.append((key, _replicas(name, one)))
            _check_page(request.cursor, response.next_cursor)
            if response.next_cursor is None:
                break
            request.cursor = response.next_cursor
        if names is not None:
            answers_to(names, ((name, None) for name in topics), _topic)
        return distinct_answers(partitions)

    async def _from_metadata(
        self, names: list[str] | None
    ) -> dict[TopicPartition, PartitionReplicas]:
        await self._core.repeat(lambda: self._core.refresh(names))
        cluster = self._core.cluster
        return {
            TopicPartition(name, index): PartitionReplicas(
                name, index, one.leader, one.leader_epoch, one.replicas, one.isr, one.offline
            )
            for name in sorted(cluster.topics if names is None else names)
            for index, one in sorted(cluster.topic(name).partitions.items())
        }

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> Outcomes:
        """Elect the preferred replicas as leaders (None: of all partitions).

        `unclean` lets any live replica lead a partition that has no leader; records that it does
        not have are lost. Partitions that need no election get ElectionNotNeeded; with None they
        are omitted from the result.
        """
        keys = None if partitions is None else list(partitions)
        request = ElectLeadersRequest(
            election_type=int(unclean),
            topic_partitions=None
            if keys is None
            else [
                TopicPartitions(topic=topic, partitions=[key.partition for key in of_topic])
                for topic, of_topic in by_topic(keys).items()
            ],
            timeout_ms=self._core.settings.request_timeout_ms,
        )
        response = await self._core.ask_controller(request, ElectLeadersResponse)
        check(response.error_code, "election")
        answers = (
            (
                TopicPartition(topic.topic, one.partition_id),
                refusal(one.error_code, one.error_message or ""),
            )
            for topic in response.replica_election_results
            for one in topic.partition_result
        )
        return distinct_answers(answers) if keys is None else answers_to(keys, answers)

    async def alter_reassignments(
        self, moves: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Outcomes:
        """Move partitions to other brokers, preferred leader first; None cancels a move.

        The moves continue after this call: `list_reassignments` lists them.
        """
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._core.settings.request_timeout_ms,
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(
                            partition_index=key.partition,
                            replicas=None if (to := moves[key]) is None else list(to),
                        )
                        for key in keys
                    ],
                )
                for topic, keys in by_topic(moves).items()
            ],
        )
        response = await self._core.ask_controller(request, AlterPartitionReassignmentsResponse)
        check(response.error_code, "reassignment", response.error_message)
        answers = (
            (
                TopicPartition(topic.name, one.partition_index),
                refusal(one.error_code, one.error_message or ""),
            )
            for topic in response.responses
            for one in topic.partitions
        )
        return answers_to(moves, answers)

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return those of these partitions (None: of all) that are being moved."""
        keys = None if partitions is None else list(partitions)
        topics = None
        if keys is not None:
            topics = [
                ListPartitionReassignmentsTopics(
                    name=topic, partition_indexes=[key.partition for key in of_topic]
                )
                for topic, of_topic in by_topic(keys).items()
            ]
        request = ListPartitionReassignmentsRequest(
            timeout_ms=self._core.settings.request_timeout_ms, topics=topics
        )
        return await self._core.look(lambda: self._listed(request, keys))

    async def _listed(
        self,
        request: ListPartitionReassignmentsRequest,
        keys: Collection[TopicPartition] | None,
    ) -> dict[TopicPartition, Reassignment]:
        response = await self._core.ask_controller(request, ListPartitionReassignmentsResponse)
        check(response.error_code, "reassignments", response.error_message)
        answers = (
            (
                TopicPartition(topic.name, one.partition_index),
                Reassignment(one.replicas, one.adding_replicas, one.removing_replicas),
            )
            for topic in response.topics
            for one in topic.partitions
        )
        return answers_among(keys, answers)

    async def alter_replica_log_dirs(
        self, broker_id: int, moves: Mapping[TopicPartition, str]
    ) -> Outcomes:
        """Move a broker's replicas to other data directories, given as absolute paths.

        The moves continue after this call: until a move is done, `describe_log_dirs` lists the
        replica in the new directory with `is_future`.
        """
        await self._core.repeat(lambda: reached_broker(self._core, broker_id))
        by_path: dict[str, list[TopicPartition]] = {}
        for key, path in moves.items():
            by_path.setdefault(path, []).append(key)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(
                            name=topic, partitions=[key.partition for key in of_topic]
                        )
                        for topic, of_topic in by_topic(keys).items()
                    ],
                )
                for path, keys in by_path.items()
            ]
        )
        response = await self._core.ask(broker_id, request, AlterReplicaLogDirsResponse)
        answers = (
            (TopicPartition(topic.topic_name, one.partition_index), one.error_code)
            for topic in response.results
            for one in topic.partitions
        )
        return {
            key: refusal(code, f"{key} at broker {broker_id}")
            for key, code in answers_to(moves, answers).items()
        }

    async def describe_quorum(self) -> QuorumView:
        """Return the metadata quorum: voters and observers, and how far each has got."""
        request = DescribeQuorumRequest(
            topics=[
                RequestTopicData(
                    topic_name=METADATA_LOG, partitions=[RequestPartitionData(partition_index=0)]
                )
            ]
        )
        response = await self._core.ask_controller(request, DescribeQuorumResponse)
        check(response.error_code, "metadata log", response.error_message)
        asked = TopicPartition(METADATA_LOG, 0)
        answers = (
            (TopicPartition(topic.topic_name, one.partition_index), one)
            for topic in response.topics
            for one in topic.partitions
        )
        log = answers_to([asked], answers)[asked]
        check(log.error_code, "metadata log", log.error_message)
        return QuorumView(
            log.leader_id,
            log.leader_epoch,
            log.high_watermark,
            [_member(one) for one in log.current_voters],
            [_member(one) for one in log.observers],
        )

    async def add_voter(
        self, broker_id: int, directory_id: str, listeners: Mapping[str, tuple[str, int]]
    ) -> None:
        """Make a controller a voter of the metadata quorum, once its log has caught up.

        `listeners` maps names to host and port, where Apache Kafka reaches the new controller;
        Raylog needs none. Raises DuplicateVoter, and RequestTimedOut if the log did not catch up in
        time.
        """
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=self._core.settings.request_timeout_ms,
            voter_id=broker_id,
            voter_directory_id=from_base64(directory_id),
            listeners=[
                Listener(name=name, host=host, port=port)
                for name, (host, port) in listeners.items()
            ],
        )
        response = await self._core.ask_controller(request, AddRaftVoterResponse)
        check(response.error_code, f"broker {broker_id}", response.error_message)

    async def remove_voter(self, broker_id: int, directory_id: str) -> None:
        """Remove a voter from the metadata quorum; raises VoterNotFound."""
        request = RemoveRaftVoterRequest(
            cluster_id=None,
            voter_id=broker_id,
            voter_directory_id=from_base64(directory_id),
        )
        response = await self._core.ask_controller(request, RemoveRaftVoterResponse)
        check(response.error_code, f"broker {broker_id}", response.error_message)

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker that is gone; raises BrokerIdNotRegistered."""
        request = UnregisterBrokerRequest(broker_id=broker_id)
        response = await self._core.ask_controller(request, UnregisterBrokerResponse)
        check(response.error_code, f"broker {broker_id}", response.error_message)


def _check_page(last: Cursor | None, following: Cursor | None) -> None:
    """Raise NotKafka if a page does not end after the last one: paging would never end."""
    if last is not None and following is not None and _place(following) <= _place(last):
        where = TopicPartition(*_place(last))
        raise NotKafka(
            f"expected a page that ends after {where}, found one that ends at "
            f"{TopicPartition(*_place(following))}"
        )


def _place(cursor: Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _replicas(topic: str, one: DescribeTopicPartitionsResponsePartition) -> PartitionReplicas:
    return PartitionReplicas(
        topic,
        one.partition_index,
        one.leader_id,
        one.leader_epoch,
        one.replica_nodes,
        one.isr_nodes,
        one.offline_replicas,
        one.eligible_leader_replicas,
        one.last_known_elr,
    )


def _member(state: ReplicaState) -> QuorumMember:
    return QuorumMember(
        state.replica_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
        "" if state.replica_directory_id == ZERO_UUID else to_base64(state.replica_directory_id),
    )
