"""DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.coordination.step import Asked
from raylog.actors.patterns import BadPattern, Pattern, compiled
from raylog.actors.transaction.failures import described_failed
from raylog.actors.transaction.ids import Ids
from raylog.actors.transaction.state import LABELS, State, Transaction
from raylog.actors.transaction.step import TransactionStep
from raylog.wire.errors import ErrorCode, InvalidRegularExpression
from raylog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from raylog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from raylog.wire.messages.list_transactions import TransactionState as ListedTransaction


def describe(ids: Ids, step: TransactionStep, asked: Asked[DescribeTransactionsRequest]) -> None:
    """Answer DescribeTransactions 0; each id succeeds or fails on its own."""
    found = [_described(ids, one) for one in asked.request.transactional_ids]
    step.answer(asked, DescribeTransactionsResponse(transaction_states=found))


def _described(ids: Ids, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return described_failed(transactional_id, int(ErrorCode.INVALID_REQUEST))
    found = ids.transactions.get(transactional_id)
    if found is None:
        return described_failed(transactional_id, int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=_remaining(ids, found),
    )


def _remaining(ids: Ids, found: Transaction) -> list[TopicData]:
    """The partitions of a transaction; while it is being completed, those without their marker."""
    unmarked = ids.unmarked.get(found.transactional_id)
    topics = [
        TopicData(
            topic=topic,
            partitions=sorted(
                one for one in partitions if unmarked is None or (topic, one) in unmarked
            ),
        )
        for topic, partitions in found.partitions.items()
    ]
    return [one for one in topics if one.partitions]


@dataclass(frozen=True, slots=True)
class Filter:
    """What ListTransactions asks for."""

    request: ListTransactionsRequest
    states: frozenset[State]
    producer_ids: frozenset[int]
    pattern: Pattern | None

    def passes(self, found: Transaction, now_ms: int) -> bool:
        """Whether an id is listed; one that never had a transaction is older than any age."""
        request = self.request
        if request.state_filters and found.state not in self.states:
            return False
        if self.producer_ids and found.producer_id not in self.producer_ids:
            return False
        if request.duration_filter >= 0 and now_ms - found.start_ms <= request.duration_filter:
            return False
        return self.pattern is None or self.pattern.fullmatch(found.transactional_id) is not None


def filter_of(request: ListTransactionsRequest) -> Filter:
    """The filter of a request; raises InvalidRegularExpression."""
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = compiled(request.transactional_id_pattern)
        except BadPattern as wrong:
            raise InvalidRegularExpression(str(wrong)) from wrong
    states = frozenset(LABELS[name] for name in request.state_filters if name in LABELS)
    return Filter(request, states, frozenset(request.producer_id_filters), pattern)


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    """States that are asked for and do not exist."""
    return [name for name in request.state_filters if name not in LABELS]


def list_transactions(
    ids: Ids, step: TransactionStep, asked: Asked[ListTransactionsRequest]
) -> None:
    """Answer ListTransactions 0-2 for the ids of this shard."""
    wanted = filter_of(asked.request)
    response = ListTransactionsResponse(
        unknown_state_filters=unknown_states(asked.request),
        transaction_states=[
            ListedTransaction(
                transactional_id=found.transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.label,
            )
            for found in ids.transactions.values()
            if wanted.passes(found, step.now_ms)
        ],
    )
    step.answer(asked, response)
