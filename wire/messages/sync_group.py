"""SyncGroup, API key 14: second phase of a rebalance in the classic group protocol.

v1 returns the throttle time.
v3 supports static members (KIP-345).
v4 is flexible.
v5 adds protocol type and name (KIP-559).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BYTES, INT16, INT32, STRING, array, message, struct, wire


@struct
class SyncGroupRequestAssignment:
    """The leader's assignment for one member."""

    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)  # for consumers a ConsumerProtocolAssignment with its version


@message(ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Requests the member's assignment. The leader sends the assignments of all members."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, "3+", default=None, nullable="0+")
    # KIP-559
    protocol_type: str | None = wire(STRING, "5+", default=None, nullable="0+", ignorable=True)
    # KIP-559
    protocol_name: str | None = wire(STRING, "5+", default=None, nullable="0+", ignorable=True)
    # from the leader only
    assignments: list[SyncGroupRequestAssignment] = wire(array(SyncGroupRequestAssignment))


@message(ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The assignment of this member."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
    # KIP-559
    protocol_type: str | None = wire(STRING, "5+", default=None, nullable="0+", ignorable=True)
    # KIP-559
    protocol_name: str | None = wire(STRING, "5+", default=None, nullable="0+", ignorable=True)
    assignment: bytes = wire(BYTES)
