"""SaslHandshake, API key 17: choose a SASL mechanism.

v0 continues with bare SASL tokens instead of requests.
v1 continues with SaslAuthenticate requests (KIP-152).
Old clients negotiate it wrongly, so it was never made flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, STRING, array, message, wire


@message(ApiKey.SASL_HANDSHAKE, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    """The mechanism the client wants."""

    mechanism: str = wire(STRING)


@message(ApiKey.SASL_HANDSHAKE, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    """The mechanisms the broker offers."""

    error_code: int = wire(INT16)
    mechanisms: list[str] = wire(array(STRING))
