"""DescribeTopicPartitions, API key 75: topics page by page, with eligible leaders (KIP-966)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT32_MIN,
    STRING,
    UUID,
    array,
    message,
    struct,
    wire,
)


@struct
class TopicRequest:
    """One topic."""

    name: str = wire(STRING)


@struct
class Cursor:
    """Where a page starts."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


@message(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """The topics to describe, in the order of their names."""

    topics: list[TopicRequest] = wire(array(TopicRequest))  # none: all
    response_partition_limit: int = wire(INT32, default=2000)  # most partitions in the answer
    cursor: Cursor | None = wire(Cursor, default=None, nullable="0+")  # None: from the start


@struct
class DescribeTopicPartitionsResponsePartition:
    """One partition."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)  # -1: none
    leader_epoch: int = wire(INT32, default=-1)
    replica_nodes: list[int] = wire(array(INT32))
    isr_nodes: list[int] = wire(array(INT32))
    # out of sync, but with all committed records
    eligible_leader_replicas: list[int] | None = wire(array(INT32), default=None, nullable="0+")
    # eligible before an unclean shutdown
    last_known_elr: list[int] | None = wire(array(INT32), default=None, nullable="0+")
    offline_replicas: list[int] = wire(array(INT32))


@struct
class DescribeTopicPartitionsResponseTopic:
    """One topic."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable="0+")
    topic_id: bytes = wire(UUID)
    is_internal: bool = wire(BOOL)
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire(
        array(DescribeTopicPartitionsResponsePartition)
    )
    # bit field of AclOperation; smallest int32: not requested (KIP-430)
    topic_authorized_operations: int = wire(INT32, default=INT32_MIN)


@message(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """One page."""

    throttle_time_ms: int = wire(INT32)
    topics: list[DescribeTopicPartitionsResponseTopic] = wire(
        array(DescribeTopicPartitionsResponseTopic)
    )
    next_cursor: Cursor | None = wire(Cursor, default=None, nullable="0+")  # None: the last page
