"""InitProducerId 0-5: an id for an idempotent producer (KIP-98).

v2 is flexible, v3 tells the id held so far (KIP-360), v4 and v5 allow more error codes.
Left out: transactional ids are answered COORDINATOR_NOT_AVAILABLE while no broker coordinates
transactions. Clients look for a coordinator first, and learn there that none is served.
"""

from __future__ import annotations

from raylog.actors.gateway.answers import attempt_async
from raylog.actors.gateway.context import RequestContext
from raylog.wire.errors import CoordinatorNotAvailable, InvalidRequest
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def init_producer_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Give out the next producer id, with epoch 0."""
    return await attempt_async(
        _next_id(context, request),
        lambda code, _message: InitProducerIdResponse(error_code=code, producer_epoch=-1),
    )


async def _next_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise InvalidRequest("a producer id and its epoch come together")
    if request.transactional_id == "":
        raise InvalidRequest("the transactional id is empty")
    if request.transactional_id is not None:
        raise CoordinatorNotAvailable("no broker coordinates transactions")
    return InitProducerIdResponse(producer_id=await context.gateway.producer_ids.take())
