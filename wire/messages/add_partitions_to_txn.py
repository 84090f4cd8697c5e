"""AddPartitionsToTxn, API key 24: add partitions to a transaction.

v1 answers before it throttles (KIP-219).
v3 is flexible and the newest for clients.
v4 is for brokers: several transactions at once, or only a check that partitions belong to one
(KIP-890).
v5 may return TRANSACTION_ABORTABLE (KIP-890).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT16, INT32, INT64, STRING, array, message, struct, wire


@struct
class AddPartitionsToTxnTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@struct
class AddPartitionsToTxnTransaction:
    """One transaction."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    verify_only: bool = wire(BOOL)  # add nothing, only check that they belong to it
    topics: list[AddPartitionsToTxnTopic] = wire(array(AddPartitionsToTxnTopic))


@message(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """The partitions to add. Up to v3 the outer fields hold the only transaction."""

    # KIP-890
    transactions: list[AddPartitionsToTxnTransaction] = wire(
        array(AddPartitionsToTxnTransaction), "4+"
    )
    v3_and_below_transactional_id: str = wire(STRING, "0-3")
    v3_and_below_producer_id: int = wire(INT64, "0-3")
    v3_and_below_producer_epoch: int = wire(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire(array(AddPartitionsToTxnTopic), "0-3")


@struct
class AddPartitionsToTxnPartitionResult:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16)


@struct
class AddPartitionsToTxnTopicResult:
    """The outcome for one topic."""

    name: str = wire(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire(
        array(AddPartitionsToTxnPartitionResult)
    )


@struct
class AddPartitionsToTxnResult:
    """The outcome for one transaction."""

    transactional_id: str = wire(STRING)
    topic_results: list[AddPartitionsToTxnTopicResult] = wire(array(AddPartitionsToTxnTopicResult))


@message(ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """The outcomes. Up to v3 the outer field holds the only transaction."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, "4+", ignorable=True)  # KIP-890
    # KIP-890
    results_by_transaction: list[AddPartitionsToTxnResult] = wire(
        array(AddPartitionsToTxnResult), "4+"
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire(
        array(AddPartitionsToTxnTopicResult), "0-3"
    )
