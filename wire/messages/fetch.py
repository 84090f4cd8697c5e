"""Fetch, API key 1: read batches, as a consumer or as a follower.

v4 adds isolation levels (KIP-98).
v5 returns the log start offset (KIP-107).
v7 adds incremental sessions (KIP-227): requests and responses have only changes.
v9 checks the leader epoch (KIP-320).
v10 allows zstd (KIP-110).
v11 may send the consumer to a replica in its rack (KIP-392).
v12 is flexible and reports divergence by epochs (KIP-595).
v13 uses topic ids instead of names (KIP-516).
v14 may return OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405).
v15 moves the replica id into a tagged struct with the broker epoch (KIP-903).
v16 returns the current leader (KIP-951).
v17 adds the follower's directory id (KIP-853).
v18 adds the follower's high watermark (KIP-1166).
"""

from raylog.wire.api import ApiKey
from raylog.wire.messages.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from raylog.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT32_MAX,
    INT64,
    INT64_MAX,
    RECORDS,
    STRING,
    UUID,
    RecordData,
    array,
    message,
    struct,
    wire,
)


@struct
class ReplicaState:
    """The follower that fetches."""

    replica_id: int = wire(INT32, default=-1)
    replica_epoch: int = wire(INT64, default=-1)  # its broker epoch; -1: unknown


@struct
class FetchPartition:
    """The fetch position in one partition."""

    partition: int = wire(INT32)
    # -1: unknown, do not check (KIP-320)
    current_leader_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = wire(INT64)
    # leader epoch of the last record held; -1: do not check (KIP-595)
    last_fetched_epoch: int = wire(INT32, "12+", default=-1)
    # the follower's own; -1 from consumers (KIP-107)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32)  # the first batch may exceed it (KIP-74)
    replica_directory_id: bytes = wire(UUID, "17+", tag=0, ignorable=True)  # KIP-853
    # the follower's own; -1: unknown; largest int64: not told (KIP-1166)
    high_watermark: int = wire(INT64, "18+", default=INT64_MAX, tag=1, ignorable=True)


@struct
class FetchTopic:
    """The partitions of one topic."""

    topic: str = wire(STRING, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)  # KIP-516
    partitions: list[FetchPartition] = wire(array(FetchPartition))


@struct
class ForgottenTopic:
    """Partitions to remove from the session."""

    topic: str = wire(STRING, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)  # KIP-516
    partitions: list[int] = wire(array(INT32))


@message(ApiKey.FETCH, versions="4-18", flexible="12+")
class FetchRequest:
    """The partitions to read, and the limits of the answer. Within a session only changes."""

    # checked where a broker is not registered yet (KIP-595)
    cluster_id: str | None = wire(STRING, "12+", default=None, nullable="0+", tag=0, ignorable=True)
    replica_id: int = wire(INT32, "0-14", default=-1)  # -1: a consumer
    # None: a consumer (KIP-903)
    replica_state: ReplicaState | None = wire(ReplicaState, "15+", default=None, tag=1)
    max_wait_ms: int = wire(INT32)  # longest wait for min_bytes
    min_bytes: int = wire(INT32)
    # over all partitions; the first batch may exceed it (KIP-74)
    max_bytes: int = wire(INT32, default=INT32_MAX)
    isolation_level: int = wire(INT8)  # 0 read_uncommitted, 1 read_committed
    session_id: int = wire(INT32, "7+", ignorable=True)  # 0: none yet (KIP-227)
    # 0: open a session; -1: none, or close it (KIP-227)
    session_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = wire(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = wire(array(ForgottenTopic), "7+")  # KIP-227
    rack_id: str = wire(STRING, "11+", ignorable=True)  # the consumer's rack (KIP-392)


@struct
class EpochEndOffset:
    """The largest leader epoch not above the requested one, and its end offset."""

    epoch: int = wire(INT32, default=-1)
    end_offset: int = wire(INT64, default=-1)  # exclusive


@struct
class SnapshotId:
    """A snapshot of the metadata log."""

    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@struct
class AbortedTransaction:
    """An aborted transaction: skip the producer's records from here to its next abort marker."""

    producer_id: int = wire(INT64)
    first_offset: int = wire(INT64)


@struct
class PartitionData:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)  # exclusive end of what consumers may read
    last_stable_offset: int = wire(INT64, default=-1)  # exclusive end of decided transactions
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)  # KIP-107
    # the log diverges here (KIP-595)
    diverging_epoch: EpochEndOffset | None = wire(EpochEndOffset, "12+", default=None, tag=0)
    # with NOT_LEADER_OR_FOLLOWER and similar errors (KIP-951)
    current_leader: LeaderIdAndEpoch | None = wire(LeaderIdAndEpoch, "12+", default=None, tag=1)
    # where the log starts, if fetched below (KIP-630)
    snapshot_id: SnapshotId | None = wire(SnapshotId, "12+", default=None, tag=2)
    # in read_committed only
    aborted_transactions: list[AbortedTransaction] | None = wire(
        array(AbortedTransaction), nullable="0+"
    )
    preferred_read_replica: int = wire(INT32, "11+", default=-1)  # -1: this one (KIP-392)
    # whole batches; the last one may be cut
    records: RecordData | None = wire(RECORDS, default=None, nullable="0+")


@struct
class FetchableTopicResponse:
    """The outcome for one topic."""

    topic: str = wire(STRING, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)  # KIP-516
    partitions: list[PartitionData] = wire(array(PartitionData))


@message(ApiKey.FETCH, versions="4-18", flexible="12+")
class FetchResponse:
    """The fetched batches. Within a session only partitions with changes are included."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, "7+", ignorable=True)  # KIP-227
    session_id: int = wire(INT32, "7+")  # 0: no session (KIP-227)
    responses: list[FetchableTopicResponse] = wire(array(FetchableTopicResponse))
    # addresses of the leaders in the responses (KIP-951)
    node_endpoints: list[NodeEndpoint] = wire(array(NodeEndpoint), "16+", tag=0)
