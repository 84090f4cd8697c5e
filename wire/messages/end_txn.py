"""EndTxn, API key 26: commit or abort a transaction.

v2 may return PRODUCER_FENCED (KIP-588).
v3 is flexible.
v4 may return TRANSACTION_ABORTABLE (KIP-890).
v5 raises the epoch with every transaction and returns the next one (KIP-890).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT16, INT32, INT64, STRING, message, wire


@message(ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnRequest:
    """Ends the open transaction."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)  # false: abort


@message(ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnResponse:
    """The outcome. It is durable, but markers may not be written yet."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    # the next one to use; -1: unchanged (KIP-890)
    producer_id: int = wire(INT64, "5+", default=-1, ignorable=True)
    # the next one to use; -1: unchanged (KIP-890)
    producer_epoch: int = wire(INT16, "5+", default=-1, ignorable=True)
