"""CreatePartitions, API key 37: add partitions to topics.

v2 is flexible.
v3 may return THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT16, INT32, STRING, array, message, struct, wire


@struct
class CreatePartitionsAssignment:
    """The brokers of one new partition. The first one leads."""

    broker_ids: list[int] = wire(array(INT32))


@struct
class CreatePartitionsTopic:
    """One topic."""

    name: str = wire(STRING)
    count: int = wire(INT32)  # the new number of partitions
    # one per new partition; None: the controller chooses
    assignments: list[CreatePartitionsAssignment] | None = wire(
        array(CreatePartitionsAssignment), nullable="0+"
    )


@message(ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """The topics. Each succeeds or fails on its own."""

    topics: list[CreatePartitionsTopic] = wire(array(CreatePartitionsTopic))
    timeout_ms: int = wire(INT32)  # how long to wait for them
    validate_only: bool = wire(BOOL)  # check, change nothing


@struct
class CreatePartitionsTopicResult:
    """The outcome for one topic."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")


@message(ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    results: list[CreatePartitionsTopicResult] = wire(array(CreatePartitionsTopicResult))
