"""UnregisterBroker, API key 64: remove the registration of a broker (KIP-500)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, message, wire


@message(ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    """The broker to unregister."""

    broker_id: int = wire(INT32)


@message(ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """The outcome."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
