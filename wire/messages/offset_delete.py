"""OffsetDelete, API key 47: delete committed offsets of a group (KIP-496)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, array, message, struct, wire


@struct
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = wire(INT32)


@struct
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[OffsetDeleteRequestPartition] = wire(array(OffsetDeleteRequestPartition))


@message(ApiKey.OFFSET_DELETE, versions="0", flexible="none")
class OffsetDeleteRequest:
    """The offsets to delete."""

    group_id: str = wire(STRING)
    topics: list[OffsetDeleteRequestTopic] = wire(array(OffsetDeleteRequestTopic))


@struct
class OffsetDeleteResponsePartition:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@struct
class OffsetDeleteResponseTopic:
    """The outcome for one topic."""

    name: str = wire(STRING)
    partitions: list[OffsetDeleteResponsePartition] = wire(array(OffsetDeleteResponsePartition))


@message(ApiKey.OFFSET_DELETE, versions="0", flexible="none")
class OffsetDeleteResponse:
    """The outcomes."""

    error_code: int = wire(INT16)
    throttle_time_ms: int = wire(INT32)
    topics: list[OffsetDeleteResponseTopic] = wire(array(OffsetDeleteResponseTopic))
