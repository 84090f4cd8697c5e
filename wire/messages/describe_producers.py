"""DescribeProducers, API key 61: the active producers of partitions (KIP-664)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, INT64, STRING, array, message, struct, wire


@struct
class TopicRequest:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: list[int] = wire(array(INT32))


@message(ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersRequest:
    """The partitions to describe."""

    topics: list[TopicRequest] = wire(array(TopicRequest))


@struct
class ProducerState:
    """One producer."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)  # -1: none
    last_timestamp: int = wire(INT64, default=-1)  # ms; -1: none
    coordinator_epoch: int = wire(INT32)  # of the last marker
    current_txn_start_offset: int = wire(INT64, default=-1)  # -1: no open transaction


@struct
class PartitionResponse:
    """One partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable="0+")
    active_producers: list[ProducerState] = wire(array(ProducerState))


@struct
class TopicResponse:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[PartitionResponse] = wire(array(PartitionResponse))


@message(ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersResponse:
    """The producers. Each partition succeeds or fails on its own."""

    throttle_time_ms: int = wire(INT32)
    topics: list[TopicResponse] = wire(array(TopicResponse))
