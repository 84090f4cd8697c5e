"""ListGroups, API key 16: the groups that this broker coordinates.

v1 returns the throttle time.
v3 is flexible.
v4 filters by state (KIP-518).
v5 filters by type (KIP-848).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, array, message, struct, wire


@message(ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """The filters. An empty one matches all groups."""

    states_filter: list[str] = wire(array(STRING), "4+")  # KIP-518
    types_filter: list[str] = wire(array(STRING), "5+")  # KIP-848


@struct
class ListedGroup:
    """One group."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, "4+", ignorable=True)  # KIP-518
    # one of classic, consumer, share and streams (KIP-848)
    group_type: str = wire(STRING, "5+", ignorable=True)


@message(ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
    groups: list[ListedGroup] = wire(array(ListedGroup))
