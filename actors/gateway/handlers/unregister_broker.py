"""UnregisterBroker 0: removes the registration of a broker that will not come back (KIP-631).

Its replicas stay assigned to it until they are reassigned. A running broker registers again.
"""

from __future__ import annotations

from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.topic_changes import seen
from raylog.actors.remote import Controller
from raylog.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

TIMEOUT_MS = 30_000
"""For requests without their own deadline."""


async def unregister_broker(
    context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Unregister the broker through the controller; raises BrokerIdNotRegistered.

    Returns when this gateway no longer knows the broker, or after a timeout.
    """
    gateway, broker_id = context.gateway, request.broker_id
    known = gateway.cluster.image.brokers.get(broker_id)
    await gateway.controller.ask(Controller.unregister_broker, broker_id, timeout_ms=TIMEOUT_MS)

    def is_gone() -> bool:
        now = gateway.cluster.image.brokers.get(broker_id)
        return now is None or known is None or now.broker_epoch != known.broker_epoch

    await seen(gateway, is_gone, TIMEOUT_MS)
    return UnregisterBrokerResponse(error_message=None)
