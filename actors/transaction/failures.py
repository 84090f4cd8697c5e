"""How each API says that a request failed, in the codes that its versions know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raylog.actors.transaction.api import AddPartitions, TopicPartitions
from raylog.actors.transaction.filtering import ListTransactionsPart
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
    """The response that says of everything the request asks that it failed."""
    code = failure.code
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE.get(type(request), 0):
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return _FAILED[type(request)](request, int(code))


def added(topics: list[TopicPartitions], codes: list[int]) -> AddPartitionsToTxnResponse:
    """AddPartitionsToTxn up to version 3; the codes in the order of the partitions."""
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topic_results(topics, codes))


def topic_results(
    topics: list[TopicPartitions], codes: list[int]
) -> list[AddPartitionsToTxnTopicResult]:
    """What became of each partition; the codes in the order of the partitions."""
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
    """The partitions of a request up to version 3."""
    return [TopicPartitions(topic.name, topic.partitions) for topic in request.v3_and_below_topics]


def described_failed(transactional_id: str, code: int) -> TransactionState:
    """DescribeTransactions of one id that failed."""
    return TransactionState(error_code=code, transactional_id=transactional_id)


def _init(_: InitProducerIdRequest, code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


def _add(request: AddPartitions, code: int) -> list[int]:
    return [code] * request.size()


def _add_partitions(request: AddPartitionsToTxnRequest, code: int) -> AddPartitionsToTxnResponse:
    topics = asked_topics(request)
    return added(topics, [code] * sum(len(topic.partitions) for topic in topics))


def _add_offsets(_: AddOffsetsToTxnRequest, code: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)


def _end(_: EndTxnRequest, code: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


def _describe(request: DescribeTransactionsRequest, code: int) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            described_failed(transactional_id, code)
            for transactional_id in request.transactional_ids
        ]
    )


def _list(_: Any, code: int) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)


_FAILED: dict[type, Callable[[Any, int], Any]] = {
    InitProducerIdRequest: _init,
    AddPartitions: _add,
    AddPartitionsToTxnRequest: _add_partitions,
    AddOffsetsToTxnRequest: _add_offsets,
    EndTxnRequest: _end,
    DescribeTransactionsRequest: _describe,
    ListTransactionsRequest: _list,
    ListTransactionsPart: _list,
}
