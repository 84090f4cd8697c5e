"""DescribeDelegationToken, API key 41: describe tokens by owner (KIP-48).

v2 is flexible.
v3 returns the requester of a token (KIP-373).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BYTES, INT16, INT32, INT64, STRING, array, message, struct, wire


@struct
class DescribeDelegationTokenOwner:
    """One owner."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@message(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """The owners whose tokens to describe."""

    # None: all
    owners: list[DescribeDelegationTokenOwner] | None = wire(
        array(DescribeDelegationTokenOwner), nullable="0+"
    )


@struct
class DescribedDelegationTokenRenewer:
    """A principal that may renew a token."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@struct
class DescribedDelegationToken:
    """One token."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)
    token_requester_principal_type: str = wire(STRING, "3+")
    token_requester_principal_name: str = wire(STRING, "3+")
    issue_timestamp: int = wire(INT64)
    expiry_timestamp: int = wire(INT64)
    max_timestamp: int = wire(INT64)
    token_id: str = wire(STRING)
    hmac: bytes = wire(BYTES)
    renewers: list[DescribedDelegationTokenRenewer] = wire(array(DescribedDelegationTokenRenewer))


@message(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """The tokens."""

    error_code: int = wire(INT16)
    tokens: list[DescribedDelegationToken] = wire(array(DescribedDelegationToken))
    throttle_time_ms: int = wire(INT32)
