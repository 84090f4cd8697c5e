"""JoinGroup, API key 11: first phase of a rebalance in the classic group protocol.

v1 adds a rebalance timeout (KIP-62).
v2 returns the throttle time.
v4 makes a new member rejoin with its assigned id (KIP-394).
v5 supports static members (KIP-345).
v6 is flexible.
v7 adds the protocol type (KIP-559).
v8 adds a reason (KIP-800).
v9 lets a returning static leader skip the assignment (KIP-814).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, BYTES, INT16, INT32, STRING, array, message, struct, wire


@struct
class JoinGroupRequestProtocol:
    """An assignor that the member supports."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)  # for consumers a ConsumerProtocolSubscription with its version


@message(ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Joins or rejoins a group. The answer waits until the group is complete."""

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)  # a member without heartbeats is removed then
    # wait for members to rejoin; -1: the session timeout (KIP-62)
    rebalance_timeout_ms: int = wire(INT32, "1+", default=-1, ignorable=True)
    member_id: str = wire(STRING)  # "" at first
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, "5+", default=None, nullable="0+")
    protocol_type: str = wire(STRING)  # "consumer" for consumers
    # best first; each member votes for its first one
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
    """The new generation. Only the leader gets the members."""

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
