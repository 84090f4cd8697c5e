"""DeleteAcls, API key 31: delete all ACLs that match filters.

v1 adds prefixed patterns (KIP-290).
v2 is flexible.
v3 adds users as a resource type (KIP-373).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT8, INT16, INT32, STRING, array, message, struct, wire


@struct
class DeleteAclsFilter:
    """A filter. Null matches everything."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable="0+")
    pattern_type_filter: int = wire(INT8, default=3)  # 1 any, 2 match, 3 literal, 4 prefixed
    principal_filter: str | None = wire(STRING, nullable="0+")
    host_filter: str | None = wire(STRING, nullable="0+")
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message(ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    """The filters. Each succeeds or fails on its own."""

    filters: list[DeleteAclsFilter] = wire(array(DeleteAclsFilter))


@struct
class DeleteAclsMatchingAcl:
    """One ACL that matched."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, default=3)  # 3 literal, 4 prefixed
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class DeleteAclsFilterResult:
    """The ACLs that one filter matched."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = wire(array(DeleteAclsMatchingAcl))


@message(ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    """The outcomes, in the order of the request."""

    throttle_time_ms: int = wire(INT32)
    filter_results: list[DeleteAclsFilterResult] = wire(array(DeleteAclsFilterResult))
