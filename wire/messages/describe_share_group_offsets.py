"""DescribeShareGroupOffsets, API key 90: the start offsets of share groups (KIP-932).

v1 returns the lag (KIP-1226).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, INT64, STRING, UUID, array, message, struct, wire


@struct
class DescribeShareGroupOffsetsRequestTopic:
    """The partitions of one topic."""

    topic_name: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@struct
class DescribeShareGroupOffsetsRequestGroup:
    """One group."""

    group_id: str = wire(STRING)
    # None: all
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = wire(
        array(DescribeShareGroupOffsetsRequestTopic), nullable="0+"
    )


@message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    """The groups to describe."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = wire(
        array(DescribeShareGroupOffsetsRequestGroup)
    )


@struct
class DescribeShareGroupOffsetsResponsePartition:
    """One partition."""

    partition_index: int = wire(INT32)
    start_offset: int = wire(INT64)  # all records below are processed; -1: none yet
    leader_epoch: int = wire(INT32)
    # records not processed; -1: unknown (KIP-1226)
    lag: int = wire(INT64, "1+", default=-1, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")


@struct
class DescribeShareGroupOffsetsResponseTopic:
    """The partitions of one topic."""

    topic_name: str = wire(STRING)
    topic_id: bytes = wire(UUID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = wire(
        array(DescribeShareGroupOffsetsResponsePartition)
    )


@struct
class DescribeShareGroupOffsetsResponseGroup:
    """One group."""

    group_id: str = wire(STRING)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = wire(
        array(DescribeShareGroupOffsetsResponseTopic)
    )
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")


@message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """The offsets. Each group succeeds or fails on its own."""

    throttle_time_ms: int = wire(INT32)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = wire(
        array(DescribeShareGroupOffsetsResponseGroup)
    )
