"""GetTelemetrySubscriptions, API key 71: the metrics that a client should push (KIP-714)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT8, INT16, INT32, STRING, UUID, array, message, wire


@message(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    """The client."""

    client_instance_id: bytes = wire(UUID)  # zero at first


@message(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    """The metrics to push."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    client_instance_id: bytes = wire(UUID)  # assigned at the client's first request
    subscription_id: int = wire(INT32)
    accepted_compression_types: list[int] = wire(array(INT8))  # as in record batches, best first
    push_interval_ms: int = wire(INT32)
    telemetry_max_bytes: int = wire(INT32)
    delta_temporality: bool = wire(BOOL)  # counters are deltas, not sums
    # prefixes of names; none: nothing; "": everything
    requested_metrics: list[str] = wire(array(STRING))
