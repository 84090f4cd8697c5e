"""A transaction coordinator in memory, for the client's producer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from raylog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from raylog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from raylog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.produce import ProduceRequest
from raylog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.worlds.client.cluster import LOST, FakeCluster, topic_id
from tests.worlds.client.producer_partitions import Logs

TRANSACTIONAL_ID = "copier"
PRODUCER_ID = 7
Fate = ErrorCode | object
"""The fate of a request: refused with an error, or (LOST) carried out without a response."""


@dataclass
class Transactions:
    """Coordinates one transactional id on broker 2, and every group on broker 1."""

    cluster: FakeCluster
    logs: Logs = field(init=False)
    epoch: int = -1
    partitions: set[tuple[str, int]] = field(default_factory=set)
    """The partitions of the open transaction."""
    groups: set[str] = field(default_factory=set)
    pending: dict[tuple[str, str, int], int] = field(default_factory=dict)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """(group, topic, partition) to offset."""
    ends: list[tuple[bool, list[tuple[str, int]]]] = field(default_factory=list)
    """Whether it committed, and its partitions, of each ended transaction."""
    values: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    """Values of committed transactions by partition."""
    decided: dict[tuple[str, int], int] = field(default_factory=dict)
    """How many records by partition belong to ended transactions."""
    fates: dict[ApiKey, list[Fate]] = field(default_factory=dict)
    """The fates of the next requests, by API."""
    coordinator: int = 2

    def __post_init__(self) -> None:
        self.logs = Logs(self.cluster)
        handlers: dict[ApiKey, Callable[[object], object]] = {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self.commit_offsets,
            ApiKey.END_TXN: self.end,
        }
        for key, handler in handlers.items():
            self.cluster.handlers[key] = self._fated(key, handler)
        self.cluster.handlers[ApiKey.FIND_COORDINATOR] = self.find
        self.cluster.handlers[ApiKey.PRODUCE] = self.produce

    @property
    def is_version_2(self) -> bool:
        return self.cluster.features.get("transaction.version", 0) >= 2

    def find(self, broker: int, request: object) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        node_id = self.coordinator if request.key_type == 1 else 1
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node_id, host="fake", port=9000 + node_id)
                for key in request.coordinator_keys
            ]
        )

    def init_producer_id(self, request: object) -> InitProducerIdResponse:
        assert isinstance(request, InitProducerIdRequest)
        assert request.transactional_id == TRANSACTIONAL_ID
        assert request.producer_epoch in (-1, self.epoch)
        self.epoch += 1
        return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def add_partitions(self, request: object) -> AddPartitionsToTxnResponse:
        assert isinstance(request, AddPartitionsToTxnRequest)
        assert request.v3_and_below_producer_epoch == self.epoch
        response = AddPartitionsToTxnResponse()
        for topic in request.v3_and_below_topics:
            self.partitions |= {(topic.name, index) for index in topic.partitions}
            results = [
                AddPartitionsToTxnPartitionResult(partition_index=i) for i in topic.partitions
            ]
            response.results_by_topic_v3_and_below.append(
                AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
            )
        return response

    def produce(self, broker: int, request: object) -> object:
        """Append batches; version 2 adds their partitions, version 1 asserts they were added."""
        assert isinstance(request, ProduceRequest)
        assert request.transactional_id == TRANSACTIONAL_ID
        names = {topic_id(name): name for name in self.cluster.topics}
        written = {
            (topic.name or names[topic.topic_id], data.index)
            for topic in request.topic_data
            for data in topic.partition_data
        }
        if self.is_version_2:
            self.partitions |= written
        assert written <= self.partitions
        return self.logs.produce(broker, request)

    def add_offsets(self, request: object) -> AddOffsetsToTxnResponse:
        assert isinstance(request, AddOffsetsToTxnRequest)
        self.groups.add(request.group_id)
        return AddOffsetsToTxnResponse()

    def commit_offsets(self, request: object) -> TxnOffsetCommitResponse:
        assert isinstance(request, TxnOffsetCommitRequest)
        assert request.producer_epoch == self.epoch
        if self.is_version_2:
            self.groups.add(request.group_id)
        assert request.group_id in self.groups
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            for one in topic.partitions:
                key = (request.group_id, topic.name, one.partition_index)
                self.pending[key] = one.committed_offset
            answers = [
                TxnOffsetCommitResponsePartition(partition_index=one.partition_index)
                for one in topic.partitions
            ]
            response.topics.append(
                TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)
            )
        return response

    def has_ended(self, request: EndTxnRequest) -> bool:
        """Whether the transaction that a request ends has ended."""
        if self.is_version_2:
            return request.producer_epoch == self.epoch - 1
        return not self.partitions and not self.groups and bool(self.ends)

    def end(self, request: object) -> EndTxnResponse:
        """End the transaction, or repeat the answer if it has ended."""
        assert isinstance(request, EndTxnRequest)
        is_repeat = self.has_ended(request)
        assert is_repeat or request.producer_epoch == self.epoch
        if not is_repeat:
            if request.committed:
                self.committed |= self.pending
            for key, written in self.logs.values.items():
                if request.committed:
                    values = written[self.decided.get(key, 0) :]
                    self.values.setdefault(key, []).extend(values)
                self.decided[key] = len(written)
            self.ends.append((request.committed, sorted(self.partitions)))
            self.pending.clear()
            self.partitions.clear()
            self.groups.clear()
            self.epoch += self.is_version_2
        if not self.is_version_2:
            return EndTxnResponse()
        return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _fated(
        self, key: ApiKey, handler: Callable[[object], object]
    ) -> Callable[[int, object], object]:
        def handle(broker: int, request: object) -> object:
            fates = self.fates.get(key)
            fate = fates.pop(0) if fates else None
            if fate is ErrorCode.TRANSACTION_ABORTABLE and isinstance(request, EndTxnRequest):
                fate = None if self.has_ended(request) else fate  # what has ended cannot be aborted
            if isinstance(fate, ErrorCode):
                return _refusal(request, fate)
            response = handler(request)
            return LOST if fate is LOST else response

        return handle


def _refusal(request: object, code: ErrorCode) -> object:
    match request:
        case InitProducerIdRequest():
            return InitProducerIdResponse(error_code=code)
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(error_code=code)
        case EndTxnRequest():
            return EndTxnResponse(error_code=code)
        case AddPartitionsToTxnRequest():
            result = AddPartitionsToTxnPartitionResult(partition_error_code=code)
            topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
        case _:
            answer = TxnOffsetCommitResponsePartition(error_code=code)
            of_topic = TxnOffsetCommitResponseTopic(name="t", partitions=[answer])
            return TxnOffsetCommitResponse(topics=[of_topic])
