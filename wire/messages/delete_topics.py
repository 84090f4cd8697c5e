"""DeleteTopics, API key 20.

v1 returns the throttle time.
v3 may return TOPIC_DELETION_DISABLED.
v4 is flexible.
v5 adds an error message (KIP-599).
v6 accepts topic ids as well as names (KIP-516).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, UUID, array, message, struct, wire


@struct
class DeleteTopicState:
    """One topic, by name or by id."""

    name: str | None = wire(STRING, default=None, nullable="0+")  # None: named by id
    topic_id: bytes = wire(UUID)


@message(ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """The topics. Each succeeds or fails on its own."""

    topics: list[DeleteTopicState] = wire(array(DeleteTopicState), "6+")  # KIP-516
    topic_names: list[str] = wire(array(STRING), "0-5", ignorable=True)
    timeout_ms: int = wire(INT32)  # how long to wait for it


@struct
class DeletableTopicResult:
    """The outcome for one topic."""

    # None if only the id was given and the name may not be revealed
    name: str | None = wire(STRING, nullable="6+")
    topic_id: bytes = wire(UUID, "6+", ignorable=True)  # KIP-516
    error_code: int = wire(INT16)
    # KIP-599
    error_message: str | None = wire(STRING, "5+", default=None, nullable="0+", ignorable=True)


@message(ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    responses: list[DeletableTopicResult] = wire(array(DeletableTopicResult))
