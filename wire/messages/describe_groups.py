"""DescribeGroups, API key 15: state and members of classic groups.

v1 returns the throttle time.
v3 may return authorized operations (KIP-430).
v4 supports static members (KIP-345).
v5 is flexible.
v6 adds an error message, and GROUP_ID_NOT_FOUND instead of a dead group (KIP-1043).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import (
    BOOL,
    BYTES,
    INT16,
    INT32,
    INT32_MIN,
    STRING,
    array,
    message,
    struct,
    wire,
)


@message(ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """The groups to describe."""

    groups: list[str] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL, "3+")  # KIP-430


@struct
class DescribedGroupMember:
    """One member."""

    member_id: str = wire(STRING)
    # None: not a static member (KIP-345)
    group_instance_id: str | None = wire(STRING, "4+", default=None, nullable="0+", ignorable=True)
    client_id: str = wire(STRING)  # of its last join
    client_host: str = wire(STRING)
    member_metadata: bytes = wire(BYTES)  # of the protocol in use
    member_assignment: bytes = wire(BYTES)


@struct
class DescribedGroup:
    """One group."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, "6+", default=None, nullable="0+")  # KIP-1043
    group_id: str = wire(STRING)
    # Empty, PreparingRebalance, CompletingRebalance, Stable or Dead
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)  # the protocol in use
    members: list[DescribedGroupMember] = wire(array(DescribedGroupMember))
    # bit field of AclOperation; smallest int32: not requested (KIP-430)
    authorized_operations: int = wire(INT32, "3+", default=INT32_MIN)


@message(ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """The groups. Each succeeds or fails on its own."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    groups: list[DescribedGroup] = wire(array(DescribedGroup))
