"""Records of `__consumer_offsets` for share groups (KIP-932)."""

from raylog.wire.schema import INT8, INT32, INT64, STRING, UUID, array, struct, versioned, wire


@versioned(versions="0")
class ShareGroupMemberMetadataKey:
    """Which member of which group."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@versioned(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """What a member has said about itself."""

    rack_id: str | None = wire(STRING, nullable="0+")
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire(array(STRING))


@versioned(versions="0")
class ShareGroupMetadataKey:
    """Which group."""

    group_id: str = wire(STRING)


@versioned(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The group's epoch."""

    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64)  # over the topics subscribed to


@versioned(versions="0")
class ShareGroupTargetAssignmentMetadataKey:
    """Which group."""

    group_id: str = wire(STRING)


@versioned(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """For which group epoch the target was computed."""

    assignment_epoch: int = wire(INT32)
    assignment_timestamp: int = wire(INT64, tag=0)  # ms; 0: unknown


@versioned(versions="0")
class ShareGroupTargetAssignmentMemberKey:
    """Which member of which group."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class TopicPartition:
    """The partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(array(INT32))


@versioned(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """What the member shall read from in the end."""

    topic_partitions: list[TopicPartition] = wire(array(TopicPartition))


@versioned(versions="0")
class ShareGroupCurrentMemberAssignmentKey:
    """Which member of which group."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)


@struct
class TopicPartitions:
    """The partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(array(INT32))


@versioned(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """What the member reads from now."""

    member_epoch: int = wire(INT32)
    # accepted too, should the answer with the new one be lost
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)  # 0 stable, 127 unknown
    assigned_partitions: list[TopicPartitions] = wire(array(TopicPartitions))


@versioned(versions="0")
class ShareGroupStatePartitionMetadataKey:
    """Which group."""

    group_id: str = wire(STRING)


@struct
class TopicPartitionsInfo:
    """The partitions of one topic."""

    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@struct
class TopicInfo:
    """One topic."""

    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STRING)


@versioned(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """Where the state of share partitions stands."""

    initializing_topics: list[TopicPartitionsInfo] = wire(array(TopicPartitionsInfo))
    initialized_topics: list[TopicPartitionsInfo] = wire(array(TopicPartitionsInfo))
    deleting_topics: list[TopicInfo] = wire(array(TopicInfo))
