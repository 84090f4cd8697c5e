"""Records of `__transaction_state`.

v1 is flexible and adds fields of transaction version 2 (KIP-890). A tombstone removes the id.

CoordinatorEpochKey is our own kind. Apache Kafka skips it as an unknown one.
"""

from raylog.wire.schema import INT8, INT16, INT32, INT64, STRING, array, struct, versioned, wire


@versioned(versions="0")
class TransactionLogKey:
    """The key: a transactional id."""

    transactional_id: str = wire(STRING)


@struct
class PartitionsSchema:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partition_ids: list[int] = wire(array(INT32))


@versioned(versions="0-1", flexible="1+")
class TransactionLogValue:
    """The state of the transaction."""

    producer_id: int = wire(INT64)
    # of the last committed one, in case its answer was lost; -1: none (KIP-890)
    previous_producer_id: int = wire(INT64, "1+", default=-1, tag=0)
    # already returned to the producer; -1: none (KIP-890)
    next_producer_id: int = wire(INT64, "1+", default=-1, tag=1)
    producer_epoch: int = wire(INT16)
    # goes with next_producer_id (KIP-890)
    next_producer_epoch: int = wire(INT16, "1+", default=-1, tag=3)
    transaction_timeout_ms: int = wire(INT32)
    # 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort, 6
    # Dead, 7 PrepareEpochFence
    transaction_status: int = wire(INT8)
    # None: none
    transaction_partitions: list[PartitionsSchema] | None = wire(
        array(PartitionsSchema), nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = wire(INT64)
    transaction_start_timestamp_ms: int = wire(INT64)  # -1: none is open
    client_transaction_version: int = wire(INT16, "1+", tag=2)  # KIP-890


@versioned(versions="0")
class CoordinatorEpochKey:
    """The coordinator of this partition's transactional ids."""


@versioned(versions="0")
class CoordinatorEpochValue:
    """The epoch of the markers that it writes from here on."""

    coordinator_epoch: int = wire(INT32)
