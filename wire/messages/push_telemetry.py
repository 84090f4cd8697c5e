"""PushTelemetry, API key 72: push a client's metrics (KIP-714)."""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, BYTES, INT8, INT16, INT32, UUID, message, wire


@message(ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+")
class PushTelemetryRequest:
    """The metrics."""

    client_instance_id: bytes = wire(UUID)
    subscription_id: int = wire(INT32)
    terminating: bool = wire(BOOL)  # the last push
    compression_type: int = wire(INT8)  # as in record batches
    metrics: bytes = wire(BYTES)  # OpenTelemetry MetricsData, perhaps compressed


@message(ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+")
class PushTelemetryResponse:
    """The outcome."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
