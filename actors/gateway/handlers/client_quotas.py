"""DescribeClientQuotas 0-1 and AlterClientQuotas 0-1: rates of users and clients (KIP-546).

Left out: quotas. There are none, and none can be set.
"""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.gateway.answers import attempt
from raylog.actors.gateway.context import RequestContext
from raylog.wire.errors import ErrorCode, InvalidRequest, UnsupportedVersion
from raylog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    ResponseEntryData,
)
from raylog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_EXACT, _DEFAULT, _ANY = range(3)
_MATCHES = {_EXACT: "EXACT", _DEFAULT: "DEFAULT", _ANY: "SPECIFIED"}


def describe_client_quotas(
    _context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Answer that nothing matches the filter, if it is valid."""

    def none() -> DescribeClientQuotasResponse:
        _check(request.components)
        return DescribeClientQuotasResponse(error_message="", entries=[])

    return attempt(
        none,
        lambda code, message: DescribeClientQuotasResponse(
            error_code=code, error_message=message, entries=None
        ),
    )


def _check(components: Iterable[ComponentData]) -> None:
    """Raise Kafka's error for an invalid filter."""
    types: set[str] = set()
    for one in components:
        kind = one.entity_type
        if kind in types:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind not in (_USER, _CLIENT_ID, _IP):
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        _check_match(one)
        types.add(kind)
    if _IP in types and len(types) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )


def _check_match(one: ComponentData) -> None:
    name = _MATCHES.get(one.match_type)
    if name is None:
        raise InvalidRequest(f"Unknown match type {one.match_type}")
    if one.match_type == _EXACT and one.match is None:
        raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if one.match_type != _EXACT and one.match is not None:
        raise InvalidRequest(
            f"Request specified MATCH_TYPE_{name}, but also specified a match string."
        )


def alter_client_quotas(
    _context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Refuse each entry."""
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                error_code=int(ErrorCode.UNSUPPORTED_VERSION),
                error_message="Raylog has no client quotas.",
                entity=[
                    EntityData(entity_type=one.entity_type, entity_name=one.entity_name)
                    for one in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )
