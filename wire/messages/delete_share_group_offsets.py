"""DeleteShareGroupOffsets, API key 92: delete the offsets of an empty share group (KIP-932)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, UUID, array, message, struct, wire


@struct
class DeleteShareGroupOffsetsRequestTopic:
    """One topic."""

    topic_name: str = wire(STRING)


@message(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    """The topics whose offsets to delete."""

    group_id: str = wire(STRING)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = wire(
        array(DeleteShareGroupOffsetsRequestTopic)
    )


@struct
class DeleteShareGroupOffsetsResponseTopic:
    """The outcome for one topic."""

    topic_name: str = wire(STRING)
    topic_id: bytes = wire(UUID)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")


@message(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    responses: list[DeleteShareGroupOffsetsResponseTopic] = wire(
        array(DeleteShareGroupOffsetsResponseTopic)
    )
