"""DescribeTransactions, API key 65: state of transactional ids (KIP-664)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, INT64, STRING, array, message, struct, wire


@message(ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """The transactional ids to describe."""

    transactional_ids: list[str] = wire(array(STRING))


@struct
class TopicData:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[int] = wire(array(INT32))


@struct
class TransactionState:
    """One transactional id."""

    error_code: int = wire(INT16)
    transactional_id: str = wire(STRING)
    transaction_state: str = wire(STRING)  # Empty, Ongoing, PrepareCommit and so on
    transaction_timeout_ms: int = wire(INT32)
    transaction_start_time_ms: int = wire(INT64)  # -1: none is open
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: list[TopicData] = wire(array(TopicData))  # partitions in the open transaction


@message(ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """The transactions. Each succeeds or fails on its own."""

    throttle_time_ms: int = wire(INT32)
    transaction_states: list[TransactionState] = wire(array(TransactionState))
