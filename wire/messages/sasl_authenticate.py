"""SaslAuthenticate, API key 36: one step of a SASL exchange (KIP-152).

v1 returns when to authenticate again (KIP-368).
v2 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BYTES, INT16, INT64, STRING, message, wire


@message(ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """The client's token."""

    auth_bytes: bytes = wire(BYTES)


@message(ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The broker's token."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    auth_bytes: bytes = wire(BYTES)
    # authenticate again by then; 0: never (KIP-368)
    session_lifetime_ms: int = wire(INT64, "1+", ignorable=True)
