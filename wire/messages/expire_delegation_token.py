"""ExpireDelegationToken, API key 40: change the expiry of a token (KIP-48).

v2 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BYTES, INT16, INT32, INT64, message, wire


@message(ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    """The token."""

    hmac: bytes = wire(BYTES)
    expiry_time_period_ms: int = wire(INT64)


@message(ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """The new expiry time."""

    error_code: int = wire(INT16)
    expiry_timestamp_ms: int = wire(INT64)
    throttle_time_ms: int = wire(INT32)
