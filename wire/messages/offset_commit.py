"""OffsetCommit, API key 8: store a group's offsets.

v2 is the first that stores offsets in the log; v5 drops the retention time.
v3 returns the throttle time.
v6 adds the leader epoch (KIP-320).
v7 supports static members (KIP-345).
v8 is flexible.
v9 accepts the member epoch of a KIP-848 group in place of the generation.
v10 uses topic ids instead of names (KIP-848).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, INT64, STRING, UUID, array, message, struct, wire


@struct
class OffsetCommitRequestPartition:
    """The offset in one partition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)  # the next one to read
    # leader epoch of the last record processed; -1: unknown (KIP-320)
    committed_leader_epoch: int = wire(INT32, "6+", default=-1, ignorable=True)
    # free text of at most `offset.metadata.max.bytes`
    committed_metadata: str | None = wire(STRING, nullable="0+")


@struct
class OffsetCommitRequestTopic:
    """The offsets in one topic."""

    name: str = wire(STRING, "0-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)  # KIP-848
    partitions: list[OffsetCommitRequestPartition] = wire(array(OffsetCommitRequestPartition))


@message(ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    """Offsets of one group. A committed offset is the last processed one plus 1."""

    group_id: str = wire(STRING)
    # -1: the client is not a member
    generation_id_or_member_epoch: int = wire(INT32, default=-1)
    member_id: str = wire(STRING)
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, "7+", default=None, nullable="0+")
    # -1: the broker's default
    retention_time_ms: int = wire(INT64, "0-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = wire(array(OffsetCommitRequestTopic))


@struct
class OffsetCommitResponsePartition:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@struct
class OffsetCommitResponseTopic:
    """The outcome for one topic."""

    name: str = wire(STRING, "0-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)  # KIP-848
    partitions: list[OffsetCommitResponsePartition] = wire(array(OffsetCommitResponsePartition))


@message(ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = wire(array(OffsetCommitResponseTopic))
