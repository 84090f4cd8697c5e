"""DescribeQuorum, API key 55: leader, voters and observers of the metadata log (KIP-595).

v1 returns when replicas last fetched and were caught up (KIP-836).
v2 returns directory ids and the voters' listeners (KIP-853).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    array,
    message,
    struct,
    wire,
)


@struct
class RequestPartitionData:
    """One partition."""

    partition_index: int = wire(INT32)


@struct
class RequestTopicData:
    """The partitions of one topic."""

    topic_name: str = wire(STRING)
    partitions: list[RequestPartitionData] = wire(array(RequestPartitionData))


@message(ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    """The logs to describe. Only `__cluster_metadata` 0 exists."""

    topics: list[RequestTopicData] = wire(array(RequestTopicData))


@struct
class ReplicaState:
    """The progress of one replica."""

    replica_id: int = wire(INT32)
    replica_directory_id: bytes = wire(UUID, "2+")  # KIP-853
    log_end_offset: int = wire(INT64)  # -1: unknown
    # ms on the leader's clock; -1: unknown (KIP-836)
    last_fetch_timestamp: int = wire(INT64, "1+", default=-1, ignorable=True)
    # ms on the leader's clock; -1: unknown (KIP-836)
    last_caught_up_timestamp: int = wire(INT64, "1+", default=-1, ignorable=True)


@struct
class PartitionData:
    """One log."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, "2+", nullable="0+", ignorable=True)  # KIP-853
    leader_id: int = wire(INT32)  # -1: unknown
    leader_epoch: int = wire(INT32)
    high_watermark: int = wire(INT64)
    current_voters: list[ReplicaState] = wire(array(ReplicaState))
    observers: list[ReplicaState] = wire(array(ReplicaState))


@struct
class TopicData:
    """The logs of one topic."""

    topic_name: str = wire(STRING)
    partitions: list[PartitionData] = wire(array(PartitionData))


@struct
class Listener:
    """One address of a voter."""

    name: str = wire(STRING)
    host: str = wire(STRING)
    port: int = wire(UINT16)


@struct
class Node:
    """The listeners of one voter."""

    node_id: int = wire(INT32)
    listeners: list[Listener] = wire(array(Listener))


@message(ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """The quorum."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, "2+", nullable="0+", ignorable=True)  # KIP-853
    topics: list[TopicData] = wire(array(TopicData))
    nodes: list[Node] = wire(array(Node), "2+")  # KIP-853
