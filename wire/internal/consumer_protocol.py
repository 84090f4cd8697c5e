"""Blobs that classic consumers exchange through the coordinator, each behind an int16 version.

Subscription: v1 adds the partitions owned (KIP-429), v2 the generation they are of (KIP-792), v3
the rack (KIP-881). The versions of the assignment do not differ.
"""

from raylog.wire.schema import BYTES, INT32, STRING, array, struct, versioned, wire


@struct
class TopicPartition:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@versioned(versions="0-3")
class ConsumerProtocolSubscription:
    """What a member wants and has."""

    topics: list[str] = wire(array(STRING))
    user_data: bytes | None = wire(BYTES, default=None, nullable="0+")  # the assignor's own
    # KIP-429
    owned_partitions: list[TopicPartition] = wire(array(TopicPartition), "1+", ignorable=True)
    generation_id: int = wire(INT32, "2+", default=-1, ignorable=True)  # -1: unknown (KIP-792)
    rack_id: str | None = wire(STRING, "3+", default=None, nullable="0+", ignorable=True)  # KIP-881


@versioned(versions="0-3")
class ConsumerProtocolAssignment:
    """What a member is given."""

    assigned_partitions: list[TopicPartition] = wire(array(TopicPartition))
    user_data: bytes | None = wire(BYTES, default=None, nullable="0+")  # the assignor's own
