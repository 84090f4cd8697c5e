"""ConsumerGroupHeartbeat, API key 68: the whole of the KIP-848 group protocol for a member.

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
    """A member joins, lives and leaves by it."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)  # 0: join; -1: leave; -2: leave, a static member that returns
    instance_id: str | None = wire(STRING, default=None, nullable="0+")  # None: not a static member
    rack_id: str | None = wire(STRING, default=None, nullable="0+")
    rebalance_timeout_ms: int = wire(INT32, default=-1)  # time to give partitions up; -1: unchanged
    subscribed_topic_names: list[str] | None = wire(array(STRING), default=None, nullable="0+")
    # RE2; None: unchanged (KIP-848)
    subscribed_topic_regex: str | None = wire(STRING, "1+", default=None, nullable="0+")
    # None: unchanged, or the group's choice
    server_assignor: str | None = wire(STRING, default=None, nullable="0+")
    # what the member owns; None: unchanged
    topic_partitions: list[TopicPartitions] | None = wire(
        array(TopicPartitions), default=None, nullable="0+"
    )


@struct
class Assignment:
    """What the member shall own."""

    topic_partitions: list[TopicPartitions] = wire(array(TopicPartitions))


@message(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """The member's epoch and, where it changed, its assignment."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    member_id: str | None = wire(STRING, default=None, nullable="0+")
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)  # until the next heartbeat
    assignment: Assignment | None = wire(Assignment, default=None, nullable="0+")  # None: unchanged
