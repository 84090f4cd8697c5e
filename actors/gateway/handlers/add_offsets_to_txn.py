"""AddOffsetsToTxn 0-4: offsets of a group will be committed in a transaction (KIP-98).

v3 is flexible, v4 may answer TRANSACTION_ABORTABLE (KIP-890). The request is forwarded to this
broker's TransactionCoordinator. If no group has been used yet, `__consumer_offsets` is created,
since one of its partitions must be added.
"""

from __future__ import annotations

from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.handlers.forwarded import forward
from raylog.actors.gateway.topic_changes import create_internal
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTION
from raylog.wire.codec import encode
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

CREATE_TIMEOUT_MS = 5_000


def add_offsets_to_txn(context: RequestContext, request: AddOffsetsToTxnRequest) -> None:
    """Forward the request to the coordinator."""
    body = encode(request, context.version)
    gateway = context.gateway
    if gateway.cluster.image.topic(OFFSETS_TOPIC) is None:
        gateway.runtime.start(_when_made(context, body), f"{OFFSETS_TOPIC} for {context}")
    else:
        forward(context, TRANSACTION, body)


async def _when_made(context: RequestContext, body: bytes) -> None:
    await create_internal(context.gateway, OFFSETS_TOPIC, CREATE_TIMEOUT_MS)
    forward(context, TRANSACTION, body)
