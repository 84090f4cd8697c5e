"""Blobs that classic consumers exchange through the coordinator, each after an int16 version.

Subscription: v1 adds the owned partitions (KIP-429), v2 their generation (KIP-792), v3 the rack
(KIP-881). All versions of the assignment are equal.
"""

from raylog.wire.schema import BYTES, INT32, STRING, array, struct, versioned, wire


@struct
class TopicPartition:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@versioned(versions="0-3")
class ConsumerProtocolSubscription:
    """The subscription of a member."""

    topics: list[str] = wire(array(STRING))
    user_data: bytes | None = wire(BYTES, default=None, nullable="0+")  # the assignor's own
    # KIP-429
    owned_partitions: list[TopicPartition] = wire(array(TopicPartition), "1+", ignorable=True)
    generation_id: int = wire(INT32, "2+", default=-1, ignorable=True)  # -1: unknown (KIP-792)
    rack_id: str | None = wire(STRING, "3+", default=None, nullable="0+", ignorable=True)  # KIP-881


@versioned(versions="0-3")
class ConsumerProtocolAssignment:
    """The assignment of a member."""

    assigned_partitions: list[TopicPartition] = wire(array(TopicPartition))
    user_data: bytes | None = wire(BYTES, default=None, nullable="0+")  # the assignor's own
