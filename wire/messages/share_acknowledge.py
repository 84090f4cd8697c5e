"""ShareAcknowledge, API key 79: acknowledge acquired records (KIP-932).

v0 was a preview of Kafka 4.0 and is gone.
v2 can renew locks (KIP-1222).
"""

from raylog.wire.api import ApiKey
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from raylog.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
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
class AcknowledgePartition:
    """The acknowledgements in one partition."""

    partition_index: int = wire(INT32)
    acknowledgement_batches: list[AcknowledgementBatch] = wire(array(AcknowledgementBatch))


@struct
class AcknowledgeTopic:
    """The acknowledgements in one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[AcknowledgePartition] = wire(array(AcknowledgePartition))


@message(ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    """The acknowledgements."""

    group_id: str | None = wire(STRING, default=None, nullable="0+")
    member_id: str | None = wire(STRING, nullable="0+")
    share_session_epoch: int = wire(INT32)  # -1: close the session
    is_renew_ack: bool = wire(BOOL, "2+")  # some acknowledgements renew locks (KIP-1222)
    topics: list[AcknowledgeTopic] = wire(array(AcknowledgeTopic))


@struct
class PartitionData:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch)  # with NOT_LEADER_OR_FOLLOWER


@struct
class ShareAcknowledgeTopicResponse:
    """The outcome for one topic."""

    topic_id: bytes = wire(UUID)
    partitions: list[PartitionData] = wire(array(PartitionData))


@message(ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    # of renewed locks (KIP-1222)
    acquisition_lock_timeout_ms: int = wire(INT32, "2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = wire(array(ShareAcknowledgeTopicResponse))
    # addresses of the leaders in the responses
    node_endpoints: list[NodeEndpoint] = wire(array(NodeEndpoint))
