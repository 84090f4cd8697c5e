"""Produce, API key 0: append record batches to partitions.

v3 is the first with batch format v2, the only one that the broker stores.
v4 may return KAFKA_STORAGE_ERROR.
v5 returns the log start offset.
v7 allows zstd (KIP-110).
v8 returns the rejected records (KIP-467).
v9 is flexible.
v10 returns the current leader (KIP-951).
v11 may return TRANSACTION_ABORTABLE (KIP-890).
v12 adds the partition to the transaction implicitly, if transaction.version is 2 (KIP-890).
v13 uses topic ids instead of names (KIP-516).
"""

from raylog.wire.api import ApiKey
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from raylog.wire.schema import (
    INT16,
    INT32,
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
class PartitionProduceData:
    """One batch for one partition."""

    index: int = wire(INT32)
    # exactly one batch of format v2
    records: RecordData | None = wire(RECORDS, default=None, nullable="0+")


@struct
class TopicProduceData:
    """The batches for one topic."""

    name: str = wire(STRING, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)  # KIP-516
    partition_data: list[PartitionProduceData] = wire(array(PartitionProduceData))


@message(ApiKey.PRODUCE, versions="3-13", flexible="9+")
class ProduceRequest:
    """Batches for any number of partitions. Each succeeds or fails on its own."""

    # None: not in a transaction
    transactional_id: str | None = wire(STRING, default=None, nullable="0+")
    acks: int = wire(INT16)  # 0: no answer; 1: leader; -1: all in-sync replicas
    timeout_ms: int = wire(INT32)  # how long to wait for the replicas
    topic_data: list[TopicProduceData] = wire(array(TopicProduceData))


@struct
class BatchIndexAndErrorMessage:
    """One refused record."""

    batch_index: int = wire(INT32)  # position within the batch, from 0
    batch_index_error_message: str | None = wire(STRING, default=None, nullable="0+")


@struct
class PartitionProduceResponse:
    """The outcome for one partition."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)  # offset given to the first record; -1 on error
    log_append_time_ms: int = wire(INT64, default=-1)  # -1 unless the topic uses LogAppendTime
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)  # KIP-107
    # KIP-467
    record_errors: list[BatchIndexAndErrorMessage] = wire(
        array(BatchIndexAndErrorMessage), "8+", ignorable=True
    )
    # KIP-467
    error_message: str | None = wire(STRING, "8+", default=None, nullable="0+", ignorable=True)
    # with NOT_LEADER_OR_FOLLOWER (KIP-951)
    current_leader: LeaderIdAndEpoch | None = wire(LeaderIdAndEpoch, "10+", default=None, tag=0)


@struct
class TopicProduceResponse:
    """The outcome for one topic."""

    name: str = wire(STRING, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)  # KIP-516
    partition_responses: list[PartitionProduceResponse] = wire(array(PartitionProduceResponse))


@message(ApiKey.PRODUCE, versions="3-13", flexible="9+")
class ProduceResponse:
    """The offsets of the batches. With acks=0 there is no response at all."""

    responses: list[TopicProduceResponse] = wire(array(TopicProduceResponse))
    throttle_time_ms: int = wire(INT32)
    # addresses of the leaders in the responses (KIP-951)
    node_endpoints: list[NodeEndpoint] = wire(array(NodeEndpoint), "10+", tag=0)
