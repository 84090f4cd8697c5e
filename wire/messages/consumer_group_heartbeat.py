"""ConsumerGroupHeartbeat, API key 68: the group protocol of KIP-848.

v1 lets the broker match patterns, and the client choose its member id (KIP-848, KIP-1082).
A field that has not changed since the last heartbeat is left out as None or -1.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, UUID, array, message, struct, wire


@struct
class TopicPartitions:
    """The partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(array(INT32))


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """The heartbeat with which a member joins, stays in and leaves the group."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)  # 0: join; -1: leave; -2: leave, a static member that returns
    instance_id: str | None = wire(STRING, default=None, nullable="0+")  # None: not a static member
    rack_id: str | None = wire(STRING, default=None, nullable="0+")
    rebalance_timeout_ms: int = wire(INT32, default=-1)  # time to revoke partitions; -1: unchanged
    subscribed_topic_names: list[str] | None = wire(array(STRING), default=None, nullable="0+")
    # an RE2 pattern; None: unchanged (KIP-848)
    subscribed_topic_regex: str | None = wire(STRING, "1+", default=None, nullable="0+")
    # None: unchanged, or the group's choice
    server_assignor: str | None = wire(STRING, default=None, nullable="0+")
    # what the member owns; None: unchanged
    topic_partitions: list[TopicPartitions] | None = wire(
        array(TopicPartitions), default=None, nullable="0+"
    )


@struct
class Assignment:
    """The partitions that the member must own."""

    topic_partitions: list[TopicPartitions] = wire(array(TopicPartitions))


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """The member's epoch and, if it changed, its assignment."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    member_id: str | None = wire(STRING, default=None, nullable="0+")
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)  # until the next heartbeat
    assignment: Assignment | None = wire(Assignment, default=None, nullable="0+")  # None: unchanged
