"""ListPartitionReassignments, API key 46: reassignments in progress (KIP-455)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, array, message, struct, wire


@struct
class ListPartitionReassignmentsTopics:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: list[int] = wire(array(INT32))


@message(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """The partitions to list."""

    timeout_ms: int = wire(INT32, default=60000)
    # None: all
    topics: list[ListPartitionReassignmentsTopics] | None = wire(
        array(ListPartitionReassignmentsTopics), default=None, nullable="0+"
    )


@struct
class OngoingPartitionReassignment:
    """A partition that is being reassigned."""

    partition_index: int = wire(INT32)
    replicas: list[int] = wire(array(INT32))  # all of them at present
    adding_replicas: list[int] = wire(array(INT32))
    removing_replicas: list[int] = wire(array(INT32))


@struct
class OngoingTopicReassignment:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[OngoingPartitionReassignment] = wire(array(OngoingPartitionReassignment))


@message(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The reassignments in progress."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    topics: list[OngoingTopicReassignment] = wire(array(OngoingTopicReassignment))
