"""Records of `__consumer_offsets` for committed offsets and classic groups.

OffsetCommitValue: only v1 has an expiry, v3 adds leader epochs (KIP-320), v4 is flexible and adds
the topic id. GroupMetadataValue: v1 adds the rebalance timeout, v2 the time of the last change, v3
static members (KIP-345), v4 is flexible.
"""

from raylog.wire.schema import BYTES, INT32, INT64, STRING, UUID, array, struct, versioned, wire


@versioned(versions="0")
class LegacyOffsetCommitKey:
    """Key of the oldest kind of commit, which is read but not written."""

    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@versioned(versions="0")
class LegacyOffsetCommitValue:
    """Value of the oldest kind of commit, which is read but not written."""

    offset: int = wire(INT64)
    metadata: str = wire(STRING)
    commit_timestamp: int = wire(INT64)  # ms


@versioned(versions="0")
class OffsetCommitKey:
    """The key: a group and a partition."""

    group: str = wire(STRING)
    topic: str = wire(STRING)
    partition: int = wire(INT32)


@versioned(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset."""

    offset: int = wire(INT64)  # the next one to read
    # of the last record read; -1: unknown (KIP-320)
    leader_epoch: int = wire(INT32, "3+", default=-1, ignorable=True)
    metadata: str = wire(STRING)
    commit_timestamp: int = wire(INT64)  # ms
    # ms; -1: the broker's retention
    expire_timestamp: int = wire(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = wire(UUID, "4+", tag=0, ignorable=True)


@versioned(versions="0")
class GroupMetadataKey:
    """The key: a classic group."""

    group: str = wire(STRING)


@struct
class MemberMetadata:
    """A member at the time of the assignment."""

    member_id: str = wire(STRING)
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, "3+", default=None, nullable="0+", ignorable=True)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    rebalance_timeout: int = wire(INT32, "1+", default=-1, ignorable=True)  # ms; -1: the session
    session_timeout: int = wire(INT32)  # ms
    subscription: bytes = wire(BYTES)  # what it sent for the chosen protocol
    assignment: bytes = wire(BYTES)


@versioned(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """One generation of a classic group."""

    protocol_type: str = wire(STRING)
    generation: int = wire(INT32)
    protocol: str | None = wire(STRING, nullable="0+")  # None: no members
    leader: str | None = wire(STRING, nullable="0+")  # its member id; None: no members
    # ms of the last change; -1: unknown
    current_state_timestamp: int = wire(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = wire(array(MemberMetadata))
