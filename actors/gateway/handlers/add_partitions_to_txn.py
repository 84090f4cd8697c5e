"""AddPartitionsToTxn 0-5: partitions that a transaction is about to write (KIP-98).

Up to v3 from producers, on the way to this broker's TransactionCoordinator; v3 is flexible. From
v4 on from brokers, several transactions at once, or to verify only (KIP-890): ours ask over links
instead, this serves whoever speaks Kafka's protocol. v5 may answer TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from typing import Any

from raylog.actors.coordination.requests import coordinator_error
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.coordinators import absent
from raylog.actors.gateway.handlers.forwarded import forward
from raylog.actors.names import TRANSACTION
from raylog.actors.transaction.api import ADD_PARTITIONS, AddPartitions, TopicPartitions
from raylog.actors.transaction.failures import topic_results
from raylog.wire.codec import encode
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
)

SEVERAL_SINCE = 4


def add_partitions_to_txn(context: RequestContext, request: AddPartitionsToTxnRequest) -> None:
    """Have the coordinator answer."""
    if context.version < SEVERAL_SINCE:
        forward(context, TRANSACTION, encode(request, context.version))
        return
    asked = [
        AddPartitions(
            one.transactional_id,
            one.producer_id,
            one.producer_epoch,
            one.verify_only,
            [TopicPartitions(topic.name, topic.partitions) for topic in one.topics],
        )
        for one in request.transactions
    ]
    link = context.gateway.coordinators.link(TRANSACTION)
    if link is None:
        cluster = context.gateway.cluster
        refused = [
            _refused(one, absent(cluster.image, cluster.broker_id, TRANSACTION, one[0]).code)
            for one in asked
        ]
        context.reply(_response(asked, refused))
        return

    def answered(codes: list[list[int]], _payload: Any) -> None:
        context.reply(_response(asked, codes))

    def lost(failure: Exception) -> None:
        code = coordinator_error(failure).code
        context.reply(_response(asked, [_refused(one, code) for one in asked]))

    link.request(ADD_PARTITIONS, asked, (), answered, lost)


def _refused(asked: AddPartitions, code: int) -> list[int]:
    return [int(code)] * asked.size()


def _response(asked: list[AddPartitions], codes: list[list[int]]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id, topic_results=topic_results(one.topics, each)
            )
            for one, each in zip(asked, codes, strict=True)
        ]
    )
