"""UnregisterBroker 0: forget a broker that will not come back (KIP-631).

Its replicas stay assigned to it until they are reassigned. A broker that runs registers again.
"""

from __future__ import annotations

from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.topic_changes import seen
from raylog.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

TIMEOUT_MS = 30_000
"""The request has no deadline of its own."""


async def unregister_broker(
    context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Have the controller forget it; raises BrokerIdNotRegistered.

    This gateway has forgotten it when this returns, if in time.
    """
    gateway, broker_id = context.gateway, request.broker_id
    known = gateway.cluster.image.brokers.get(broker_id)
    await gateway.controller.ask("unregister_broker", broker_id, TIMEOUT_MS)

    def is_gone() -> bool:
        now = gateway.cluster.image.brokers.get(broker_id)
        return now is None or known is None or now.broker_epoch != known.broker_epoch

    await seen(gateway, is_gone, TIMEOUT_MS)
    return UnregisterBrokerResponse(error_message=None)
