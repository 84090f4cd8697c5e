"""OffsetFetch, API key 9: the committed offsets of groups.

v2 returns all partitions for null topics, and an error for the whole group.
v3 returns the throttle time.
v5 adds leader epochs (KIP-320).
v6 is flexible.
v7 can require that no transaction is open (KIP-447).
v8 accepts several groups (KIP-709).
v9 lets the coordinator check member and epoch (KIP-848).
v10 uses topic ids instead of names (KIP-848).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT16, INT32, INT64, STRING, UUID, array, message, struct, wire


@struct
class OffsetFetchRequestTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: list[int] = wire(array(INT32))


@struct
class OffsetFetchRequestTopics:
    """The partitions of one topic."""

    name: str = wire(STRING, "0-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)  # KIP-848
    partition_indexes: list[int] = wire(array(INT32))


@struct
class OffsetFetchRequestGroup:
    """One group."""

    group_id: str = wire(STRING)
    # None: not a member (KIP-848)
    member_id: str | None = wire(STRING, "9+", default=None, nullable="0+", ignorable=True)
    # -1: not a member of a KIP-848 group
    member_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    # None: all
    topics: list[OffsetFetchRequestTopics] | None = wire(
        array(OffsetFetchRequestTopics), nullable="0+"
    )


@message(ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """The groups and partitions. Up to v7 the outer fields hold the only group."""

    group_id: str = wire(STRING, "0-7")
    # None: all, from v2 on
    topics: list[OffsetFetchRequestTopic] | None = wire(
        array(OffsetFetchRequestTopic), "0-7", nullable="2+"
    )
    groups: list[OffsetFetchRequestGroup] = wire(array(OffsetFetchRequestGroup), "8+")  # KIP-709
    # UNSTABLE_OFFSET_COMMIT if a transaction is open (KIP-447)
    require_stable: bool = wire(BOOL, "7+")


@struct
class OffsetFetchResponsePartition:
    """The offset in one partition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)  # the next one to read; -1: none is stored
    # leader epoch of the last record processed; -1: unknown (KIP-320)
    committed_leader_epoch: int = wire(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = wire(STRING, nullable="0+")
    error_code: int = wire(INT16)


@struct
class OffsetFetchResponseTopic:
    """The offsets in one topic."""

    name: str = wire(STRING)
    partitions: list[OffsetFetchResponsePartition] = wire(array(OffsetFetchResponsePartition))


@struct
class OffsetFetchResponsePartitions:
    """The offset in one partition."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)  # the next one to read; -1: none is stored
    # leader epoch of the last record processed; -1: unknown (KIP-320)
    committed_leader_epoch: int = wire(INT32, default=-1, ignorable=True)
    metadata: str | None = wire(STRING, nullable="0+")
    error_code: int = wire(INT16)


@struct
class OffsetFetchResponseTopics:
    """The offsets in one topic."""

    name: str = wire(STRING, "0-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)  # KIP-848
    partitions: list[OffsetFetchResponsePartitions] = wire(array(OffsetFetchResponsePartitions))


@struct
class OffsetFetchResponseGroup:
    """The offsets of one group."""

    group_id: str = wire(STRING)
    topics: list[OffsetFetchResponseTopics] = wire(array(OffsetFetchResponseTopics))
    error_code: int = wire(INT16)


@message(ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """The committed offsets. Up to v7 the outer fields hold the only group."""

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = wire(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = wire(INT16, "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = wire(array(OffsetFetchResponseGroup), "8+")  # KIP-709
