"""CreateDelegationToken, API key 38: create a shared secret for an owner (KIP-48).

v2 is flexible.
v3 allows another owner than the requester (KIP-373).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BYTES, INT16, INT32, INT64, STRING, array, message, struct, wire


@struct
class CreatableRenewers:
    """A principal that may renew the token."""

    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@message(ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    """The token to create."""

    # None or empty: the requester (KIP-373)
    owner_principal_type: str | None = wire(STRING, "3+", nullable="3+")
    owner_principal_name: str | None = wire(STRING, "3+", nullable="3+")
    renewers: list[CreatableRenewers] = wire(array(CreatableRenewers))
    max_lifetime_ms: int = wire(INT64)  # -1: the broker's maximum


@message(ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token."""

    error_code: int = wire(INT16)
    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)
    token_requester_principal_type: str = wire(STRING, "3+")
    token_requester_principal_name: str = wire(STRING, "3+")
    issue_timestamp_ms: int = wire(INT64)
    expiry_timestamp_ms: int = wire(INT64)
    max_timestamp_ms: int = wire(INT64)
    token_id: str = wire(STRING)
    hmac: bytes = wire(BYTES)
    throttle_time_ms: int = wire(INT32)
