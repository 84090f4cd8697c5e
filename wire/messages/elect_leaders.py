"""ElectLeaders, API key 43: trigger preferred or unclean leader elections.

v1 adds unclean elections (KIP-460).
v2 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT8, INT16, INT32, STRING, array, message, struct, wire


@struct
class TopicPartitions:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@message(ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """The partitions in which to elect leaders."""

    election_type: int = wire(INT8, "1+")  # 0 preferred, 1 unclean (KIP-460)
    # None: all
    topic_partitions: list[TopicPartitions] | None = wire(array(TopicPartitions), nullable="0+")
    timeout_ms: int = wire(INT32, default=60000)  # how long to wait for the leaders


@struct
class PartitionResult:
    """The outcome for one partition."""

    partition_id: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


@struct
class ReplicaElectionResult:
    """The outcome for one topic."""

    topic: str = wire(STRING)
    partition_result: list[PartitionResult] = wire(array(PartitionResult))


@message(ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, "1+")  # KIP-460
    replica_election_results: list[ReplicaElectionResult] = wire(array(ReplicaElectionResult))
