"""Each API's response to a request that failed, in the error codes that its version knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from raylog.actors.transaction.messages import AddPartitions, TopicPartitions
from raylog.actors.transaction.rules.filtering import ListTransactionsPart
from raylog.wire.errors import ErrorCode, KafkaError
from raylog.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from raylog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from raylog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_FENCED_SINCE = {
    InitProducerIdRequest: 4,
    AddPartitionsToTxnRequest: 2,
    AddOffsetsToTxnRequest: 2,
    EndTxnRequest: 2,
}
"""Versions that know PRODUCER_FENCED (KIP-588)."""


def failed(request: Any, version: int, failure: KafkaError) -> Any:
    """Build a response that reports the failure for everything in the request."""
    code = failure.code
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE.get(type(request), 0):
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return _FAILED[type(request)](request, int(code))


def added(topics: list[TopicPartitions], codes: list[int]) -> AddPartitionsToTxnResponse:
    """Build the AddPartitionsToTxn response up to version 3; codes are in partition order."""
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topic_results(topics, codes))


def topic_results(
    topics: list[TopicPartitions], codes: Iterable[int]
) -> list[AddPartitionsToTxnTopicResult]:
    """Build the result of each partition; codes are in partition order."""
    left = iter(codes)
    return [
        AddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=next(left)
                )
                for index in partitions
            ],
        )
        for name, partitions in topics
    ]


def asked_topics(request: AddPartitionsToTxnRequest) -> list[TopicPartitions]:
    """Return the partitions of a request of version 0-3."""
    return [TopicPartitions(topic.name, topic.partitions) for topic in request.v3_and_below_topics]


def described_failed(transactional_id: str, code: int) -> TransactionState:
    """Build the DescribeTransactions result for an id that failed."""
    return TransactionState(error_code=code, transactional_id=transactional_id)


_FAILED: dict[type, Callable[[Any, int], Any]] = {
    InitProducerIdRequest: lambda _, code: InitProducerIdResponse(
        error_code=code, producer_epoch=-1
    ),
    AddPartitions: lambda request, code: [code] * request.size(),
    AddPartitionsToTxnRequest: lambda request, code: AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=topic_results(asked_topics(request), repeat(code))
    ),
    AddOffsetsToTxnRequest: lambda _, code: AddOffsetsToTxnResponse(error_code=code),
    EndTxnRequest: lambda _, code: EndTxnResponse(error_code=code),
    DescribeTransactionsRequest: lambda request, code: DescribeTransactionsResponse(
        transaction_states=[described_failed(one, code) for one in request.transactional_ids]
    ),
    ListTransactionsRequest: lambda _, code: ListTransactionsResponse(error_code=code),
    ListTransactionsPart: lambda _, code: ListTransactionsResponse(error_code=code),
}
