"""ListTransactions, API key 66: the transactional ids that this broker coordinates (KIP-664).

v1 filters by age (KIP-994).
v2 filters by a pattern (KIP-1152).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, INT64, STRING, array, message, struct, wire


@message(ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """The filters. An empty one matches all transactional ids."""

    state_filters: list[str] = wire(array(STRING))
    producer_id_filters: list[int] = wire(array(INT64))
    # ms; only transactions open longer; -1: all (KIP-994)
    duration_filter: int = wire(INT64, "1+", default=-1)
    # RE2; None: all (KIP-1152)
    transactional_id_pattern: str | None = wire(STRING, "2+", default=None, nullable="0+")


@struct
class TransactionState:
    """One transactional id."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(STRING)  # Empty, Ongoing, PrepareCommit and so on


@message(ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The transactional ids."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    unknown_state_filters: list[str] = wire(array(STRING))  # states asked for that do not exist
    transaction_states: list[TransactionState] = wire(array(TransactionState))
