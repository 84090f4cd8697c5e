"""Access control lists: which principal may do what with which resource.

DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3 (KIP-140, KIP-290). A broker without an
authorizer answers SecurityDisabled. Changes are not retried once they were sent, but are safe to
repeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from raylog.client.admin.base import Operations, items_in, member_of, split_principal
from raylog.client.errors import InvalidSetting
from raylog.client.matching import answers_in_order
from raylog.client.refusals import check
from raylog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from raylog.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from raylog.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

ANY_HOST = "*"
"""The host of an ACL that applies to clients from any address."""


class AclResourceType(IntEnum):
    """What an ACL protects: Kafka's `ResourceType`."""

    UNKNOWN = 0
    """In answers: a type unknown to this client."""
    ANY = 1
    """In filters: any type."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    """There is only one, named "kafka-cluster"."""
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a resource is matched (KIP-290)."""

    UNKNOWN = 0
    """In answers: a type unknown to this client."""
    ANY = 1
    """In filters: patterns of any type with exactly this name."""
    MATCH = 2
    """In filters: all patterns that apply to the resource with this name."""
    LITERAL = 3
    """The resource with this name; "*" means all resources."""
    PREFIXED = 4
    """All resources whose names start with this name."""


class AclOperation(IntEnum):
    """What an ACL allows or denies."""

    UNKNOWN = 0
    """In answers: an operation unknown to this client."""
    ANY = 1
    """In filters: any operation."""
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether an ACL allows or denies: Kafka's `AclPermissionType`. DENY takes precedence."""

    UNKNOWN = 0
    """In answers: a permission unknown to this client."""
    ANY = 1
    """In filters: any permission."""
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources that an ACL applies to."""

    type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One ACL."""

    pattern: ResourcePattern
    principal: str
    """Type and name, as in "User:ann"; "User:*" means everyone."""
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = ANY_HOST
    """The client's IP address."""

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.operation.name} on {self.pattern.type.name} "
            f"{self.pattern.name!r} ({self.pattern.pattern_type.name}) for {self.principal} from "
            f"{self.host}"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which ACLs to describe or delete: by default all; each field narrows the selection."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    """None: any name."""
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    """None: any principal."""
    host: str | None = None
    """None: any host."""
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def __str__(self) -> str:
        name = "" if self.resource_name is None else f" {self.resource_name!r}"
        return (
            f"ACLs of {self.permission.name} {self.operation.name} on {self.resource_type.name}"
            f"{name} ({self.pattern_type.name}) for {self.principal or 'ANY'} from "
            f"{self.host or 'ANY'}"
        )


class AclAdmin(Operations):
    """The operations on ACLs; the blocking and the asyncio client offer each as one call."""

    async def describe_acls(self, which: AclFilter | None = None) -> list[AclBinding]:
        """Return the ACLs that match a filter (None: all); raises SecurityDisabled."""
        (chosen,) = items_in([which or AclFilter()], AclFilter)
        _check_filter(chosen)
        request = DescribeAclsRequest(
            resource_type_filter=chosen.resource_type,
            resource_name_filter=chosen.resource_name,
            pattern_type_filter=chosen.pattern_type,
            principal_filter=chosen.principal,
            host_filter=chosen.host,
            operation=chosen.operation,
            permission_type=chosen.permission,
        )
        response = await self._core.ask_any(request, DescribeAclsResponse)
        check(response.error_code, "ACLs", response.error_message)
        return [
            _described(resource, acl) for resource in response.resources for acl in resource.acls
        ]

    async def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Create ACLs; raises the first error, but the other ACLs are created.

        Creating an ACL that exists changes nothing.
        """
        acls = items_in(acls, AclBinding)
        for acl in acls:
            _check_binding(acl)
        request = CreateAclsRequest(creations=[_creation(acl) for acl in acls])
        response = await self._core.ask_controller(request, CreateAclsResponse)
        for acl, result in answers_in_order(acls, response.results):
            check(result.error_code, str(acl), result.error_message)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete the ACLs that match any of the filters; return those that were deleted.

        Raises the first error, but what the other filters match is deleted.
        """
        filters = items_in(filters, AclFilter)
        for which in filters:
            _check_filter(which)
        request = DeleteAclsRequest(filters=[_deletion(which) for which in filters])
        response = await self._core.ask_controller(request, DeleteAclsResponse)
        deleted: dict[AclBinding, None] = {}
        for which, result in answers_in_order(filters, response.filter_results):
            check(result.error_code, str(which), result.error_message)
            for match in result.matching_acls:
                acl = _matching(match)
                check(match.error_code, str(acl), match.error_message)
                deleted[acl] = None
        return list(deleted)


def _check_binding(acl: AclBinding) -> None:
    """Raise InvalidSetting for ANY and UNKNOWN: an ACL has a single value in each field."""
    pattern = acl.pattern
    for name, value, lowest in (
        ("resource type", pattern.type, AclResourceType.TOPIC),
        ("pattern type", pattern.pattern_type, PatternType.LITERAL),
        ("operation", acl.operation, AclOperation.ALL),
        ("permission", acl.permission, AclPermission.DENY),
    ):
        kind = type(lowest)
        if not isinstance(value, kind) or value < lowest:
            known = ", ".join(one.name for one in kind if one >= lowest)
            found = value.name if isinstance(value, kind) else repr(value)
            raise InvalidSetting(f"expected an ACL with {name} {known}, found {found}")
    split_principal(acl.principal)


def _check_filter(which: AclFilter) -> None:
    """Raise InvalidSetting for UNKNOWN, on which a broker disconnects, and invalid principals."""
    for value, unknown in (
        (which.resource_type, AclResourceType.UNKNOWN),
        (which.pattern_type, PatternType.UNKNOWN),
        (which.operation, AclOperation.UNKNOWN),
        (which.permission, AclPermission.UNKNOWN),
    ):
        kind = type(unknown)
        if not isinstance(value, kind) or value is unknown:
            known = ", ".join(one.name for one in kind if one is not unknown)
            found = value.name if isinstance(value, kind) else repr(value)
            raise InvalidSetting(
                f"expected a filter with one of {kind.__name__} {known}, found {found}"
            )
    if which.principal is not None:
        split_principal(which.principal)


def _creation(acl: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=acl.pattern.type,
        resource_name=acl.pattern.name,
        resource_pattern_type=acl.pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _deletion(which: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=which.resource_type,
        resource_name_filter=which.resource_name,
        pattern_type_filter=which.pattern_type,
        principal_filter=which.principal,
        host_filter=which.host,
        operation=which.operation,
        permission_type=which.permission,
    )


def _described(resource: DescribeAclsResource, acl: AclDescription) -> AclBinding:
    pattern = _pattern(resource.resource_type, resource.resource_name, resource.pattern_type)
    return _binding(pattern, acl)


def _matching(acl: DeleteAclsMatchingAcl) -> AclBinding:
    return _binding(_pattern(acl.resource_type, acl.resource_name, acl.pattern_type), acl)


def _pattern(kind: int, name: str, pattern_type: int) -> ResourcePattern:
    return ResourcePattern(
        member_of(AclResourceType, kind, AclResourceType.UNKNOWN),
        name,
        member_of(PatternType, pattern_type, PatternType.UNKNOWN),
    )


def _binding(pattern: ResourcePattern, acl: AclDescription | DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        pattern,
        acl.principal,
        member_of(AclOperation, acl.operation, AclOperation.UNKNOWN),
        member_of(AclPermission, acl.permission_type, AclPermission.UNKNOWN),
        acl.host,
    )
