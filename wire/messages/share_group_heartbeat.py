"""ShareGroupHeartbeat, API key 76: the protocol of share group members (KIP-932).

v0 was a preview of Kafka 4.0 and is gone.
A field that has not changed since the last heartbeat is left out as None.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, UUID, array, message, struct, wire


@message(ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    """The heartbeat with which a member joins, stays in and leaves the group."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)  # chosen by the client
    member_epoch: int = wire(INT32)  # 0: join; -1: leave
    rack_id: str | None = wire(STRING, default=None, nullable="0+")
    subscribed_topic_names: list[str] | None = wire(array(STRING), default=None, nullable="0+")


@struct
class TopicPartitions:
    """The partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(array(INT32))


@struct
class Assignment:
    """The partitions that the member must read."""

    topic_partitions: list[TopicPartitions] = wire(array(TopicPartitions))


@message(ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    """The member's epoch and, if it changed, its assignment."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    member_id: str | None = wire(STRING, default=None, nullable="0+")
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)  # until the next heartbeat
    assignment: Assignment | None = wire(Assignment, default=None, nullable="0+")  # None: unchanged
