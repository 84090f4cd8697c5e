"""DescribeAcls, API key 29: the ACLs that match a filter.

v1 adds prefixed patterns (KIP-290).
v2 is flexible.
v3 adds users as a resource type (KIP-373).
Types, operations and permissions are numbered as in Kafka's enums of the same names; 1 is "any".
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT8, INT16, INT32, STRING, array, message, struct, wire


@message(ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    """The filter. Null matches everything."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable="0+")
    pattern_type_filter: int = wire(INT8, default=3)  # 1 any, 2 match, 3 literal, 4 prefixed
    principal_filter: str | None = wire(STRING, nullable="0+")
    host_filter: str | None = wire(STRING, nullable="0+")
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class AclDescription:
    """One ACL."""

    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@struct
class DescribeAclsResource:
    """The ACLs of one resource."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, default=3)  # 3 literal, 4 prefixed
    acls: list[AclDescription] = wire(array(AclDescription))


@message(ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    """The ACLs found."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    resources: list[DescribeAclsResource] = wire(array(DescribeAclsResource))
