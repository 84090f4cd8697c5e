"""EndTxn, API key 26: commit or abort.

v2 may answer PRODUCER_FENCED (KIP-588).
v3 is flexible.
v4 may answer TRANSACTION_ABORTABLE (KIP-890).
v5 raises the epoch with every transaction and tells the one to go on with (KIP-890).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT16, INT32, INT64, STRING, message, wire


@message(ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnRequest:
    """How the open transaction ends."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)  # false: abort


@message(ApiKey.END_TXN, versions="0-5", flexible="3+")
class EndTxnResponse:
    """The end is durable, the markers may still be on their way."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    # to go on with; -1: as before (KIP-890)
    producer_id: int = wire(INT64, "5+", default=-1, ignorable=True)
    # to go on with; -1: as before (KIP-890)
    producer_epoch: int = wire(INT16, "5+", default=-1, ignorable=True)
