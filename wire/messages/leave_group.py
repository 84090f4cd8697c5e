"""LeaveGroup, API key 13: members leave a classic group.

v1 tells the throttle time.
v3 lets several leave, static ones by instance id (KIP-345).
v4 is flexible.
v5 carries a reason (KIP-800).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, array, message, struct, wire


@struct
class MemberIdentity:
    """One member to leave."""

    member_id: str = wire(STRING)  # "" if the instance id says who
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, default=None, nullable="0+")
    reason: str | None = wire(STRING, "5+", default=None, nullable="0+", ignorable=True)  # KIP-800


@message(ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """Who leaves; one member in the outer field up to v2."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING, "0-2")
    members: list[MemberIdentity] = wire(array(MemberIdentity), "3+")  # KIP-345


@struct
class MemberResponse:
    """Whether one member has left."""

    member_id: str = wire(STRING)
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, nullable="0+")
    error_code: int = wire(INT16)


@message(ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
    members: list[MemberResponse] = wire(array(MemberResponse), "3+")  # KIP-345
