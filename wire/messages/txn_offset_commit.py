"""TxnOffsetCommit, API key 28: commit a group's offsets in a transaction.

v2 adds the leader epoch (KIP-320).
v3 is flexible and lets the coordinator check the member (KIP-447).
v4 may return TRANSACTION_ABORTABLE (KIP-890).
v5 adds the group to the transaction implicitly, if transaction.version is 2 (KIP-890).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, INT64, STRING, array, message, struct, wire


@struct
class TxnOffsetCommitRequestPartition:
    """The offset in one partition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)  # the next one to read
    # leader epoch of the last record processed; -1: unknown (KIP-320)
    committed_leader_epoch: int = wire(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    """The offsets in one topic."""

    name: str = wire(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = wire(array(TxnOffsetCommitRequestPartition))


@message(ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    """Offsets of one group."""

    transactional_id: str = wire(STRING)
    group_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    # of the classic or member epoch of the KIP-848 group; -1: not checked
    generation_id: int = wire(INT32, "3+", default=-1)
    member_id: str = wire(STRING, "3+")  # KIP-447
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, "3+", default=None, nullable="0+")
    topics: list[TxnOffsetCommitRequestTopic] = wire(array(TxnOffsetCommitRequestTopic))


@struct
class TxnOffsetCommitResponsePartition:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@struct
class TxnOffsetCommitResponseTopic:
    """The outcome for one topic."""

    name: str = wire(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = wire(
        array(TxnOffsetCommitResponsePartition)
    )


@message(ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = wire(array(TxnOffsetCommitResponseTopic))
