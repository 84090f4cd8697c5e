"""UnregisterBroker, API key 64: forget a broker that will not come back (KIP-500)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import INT16, INT32, STRING, message, wire


@message(ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    """Which one."""

    broker_id: int = wire(INT32)


@message(ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """Whether it is forgotten."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
