"""AlterShareGroupOffsets, API key 91: set the start offsets of an empty share group (KIP-932)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, INT64, STRING, UUID, array, message, struct, wire


@struct
class AlterShareGroupOffsetsRequestPartition:
    """One partition."""

    partition_index: int = wire(INT32)
    start_offset: int = wire(INT64)


@struct
class AlterShareGroupOffsetsRequestTopic:
    """The partitions of one topic."""

    topic_name: str = wire(STRING)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = wire(
        array(AlterShareGroupOffsetsRequestPartition)
    )


@message(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    """The new start offsets."""

    group_id: str = wire(STRING)
    topics: list[AlterShareGroupOffsetsRequestTopic] = wire(
        array(AlterShareGroupOffsetsRequestTopic)
    )


@struct
class AlterShareGroupOffsetsResponsePartition:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")


@struct
class AlterShareGroupOffsetsResponseTopic:
    """The outcome for one topic."""

    topic_name: str = wire(STRING)
    topic_id: bytes = wire(UUID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = wire(
        array(AlterShareGroupOffsetsResponsePartition)
    )


@message(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    responses: list[AlterShareGroupOffsetsResponseTopic] = wire(
        array(AlterShareGroupOffsetsResponseTopic)
    )
