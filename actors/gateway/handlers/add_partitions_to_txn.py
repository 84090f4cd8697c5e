"""AddPartitionsToTxn 0-5: partitions to which a transaction will write (KIP-98).

Requests up to v3 come from producers and are forwarded to this broker's TransactionCoordinator; v3
is flexible. From v4 on they come from brokers, with several transactions or to verify only
(KIP-890). Raylog's brokers use links instead, so this serves other software that speaks Kafka's
protocol. v5 may answer TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from raylog.actors.coordination.requests import coordinator_error
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.coordinators import absent
from raylog.actors.gateway.handlers.forwarded import forward
from raylog.actors.names import TRANSACTION
from raylog.actors.runtime.base import Link
from raylog.actors.transaction.messages import ADD_PARTITIONS, AddPartitions, TopicPartitions
from raylog.actors.transaction.rules.failures import topic_results
from raylog.wire.codec import encode
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
)

SEVERAL_SINCE = 4
ASKED_AT_ONCE = 100
"""Maximum transactions in one request to the coordinator."""


def add_partitions_to_txn(context: RequestContext, request: AddPartitionsToTxnRequest) -> None:
    """Ask the coordinator."""
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

    _Asking(context, link, asked).begin()


class _Asking:
    """Asks the coordinator about some transactions at a time."""

    def __init__(self, context: RequestContext, link: Link, requests: list[AddPartitions]) -> None:
        self._context = context
        self._link = link
        self._asked = requests
        starts = range(0, max(len(requests), 1), ASKED_AT_ONCE)
        self._parts = [requests[start : start + ASKED_AT_ONCE] for start in starts]
        self._codes: list[list[list[int]]] = [[] for _ in self._parts]
        self._left = len(self._parts)

    def begin(self) -> None:
        """Send the requests; the last response completes the client's."""
        self._context.in_turns(self._each(), _nothing)

    def _each(self) -> Iterator[int]:
        for place, part in enumerate(self._parts):
            answered, lost = partial(self._answered, place), partial(self._lost, place)
            self._link.request(ADD_PARTITIONS, part, (), answered, lost)
            yield sum(10 + one.size() for one in part)

    def _answered(self, place: int, codes: list[list[int]], _payload: Any) -> None:
        self._codes[place] = codes
        self._left -= 1
        if not self._left:
            found = [one for codes in self._codes for one in codes]
            self._context.reply(_response(self._asked, found))

    def _lost(self, place: int, failure: Exception) -> None:
        code = coordinator_error(failure).code
        self._answered(place, [_refused(one, code) for one in self._parts[place]], None)


def _nothing() -> None:
    """Do nothing: the last response completes the client's."""


def _refused(request: AddPartitions, code: int) -> list[int]:
    return [int(code)] * request.size()


def _response(requests: list[AddPartitions], codes: list[list[int]]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id, topic_results=topic_results(one.topics, each)
            )
            for one, each in zip(requests, codes, strict=True)
        ]
    )
