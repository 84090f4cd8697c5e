"""AddOffsetsToTxn, API key 25: add a group's offsets to a transaction.

v2 may return PRODUCER_FENCED (KIP-588).
v3 is flexible.
v4 may return TRANSACTION_ABORTABLE (KIP-890).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, INT64, STRING, message, wire


@message(ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Adds the group's partition of `__consumer_offsets` to the transaction."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)


@message(ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """The outcome."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
