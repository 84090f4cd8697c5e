"""The requests of scenarios about replicas, in short form; topics by short names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raylog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from raylog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from raylog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.differential.replica_stage import TIMEOUT_MS, Placed, Stage

Move = tuple[str, int, Sequence[int] | None]
"""Topic, partition, replicas; None calls a move off."""
PREFERRED, UNCLEAN = 0, 1


def move(stage: Stage, *moves: Move, factor_may_change: bool = True) -> None:
    """AlterPartitionReassignments, one topic for each move; version 0 where that says it."""
    topics = [
        ReassignableTopic(
            name=stage.topic(topic),
            partitions=[
                ReassignablePartition(
                    partition_index=index, replicas=None if replicas is None else list(replicas)
                )
            ],
        )
        for topic, index, replicas in moves
    ]
    alter(stage, topics, factor_may_change=factor_may_change)


def alter(stage: Stage, topics: list[ReassignableTopic], *, factor_may_change: bool = True) -> None:
    """AlterPartitionReassignments as it is."""
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, allow_replication_factor_change=factor_may_change, topics=topics
    )
    stage.ask(request, 1)


def moves(stage: Stage, asked: Mapping[str, Sequence[int]] | None) -> None:
    """ListPartitionReassignments of these partitions, or of all."""
    topics = None
    if asked is not None:
        topics = [
            ListPartitionReassignmentsTopics(
                name=stage.topic(name), partition_indexes=list(indexes)
            )
            for name, indexes in asked.items()
        ]
    stage.ask(ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics), 0)


def elect(
    stage: Stage,
    kind: int,
    *asked: tuple[str, Sequence[int]],
    versions: Sequence[int] = (2,),
) -> None:
    """ElectLeaders of these partitions."""
    topics = [TopicPartitions(topic=stage.topic(name), partitions=list(ids)) for name, ids in asked]
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=topics, timeout_ms=TIMEOUT_MS
    )
    stage.ask(request, *versions)


def elect_all(stage: Stage, kind: int) -> None:
    """ElectLeaders of every partition there is."""
    request = ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=TIMEOUT_MS)
    stage.ask(request, 2)


def grow(
    stage: Stage,
    topic: str,
    count: int,
    placed: Placed | None = None,
    *,
    validate_only: bool = False,
    times: int = 1,
) -> None:
    """CreatePartitions of one topic, which may be named several times."""
    assignments = None
    if placed is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(one)) for one in placed]
    more = CreatePartitionsTopic(name=stage.topic(topic), count=count, assignments=assignments)
    request = CreatePartitionsRequest(
        topics=[more] * times, timeout_ms=TIMEOUT_MS, validate_only=validate_only
    )
    stage.ask(request, 3)
