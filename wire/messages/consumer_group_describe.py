"""ConsumerGroupDescribe, API key 69: state and members of KIP-848 groups.

v1 returns each member's protocol (KIP-1099).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import (
    BOOL,
    INT8,
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


@message(ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """The groups to describe."""

    group_ids: list[str] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL)


@struct
class TopicPartitions:
    """The partitions of one topic."""

    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@struct
class Assignment:
    """Partitions of several topics."""

    topic_partitions: list[TopicPartitions] = wire(array(TopicPartitions))


@struct
class Member:
    """One member."""

    member_id: str = wire(STRING)
    instance_id: str | None = wire(STRING, default=None, nullable="0+")
    rack_id: str | None = wire(STRING, default=None, nullable="0+")
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, default=None, nullable="0+")
    assignment: Assignment = wire(Assignment)
    target_assignment: Assignment = wire(Assignment)  # what it will own when all have reconciled
    # 0 classic, 1 consumer; -1: unknown (KIP-1099)
    member_type: int = wire(INT8, "1+", default=-1, ignorable=True)


@struct
class DescribedGroup:
    """One group."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)  # Empty, Assigning, Reconciling, Stable or Dead
    group_epoch: int = wire(INT32)  # rises when members or topics change
    assignment_epoch: int = wire(INT32)  # group epoch the target assignment was made for
    assignor_name: str = wire(STRING)
    members: list[Member] = wire(array(Member))
    # bit field of AclOperation; smallest int32: not requested (KIP-430)
    authorized_operations: int = wire(INT32, default=INT32_MIN)


@message(ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """The groups. Each succeeds or fails on its own."""

    throttle_time_ms: int = wire(INT32)
    groups: list[DescribedGroup] = wire(array(DescribedGroup))
