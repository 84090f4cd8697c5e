"""DeleteRecords, API key 21: move the log start offset forward.

v2 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, INT64, STRING, array, message, struct, wire


@struct
class DeleteRecordsPartition:
    """One partition."""

    partition_index: int = wire(INT32)
    offset: int = wire(INT64)  # first offset to keep; -1: the high watermark


@struct
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[DeleteRecordsPartition] = wire(array(DeleteRecordsPartition))


@message(ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """The offsets before which records are deleted."""

    topics: list[DeleteRecordsTopic] = wire(array(DeleteRecordsTopic))
    timeout_ms: int = wire(INT32)  # how long to wait for the replicas


@struct
class DeleteRecordsPartitionResult:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)  # smallest log start offset of the replicas; -1 on error
    error_code: int = wire(INT16)


@struct
class DeleteRecordsTopicResult:
    """The outcome for one topic."""

    name: str = wire(STRING)
    partitions: list[DeleteRecordsPartitionResult] = wire(array(DeleteRecordsPartitionResult))


@message(ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    topics: list[DeleteRecordsTopicResult] = wire(array(DeleteRecordsTopicResult))
