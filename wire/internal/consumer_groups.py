"""Records of `__consumer_offsets` for KIP-848 groups."""

from raylog.wire.schema import (
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    struct,
    versioned,
    wire,
)


@versioned(versions="0")
class ConsumerGroupMetadataKey:
    """The key: a group."""

    group_id: str = wire(STRING)


@versioned(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The group's epoch."""

    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64, tag=0)  # over the subscribed topics; 0: not known


@versioned(versions="0")
class ConsumerGroupPartitionMetadataKey:
    """The key: a group."""

    group_id: str = wire(STRING)


@struct
class PartitionMetadata:
    """Racks of one partition; not written any more."""

    partition: int = wire(INT32)
    racks: list[str] = wire(array(STRING))


@struct
class TopicMetadata:
    """A topic as the group knows it."""

    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    partition_metadata: list[PartitionMetadata] = wire(array(PartitionMetadata))


@versioned(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """Metadata of the subscribed topics. Kafka 4.1 replaced it by a hash."""

    topics: list[TopicMetadata] = wire(array(TopicMetadata))


@versioned(versions="0")
class ConsumerGroupMemberMetadataKey:
    """The key: a member of a group."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class ClassicProtocol:
    """An assignor that a classic member supports."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@struct
class ClassicMemberMetadata:
    """What a member with the classic protocol sent."""

    session_timeout_ms: int = wire(INT32)
    supported_protocols: list[ClassicProtocol] = wire(array(ClassicProtocol))


@versioned(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """The metadata of a member."""

    instance_id: str | None = wire(STRING, nullable="0+")  # None: not a static member
    rack_id: str | None = wire(STRING, nullable="0+")
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, nullable="0+")
    rebalance_timeout_ms: int = wire(INT32, default=-1)  # -1: unknown
    server_assignor: str | None = wire(STRING, nullable="0+")  # None: the group's choice
    # None: it uses KIP-848
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        ClassicMemberMetadata, default=None, nullable="0+", tag=0
    )


@versioned(versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    """The key: a group."""

    group_id: str = wire(STRING)


@versioned(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch for which the target assignment was computed."""

    assignment_epoch: int = wire(INT32)
    assignment_timestamp: int = wire(INT64, tag=0)  # ms; 0: unknown


@versioned(versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    """The key: a member of a group."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class TopicPartition:
    """The partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(array(INT32))


@versioned(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The partitions that the member will own when the rebalance ends."""

    topic_partitions: list[TopicPartition] = wire(array(TopicPartition))


@versioned(versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    """The key: a member of a group."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class TopicPartitions:
    """The partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(array(INT32))
    # member epoch at which each was assigned; fences old commits
    assignment_epochs: list[int] | None = wire(array(INT32), default=None, nullable="0+", tag=0)


@versioned(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The partitions that the member owns now."""

    member_epoch: int = wire(INT32)
    # also accepted, in case the answer with the new one was lost
    previous_member_epoch: int = wire(INT32)
    # 0 stable, 1 revoking partitions, 2 waiting for partitions, 127 unknown
    state: int = wire(INT8)
    assigned_partitions: list[TopicPartitions] = wire(array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = wire(array(TopicPartitions))


@versioned(versions="0")
class ConsumerGroupRegularExpressionKey:
    """The key: a regular expression of a group."""

    group_id: str = wire(STRING)
    regular_expression: str = wire(STRING)


@versioned(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that match a regular expression."""

    topics: list[str] = wire(array(STRING))
    version: int = wire(INT64)  # of the metadata it was resolved against
    timestamp: int = wire(INT64)  # ms
