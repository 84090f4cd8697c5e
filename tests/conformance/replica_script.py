"""An administrator's requests about replicas and brokers, to a cluster of one broker with id 1.

They are steps of `admin_script`; the topics `a` (2 partitions) and `b` exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from raylog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raylog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from raylog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from raylog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from raylog.wire.messages.unregister_broker import UnregisterBrokerRequest

TIMEOUT_MS = 10_000


def elections() -> Iterator[tuple[str, ElectLeadersRequest, list[int]]]:
    """Label, request, versions."""

    def election(kind: int, *asked: tuple[str, list[int]]) -> ElectLeadersRequest:
        partitions = [TopicPartitions(topic=topic, partitions=ids) for topic, ids in asked]
        return ElectLeadersRequest(
            election_type=kind, topic_partitions=partitions, timeout_ms=TIMEOUT_MS
        )

    yield "elect", election(0, ("a", [0, 1, 9]), ("none", [0])), [0, 1, 2]
    yield "elect uncleanly", election(1, ("a", [1]), ("none", [0])), [1, 2]
    yield "elect nowhere", election(0), [0, 1, 2]
    yield "elect in an unknown way", election(5, ("a", [0])), [1, 2]
    everywhere = ElectLeadersRequest(topic_partitions=None, timeout_ms=TIMEOUT_MS)
    yield "elect everywhere", everywhere, [0, 1, 2]


def reassignments() -> Iterator[tuple[str, Any, list[int]]]:
    """Label, request, versions."""

    def move(
        topic: str, index: int, replicas: list[int] | None
    ) -> AlterPartitionReassignmentsRequest:
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        topics = [ReassignableTopic(name=topic, partitions=[partition])]
        return AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)

    both = [0, 1]
    yield "move nothing", AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[]), both
    yield "move of no topic", move("none", 0, [1]), both
    yield "move of no partition", move("a", 9, [1]), both
    yield "move to nobody", move("a", 0, []), both
    yield "move to a stranger", move("a", 0, [1, 7]), both
    yield "move to a negative id", move("a", 0, [-1]), both
    yield "move to one twice", move("a", 0, [1, 1]), both
    yield "move to where it is", move("a", 0, [1]), both
    yield "call off what does not move", move("a", 0, None), both
    yield "moves everywhere", ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS), [0]
    asked = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 9])
        for name in ("a", "none")
    ]
    some = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=asked)
    yield "moves of some", some, [0]


def brokers() -> Iterator[tuple[str, Any, list[int]]]:
    """Label, request, versions."""

    def quorum(topic: str, *partitions: int) -> DescribeQuorumRequest:
        indexes = [RequestPartitionData(partition_index=index) for index in partitions]
        return DescribeQuorumRequest(
            topics=[RequestTopicData(topic_name=topic, partitions=indexes)]
        )

    every = [0, 1, 2]
    yield "quorum of another topic", quorum("a", 0), every
    yield "quorum of two logs", quorum("__cluster_metadata", 0, 1), every
    yield "quorum of nothing", DescribeQuorumRequest(), every
    yield "forget a stranger", UnregisterBrokerRequest(broker_id=77), [0]
