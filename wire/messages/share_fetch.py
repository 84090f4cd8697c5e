"""ShareFetch, API key 78: acquire records for a member of a share group (KIP-932).

v0 was a preview of Kafka 4.0 and is gone.
v2 can acquire strictly by number of records and renew locks (KIP-1206, KIP-1222).
"""

from raylog.wire.api import ApiKey
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from raylog.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT32_MAX,
    INT64,
    RECORDS,
    STRING,
    UUID,
    RecordData,
    array,
    message,
    struct,
    wire,
)


@struct
class AcknowledgementBatch:
    """The acknowledgement of consecutive records."""

    first_offset: int = wire(INT64)
    last_offset: int = wire(INT64)  # inclusive
    # 0 gap, 1 accept, 2 release, 3 reject, 4 renew; one for all or one each
    acknowledge_types: list[int] = wire(array(INT8))


@struct
class FetchPartition:
    """One partition, with acknowledgements of records acquired before."""

    partition_index: int = wire(INT32)
    acknowledgement_batches: list[AcknowledgementBatch] = wire(array(AcknowledgementBatch))


@struct
class FetchTopic:
    """The partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[FetchPartition] = wire(array(FetchPartition))


@struct
class ForgottenTopic:
    """Partitions to remove from the session."""

    topic_id: bytes = wire(UUID)
    partitions: list[int] = wire(array(INT32))


@message(ApiKey.SHARE_FETCH, versions="1-2", flexible="0+")
class ShareFetchRequest:
    """The partitions to acquire records from, and the limits of the answer."""

    group_id: str | None = wire(STRING, default=None, nullable="0+")
    member_id: str | None = wire(STRING, nullable="0+")
    share_session_epoch: int = wire(INT32)  # 0: open a session; -1: close it
    max_wait_ms: int = wire(INT32)  # longest wait for min_bytes
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, default=INT32_MAX)  # the first batch may exceed it (KIP-74)
    max_records: int = wire(INT32)  # the last batch may exceed it
    batch_size: int = wire(INT32)  # preferred number of records per acknowledged batch
    # 0 whole batches, 1 strictly max_records (KIP-1206)
    share_acquire_mode: int = wire(INT8, "2+", ignorable=True)
    is_renew_ack: bool = wire(BOOL, "2+")  # some acknowledgements renew locks (KIP-1222)
    topics: list[FetchTopic] = wire(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = wire(array(ForgottenTopic))


@struct
class AcquiredRecords:
    """Consecutive records that this member may process now."""

    first_offset: int = wire(INT64)
    last_offset: int = wire(INT64)  # inclusive
    delivery_count: int = wire(INT16)  # deliveries so far, including this one


@struct
class PartitionData:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    acknowledge_error_code: int = wire(INT16)
    acknowledge_error_message: str | None = wire(STRING, default=None, nullable="0+")
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch)  # with NOT_LEADER_OR_FOLLOWER
    # whole batches; only acquired records may be processed
    records: RecordData | None = wire(RECORDS, default=None)
    acquired_records: list[AcquiredRecords] = wire(array(AcquiredRecords))


@struct
class ShareFetchableTopicResponse:
    """The outcome for one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[PartitionData] = wire(array(PartitionData))


@message(ApiKey.SHARE_FETCH, versions="1-2", flexible="0+")
class ShareFetchResponse:
    """The records."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    acquisition_lock_timeout_ms: int = wire(INT32)  # time to acknowledge
    responses: list[ShareFetchableTopicResponse] = wire(array(ShareFetchableTopicResponse))
    # addresses of the leaders in the responses
    node_endpoints: list[NodeEndpoint] = wire(array(NodeEndpoint))
