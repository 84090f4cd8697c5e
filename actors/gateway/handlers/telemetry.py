"""GetTelemetrySubscriptions 0 and PushTelemetry 0: client metrics (KIP-714).

ApiVersions announces these while there is any subscription. A client without a matching one asks
again every five minutes. Apache Kafka announces them while it has a plug-in that accepts the
metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.actors.failures import error_code_of
from raylog.actors.gateway.telemetry.instance import ACCEPTED, TELEMETRY_BYTES_MAX
from raylog.actors.gateway.telemetry.intake import decoded
from raylog.wire.errors import ErrorCode, InvalidRequest, KafkaError
from raylog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from raylog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from raylog.wire.uuids import ZERO_UUID, random_uuid

if TYPE_CHECKING:
    from raylog.actors.gateway.context import RequestContext

_ONE_UUID = (1).to_bytes(16, "big")
"""Reserved by Kafka for its metadata topic."""


def get_telemetry_subscriptions(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Tell a client what to push; a client without an id gets one."""
    gateway = context.gateway
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = random_uuid(gateway.runtime.random)
    instance = gateway.telemetry.instance(context, instance_id)
    instance.ask(gateway.runtime.monotonic_ms())
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.asked.subscription_id,
        accepted_compression_types=[*map(int, ACCEPTED)],
        push_interval_ms=instance.asked.push_interval_ms,
        telemetry_max_bytes=TELEMETRY_BYTES_MAX,
        delta_temporality=True,
        requested_metrics=[*instance.asked.metrics],
    )


async def push_telemetry(
    context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    """Accept a client's metrics."""
    pushes = context.gateway.telemetry.pushes
    try:
        await _take(context, request)
    except KafkaError as failure:
        pushes[error_code_of(failure).name] += 1
        raise
    pushes[ErrorCode.NONE.name] += 1
    return PushTelemetryResponse()


async def _take(context: RequestContext, request: PushTelemetryRequest) -> None:
    gateway = context.gateway
    if request.client_instance_id in (ZERO_UUID, _ONE_UUID):
        raise InvalidRequest("the client has no instance id")
    instance = gateway.telemetry.instance(context, request.client_instance_id)
    instance.push(request, gateway.runtime.monotonic_ms())
    if not request.metrics:
        return
    async with gateway.telemetry_turn:
        points = await gateway.runtime.run_blocking(
            decoded, request.compression_type, bytes(request.metrics)
        )
    gateway.telemetry.bytes += len(request.metrics)
    gateway.telemetry.received.take(
        instance.instance_id,
        context.header.client_id or "",
        points,
        gateway.runtime.monotonic_ms(),
        instance.asked.push_interval_ms,
    )
