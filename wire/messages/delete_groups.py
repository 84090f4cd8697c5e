"""DeleteGroups, API key 42: delete groups without members, and their offsets.

v2 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, array, message, struct, wire


@message(ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """The groups to delete. Each succeeds or fails on its own."""

    groups_names: list[str] = wire(array(STRING))


@struct
class DeletableGroupResult:
    """The outcome for one group."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@message(ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    results: list[DeletableGroupResult] = wire(array(DeletableGroupResult))
