"""InitProducerId 0-6: an id for an idempotent (KIP-98) or a transactional producer.

v2 is flexible, v3 carries the current id (KIP-360), v4 and v5 allow more error codes, v6 has
two-phase commit (KIP-939) and is served only with `transaction.two.phase.commit.enable`. Requests
with a transactional id go to this broker's TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Awaitable

from raylog.actors.gateway.answers import attempt_async
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.handlers.forwarded import forward
from raylog.actors.names import TRANSACTION
from raylog.wire.codec import encode
from raylog.wire.errors import InvalidRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def init_producer_id(
    context: RequestContext, request: InitProducerIdRequest
) -> Awaitable[InitProducerIdResponse] | None:
    """Assign the next producer id with epoch 0, or forward the request to the coordinator."""
    if request.transactional_id is not None:
        forward(context, TRANSACTION, encode(request, context.version))
        return None
    return attempt_async(
        _next_id(context, request),
        lambda code, _message: InitProducerIdResponse(error_code=code, producer_epoch=-1),
    )


async def _next_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise InvalidRequest("a producer id and its epoch come together")
    return InitProducerIdResponse(producer_id=await context.gateway.producer_ids.take())
