"""AlterPartitionReassignments, API key 45: move replicas (KIP-455).

v1 can forbid a change in the number of replicas (KIP-860).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT16, INT32, STRING, array, message, struct, wire


@struct
class ReassignablePartition:
    """One partition."""

    partition_index: int = wire(INT32)
    # the new ones, the first preferred; None: cancel the reassignment
    replicas: list[int] | None = wire(array(INT32), default=None, nullable="0+")


@struct
class ReassignableTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[ReassignablePartition] = wire(array(ReassignablePartition))


@message(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """The reassignments. Each partition succeeds or fails on its own."""

    timeout_ms: int = wire(INT32, default=60000)  # how long to wait for the commit
    allow_replication_factor_change: bool = wire(BOOL, "1+", default=True)  # KIP-860
    topics: list[ReassignableTopic] = wire(array(ReassignableTopic))


@struct
class ReassignablePartitionResponse:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


@struct
class ReassignableTopicResponse:
    """The outcome for one topic."""

    name: str = wire(STRING)
    partitions: list[ReassignablePartitionResponse] = wire(array(ReassignablePartitionResponse))


@message(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    # KIP-860
    allow_replication_factor_change: bool = wire(BOOL, "1+", default=True, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    responses: list[ReassignableTopicResponse] = wire(array(ReassignableTopicResponse))
