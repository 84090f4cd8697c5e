"""ListOffsets, API key 2: offsets by timestamp or special value.

v1 returns a single offset (KIP-79).
v2 adds isolation levels (KIP-98).
v4 checks the leader epoch (KIP-320).
v5 may return OFFSET_NOT_AVAILABLE (KIP-207).
v6 is flexible.
v7 can find the largest timestamp by -3 (KIP-734).
v8 can find the local log start by -4 (KIP-405).
v9 can find the end of tiered data by -5 (KIP-1005).
v10 adds a deadline for reads of tiered data (KIP-1075).
v11 can find the offset pending upload to tiered storage by -6 (KIP-1023).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT8, INT16, INT32, INT64, STRING, array, message, struct, wire


@struct
class ListOffsetsPartition:
    """The offset to find in one partition."""

    partition_index: int = wire(INT32)
    # -1: unknown, do not check (KIP-320)
    current_leader_epoch: int = wire(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = wire(INT64)  # ms; -1: latest, -2: earliest, -3: largest timestamp, see above


@struct
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[ListOffsetsPartition] = wire(array(ListOffsetsPartition))


@message(ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    """Offsets by timestamp (KIP-79)."""

    replica_id: int = wire(INT32)  # -1: a consumer
    isolation_level: int = wire(INT8, "2+")  # 0 read_uncommitted, 1 read_committed (KIP-98)
    topics: list[ListOffsetsTopic] = wire(array(ListOffsetsTopic))
    timeout_ms: int = wire(INT32, "10+", ignorable=True)  # KIP-1075


@struct
class ListOffsetsPartitionResponse:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, default=-1)  # ms, of the record found; -1 if there is none
    offset: int = wire(INT64, default=-1)  # -1: no such record
    leader_epoch: int = wire(INT32, "4+", default=-1)  # KIP-320


@struct
class ListOffsetsTopicResponse:
    """The outcome for one topic."""

    name: str = wire(STRING)
    partitions: list[ListOffsetsPartitionResponse] = wire(array(ListOffsetsPartitionResponse))


@message(ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """The offsets found."""

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)  # KIP-98
    topics: list[ListOffsetsTopicResponse] = wire(array(ListOffsetsTopicResponse))
