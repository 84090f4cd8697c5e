"""CreateAcls, API key 30.

v1 adds prefixed patterns (KIP-290).
v2 is flexible.
v3 adds users as a resource type (KIP-373).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT8, INT16, INT32, STRING, array, message, struct, wire


@struct
class AclCreation:
    """One ACL to create."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    resource_pattern_type: int = wire(INT8, default=3)  # 3 literal, 4 prefixed
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message(ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsRequest:
    """The ACLs to create. Each succeeds or fails on its own."""

    creations: list[AclCreation] = wire(array(AclCreation))


@struct
class AclCreationResult:
    """The outcome for one ACL."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


@message(ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsResponse:
    """The outcomes, in the order of the request."""

    throttle_time_ms: int = wire(INT32)
    results: list[AclCreationResult] = wire(array(AclCreationResult))
