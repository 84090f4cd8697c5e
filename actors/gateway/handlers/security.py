"""What Apache Kafka without an authorizer answers over a PLAINTEXT listener.

ACLs (DescribeAcls, CreateAcls, DeleteAcls 1-3), delegation tokens (KIP-48) and SASL (KIP-43,
KIP-152) have nothing to work on here. They are announced all the same: tools ask without looking
at what is announced, and some take a broker without SaslHandshake for one of 2015.
"""

from __future__ import annotations

from raylog.actors.gateway.context import RequestContext
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from raylog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from raylog.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from raylog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from raylog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from raylog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from raylog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from raylog.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from raylog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_DISABLED = int(ErrorCode.SECURITY_DISABLED)
_NO_AUTHORIZER = "No Authorizer is configured."
_NO_TOKENS = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
_NO_SASL = int(ErrorCode.ILLEGAL_SASL_STATE)
_REQUESTER_SINCE = 3
ANONYMOUS = ("User", "ANONYMOUS")
"""The principal of every client."""


def describe_acls(_context: RequestContext, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    """There are no ACLs."""
    return DescribeAclsResponse(
        error_code=_DISABLED, error_message="No Authorizer is configured on the broker"
    )


def create_acls(_context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse each."""
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=_DISABLED, error_message=_NO_AUTHORIZER)]
        * len(request.creations)
    )


def delete_acls(_context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse each filter."""
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=_DISABLED, error_message=_NO_AUTHORIZER)]
        * len(request.filters)
    )


def sasl_handshake(
    _context: RequestContext, _request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Nobody authenticates on a PLAINTEXT listener."""
    return SaslHandshakeResponse(error_code=_NO_SASL)


def sasl_authenticate(
    _context: RequestContext, _request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Nobody authenticates on a PLAINTEXT listener."""
    return SaslAuthenticateResponse(
        error_code=_NO_SASL,
        error_message="SaslAuthenticate request received after successful authentication",
    )


def create_delegation_token(
    context: RequestContext, _request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Tokens are for authenticated clients."""
    kind, name = ANONYMOUS
    tells_requester = context.version >= _REQUESTER_SINCE
    return CreateDelegationTokenResponse(
        error_code=_NO_TOKENS,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind if tells_requester else "",
        token_requester_principal_name=name if tells_requester else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def renew_delegation_token(
    _context: RequestContext, _request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Tokens are for authenticated clients."""
    return RenewDelegationTokenResponse(error_code=_NO_TOKENS, expiry_timestamp_ms=-1)


def expire_delegation_token(
    _context: RequestContext, _request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Tokens are for authenticated clients."""
    return ExpireDelegationTokenResponse(error_code=_NO_TOKENS, expiry_timestamp_ms=-1)


def describe_delegation_token(
    _context: RequestContext, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Tokens are for authenticated clients."""
    return DescribeDelegationTokenResponse(error_code=_NO_TOKENS)
