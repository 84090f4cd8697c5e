"""LeaveGroup, API key 13: members leave a classic group.

v1 returns the throttle time.
v3 accepts several members, static ones by instance id (KIP-345).
v4 is flexible.
v5 adds a reason (KIP-800).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, array, message, struct, wire


@struct
class MemberIdentity:
    """One member to leave."""

    member_id: str = wire(STRING)  # "" if the instance id identifies the member
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, default=None, nullable="0+")
    reason: str | None = wire(STRING, "5+", default=None, nullable="0+", ignorable=True)  # KIP-800


@message(ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """The leaving members. Up to v2 the outer field holds the only one."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING, "0-2")
    members: list[MemberIdentity] = wire(array(MemberIdentity), "3+")  # KIP-345


@struct
class MemberResponse:
    """The outcome for one member."""

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
