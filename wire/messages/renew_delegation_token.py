"""RenewDelegationToken, API key 39: extend the life of a token (KIP-48).

v2 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BYTES, INT16, INT32, INT64, message, wire


@message(ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    """The token."""

    hmac: bytes = wire(BYTES)
    renew_period_ms: int = wire(INT64)


@message(ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    """The new expiry time."""

    error_code: int = wire(INT16)
    expiry_timestamp_ms: int = wire(INT64)
    throttle_time_ms: int = wire(INT32)
