"""APIs that are always refused, as Apache Kafka does when their feature is not in use.

For a PLAINTEXT listener without an authorizer: ACLs (DescribeAcls, CreateAcls, DeleteAcls 1-3),
delegation tokens (KIP-48) and SASL (KIP-43, KIP-152). For level 0 of the feature `share.version`:
share groups (KIP-932). All are announced, because tools send these requests without checking, and
some take a broker without SaslHandshake for one from 2015.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raylog.actors.gateway.context import RequestContext
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.messages import (
    alter_share_group_offsets,
    create_acls,
    create_delegation_token,
    delete_acls,
    delete_share_group_offsets,
    describe_acls,
    describe_delegation_token,
    describe_share_group_offsets,
    expire_delegation_token,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)

_DISABLED = int(ErrorCode.SECURITY_DISABLED)
_NO_AUTHORIZER = "No Authorizer is configured."
_NO_TOKENS = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
_NO_SASL = int(ErrorCode.ILLEGAL_SASL_STATE)
_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION)
_UNSUPPORTED_MESSAGE = "The version of API is not supported."
_REQUESTER_SINCE = 3
_PRINCIPAL = ("User", "ANONYMOUS")
"""The principal of every client."""


def _new_token(
    context: RequestContext, _: create_delegation_token.CreateDelegationTokenRequest
) -> create_delegation_token.CreateDelegationTokenResponse:
    kind, name = _PRINCIPAL if context.version >= _REQUESTER_SINCE else ("", "")
    return create_delegation_token.CreateDelegationTokenResponse(
        error_code=_NO_TOKENS,
        principal_type=_PRINCIPAL[0],
        principal_name=_PRINCIPAL[1],
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


REFUSALS: dict[ApiKey, Callable[[RequestContext, Any], Any]] = {
    ApiKey.DESCRIBE_ACLS: lambda *_: describe_acls.DescribeAclsResponse(
        error_code=_DISABLED, error_message="No Authorizer is configured on the broker"
    ),
    ApiKey.CREATE_ACLS: lambda _, request: create_acls.CreateAclsResponse(
        results=[create_acls.AclCreationResult(error_code=_DISABLED, error_message=_NO_AUTHORIZER)]
        * len(request.creations)
    ),
    ApiKey.DELETE_ACLS: lambda _, request: delete_acls.DeleteAclsResponse(
        filter_results=[
            delete_acls.DeleteAclsFilterResult(error_code=_DISABLED, error_message=_NO_AUTHORIZER)
        ]
        * len(request.filters)
    ),
    ApiKey.SASL_HANDSHAKE: lambda *_: sasl_handshake.SaslHandshakeResponse(error_code=_NO_SASL),
    ApiKey.SASL_AUTHENTICATE: lambda *_: sasl_authenticate.SaslAuthenticateResponse(
        error_code=_NO_SASL,
        error_message="SaslAuthenticate request received after successful authentication",
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: _new_token,
    ApiKey.RENEW_DELEGATION_TOKEN: lambda *_: renew_delegation_token.RenewDelegationTokenResponse(
        error_code=_NO_TOKENS, expiry_timestamp_ms=-1
    ),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (
        lambda *_: expire_delegation_token.ExpireDelegationTokenResponse(
            error_code=_NO_TOKENS, expiry_timestamp_ms=-1
        )
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        lambda *_: describe_delegation_token.DescribeDelegationTokenResponse(error_code=_NO_TOKENS)
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: lambda *_: share_group_heartbeat.ShareGroupHeartbeatResponse(
        error_code=_UNSUPPORTED
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: lambda _, request: share_group_describe.ShareGroupDescribeResponse(
        groups=[
            share_group_describe.DescribedGroup(error_code=_UNSUPPORTED, group_id=group_id)
            for group_id in request.group_ids
        ]
    ),
    ApiKey.SHARE_FETCH: lambda *_: share_fetch.ShareFetchResponse(error_code=_UNSUPPORTED),
    ApiKey.SHARE_ACKNOWLEDGE: lambda *_: share_acknowledge.ShareAcknowledgeResponse(
        error_code=_UNSUPPORTED
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        lambda _, request: describe_share_group_offsets.DescribeShareGroupOffsetsResponse(
            groups=[
                describe_share_group_offsets.DescribeShareGroupOffsetsResponseGroup(
                    group_id=one.group_id, error_code=_UNSUPPORTED
                )
                for one in request.groups
            ]
        )
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        lambda *_: alter_share_group_offsets.AlterShareGroupOffsetsResponse(
            error_code=_UNSUPPORTED, error_message=_UNSUPPORTED_MESSAGE
        )
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        lambda *_: delete_share_group_offsets.DeleteShareGroupOffsetsResponse(
            error_code=_UNSUPPORTED, error_message=_UNSUPPORTED_MESSAGE
        )
    ),
}
