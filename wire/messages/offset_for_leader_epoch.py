"""OffsetForLeaderEpoch, API key 23: the end offset of a leader epoch (KIP-101, KIP-279, KIP-320).

v2 checks the requester's leader epoch.
v3 allows consumers (replica id -1).
v4 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, INT64, STRING, array, message, struct, wire


@struct
class OffsetForLeaderPartition:
    """One partition."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, default=-1)  # -1: unknown, do not check (KIP-320)
    leader_epoch: int = wire(INT32)  # the epoch whose end is wanted


@struct
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: list[OffsetForLeaderPartition] = wire(array(OffsetForLeaderPartition))


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """The leader epochs whose ends are requested."""

    # -1: a consumer; -2: a debugging tool
    replica_id: int = wire(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = wire(array(OffsetForLeaderTopic))


@struct
class EpochEndOffset:
    """The end of an epoch."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1)  # the largest one not above the requested; -1: none
    end_offset: int = wire(INT64, default=-1)  # exclusive; -1: unknown


@struct
class OffsetForLeaderTopicResult:
    """The outcome for one topic."""

    topic: str = wire(STRING)
    partitions: list[EpochEndOffset] = wire(array(EpochEndOffset))


@message(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    topics: list[OffsetForLeaderTopicResult] = wire(array(OffsetForLeaderTopicResult))
