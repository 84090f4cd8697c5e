"""DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from raylog.actors.coordination.rules.step import ClientCall
from raylog.actors.transaction.rules.failures import described_failed
from raylog.actors.transaction.rules.filtering import ListTransactionsPart
from raylog.actors.transaction.rules.ids import Ids
from raylog.actors.transaction.rules.state import Transaction
from raylog.actors.transaction.rules.step import TransactionStep
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from raylog.wire.messages.list_transactions import ListTransactionsResponse
from raylog.wire.messages.list_transactions import TransactionState as ListedTransaction


def describe(
    ids: Ids, step: TransactionStep, call: ClientCall[DescribeTransactionsRequest]
) -> None:
    """Answer DescribeTransactions 0; each id succeeds or fails independently."""
    found = [_described(ids, one) for one in call.request.transactional_ids]
    step.answer(call, DescribeTransactionsResponse(transaction_states=found))


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
    """Return a transaction's partitions; while it completes, those without a marker."""
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


def list_transactions(
    ids: Ids, step: TransactionStep, call: ClientCall[ListTransactionsPart]
) -> None:
    """Answer ListTransactions 0-2 for some of this shard's ids."""
    wanted, found = call.request.wanted, ids.transactions
    response = ListTransactionsResponse(
        transaction_states=[
            ListedTransaction(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.label,
            )
            for transactional_id in call.request.transactional_ids
            if (one := found.get(transactional_id)) is not None and wanted.passes(one, step.now_ms)
        ],
    )
    step.answer(call, response)
