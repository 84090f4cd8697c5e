"""InitProducerId, API key 22: get a producer id and epoch, and fence predecessors.

v2 is flexible.
v3 lets a producer keep its id and raise its epoch (KIP-360).
v4 may return PRODUCER_FENCED (KIP-588).
v5 may return TRANSACTION_ABORTABLE (KIP-890).
v6 adds two-phase commit (KIP-939); neither Kafka nor Raylog announces it yet.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT16, INT32, INT64, STRING, message, wire


@message(ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    """Sent once by an idempotent producer, and at each start of a transactional one."""

    transactional_id: str | None = wire(STRING, nullable="0+")  # None: idempotent only
    transaction_timeout_ms: int = wire(INT32)  # an open transaction is aborted after this time
    producer_id: int = wire(INT64, "3+", default=-1)  # the current one; -1: none (KIP-360)
    producer_epoch: int = wire(INT16, "3+", default=-1)  # KIP-360
    enable_2pc: bool = wire(BOOL, "6+")  # KIP-939
    keep_prepared_txn: bool = wire(BOOL, "6+")  # do not abort what is prepared (KIP-939)


@message(ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    """The id and epoch to use."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16)
    # of the prepared transaction; -1: none (KIP-939)
    ongoing_txn_producer_id: int = wire(INT64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = wire(INT16, "6+", default=-1)  # KIP-939
