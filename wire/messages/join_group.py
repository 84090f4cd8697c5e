"""JoinGroup, API key 11: first phase of a rebalance in the classic group protocol.

v1 has a rebalance timeout of its own (KIP-62).
v2 tells the throttle time.
v4 makes a new member join again with the id it was given (KIP-394).
v5 knows static members (KIP-345).
v6 is flexible.
v7 repeats the protocol type (KIP-559).
v8 carries a reason (KIP-800).
v9 lets a returning static leader skip the assignment (KIP-814).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, BYTES, INT16, INT32, STRING, array, message, struct, wire


@struct
class JoinGroupRequestProtocol:
    """An assignor the member knows."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)  # for consumers a ConsumerProtocolSubscription with its version


@message(ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """A member joins or stays; answered when the group is complete."""

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)  # without heartbeats for so long, the member is out
    # wait for members to rejoin; -1: as the session (KIP-62)
    rebalance_timeout_ms: int = wire(INT32, "1+", default=-1, ignorable=True)
    member_id: str = wire(STRING)  # "" at first
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, "5+", default=None, nullable="0+")
    protocol_type: str = wire(STRING)  # "consumer" for consumers
    # best first; each member votes so
    protocols: list[JoinGroupRequestProtocol] = wire(array(JoinGroupRequestProtocol))
    reason: str | None = wire(STRING, "8+", default=None, nullable="0+", ignorable=True)  # KIP-800


@struct
class JoinGroupResponseMember:
    """A member as the leader sees it."""

    member_id: str = wire(STRING)
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, "5+", default=None, nullable="0+", ignorable=True)
    metadata: bytes = wire(BYTES)  # what it sent for the chosen protocol


@message(ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The new generation. Only the leader is told the members."""

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1)
    # KIP-559
    protocol_type: str | None = wire(STRING, "7+", default=None, nullable="0+", ignorable=True)
    # chosen by the members' votes; None on error
    protocol_name: str | None = wire(STRING, nullable="7+")
    leader: str = wire(STRING)  # its member id
    skip_assignment: bool = wire(BOOL, "9+")  # KIP-814
    member_id: str = wire(STRING)
    members: list[JoinGroupResponseMember] = wire(array(JoinGroupResponseMember))
