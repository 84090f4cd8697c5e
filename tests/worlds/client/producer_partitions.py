"""Partitions in memory for the client's producer; they check sequences as brokers do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from raylog.wire.records import decode_batch, read_header
from tests.worlds.client.cluster import SILENT, FakeCluster, topic_id

Answer = Callable[[int, str, int, bytes], PartitionProduceResponse | object]


@dataclass
class Logs:
    """Partitions that check sequences as brokers do."""

    cluster: FakeCluster
    values: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    expected: dict[tuple[str, int, int, int], int] = field(default_factory=dict)
    newest: dict[tuple[str, int, int, int], deque[tuple[int, int]]] = field(default_factory=dict)
    """First and last sequences of the last batches, to recognize repeats."""
    epochs: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """The newest epoch of each producer in each partition."""
    refuse: list[Answer] = field(default_factory=list)
    """Called one per batch, before anything else; None accepts the batch."""
    producer_ids: int = 0

    def __post_init__(self) -> None:
        self.cluster.handlers[ApiKey.PRODUCE] = self.produce
        self.cluster.handlers[ApiKey.INIT_PRODUCER_ID] = self.init_producer_id

    def init_producer_id(self, broker: int, request: object) -> InitProducerIdResponse:
        assert isinstance(request, InitProducerIdRequest)
        assert request.transactional_id is None
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)

    def produce(self, broker: int, request: object) -> object:
        assert isinstance(request, ProduceRequest)
        response = ProduceResponse()
        for topic in request.topic_data:
            name = topic.name or {topic_id(t): t for t in self.cluster.topics}[topic.topic_id]
            answers = []
            for data in topic.partition_data:
                assert data.records is not None
                answer = self.append(broker, name, data.index, bytes(data.records))  # type: ignore[arg-type]  # decoded: a view
                if not isinstance(answer, PartitionProduceResponse):
                    return answer
                answers.append(answer)
            response.responses.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                )
            )
        return response if request.acks else SILENT

    def append(self, broker: int, topic: str, partition: int, batch: bytes) -> object:
        """Append one batch, unless `refuse`, leadership or its sequence forbids it."""
        refusal = self.refuse.pop(0)(broker, topic, partition, batch) if self.refuse else None
        if refusal is not None:
            return refusal
        if self.cluster.topics[topic][partition] != broker:
            return refused(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.write(topic, partition, batch)

    def has(self, topic: str, partition: int, batch: bytes) -> bool:
        """Return whether a batch repeats one that was written."""
        header = read_header(batch)
        key = (topic, partition, header.producer_id, header.producer_epoch)
        return (header.base_sequence, header.last_sequence) in self.newest.get(key, ())

    def write(self, topic: str, partition: int, batch: bytes) -> PartitionProduceResponse:
        """Write a batch unless its epoch or sequence is wrong."""
        header = read_header(batch)
        if header.producer_id >= 0:
            key = (topic, partition, header.producer_id, header.producer_epoch)
            first = 0 if key[:3] in self.epochs else header.base_sequence
            expected = self.expected.get(key, first)
            if header.producer_epoch < self.epochs.get(key[:3], 0):
                return refused(partition, ErrorCode.INVALID_PRODUCER_EPOCH)
            self.epochs[key[:3]] = header.producer_epoch
            newest = self.newest.setdefault(key, deque(maxlen=5))
            if (header.base_sequence, header.last_sequence) in newest:
                return refused(partition, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
            if header.base_sequence != expected:
                return refused(partition, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            self.expected[key] = header.last_sequence + 1
            newest.append((header.base_sequence, header.last_sequence))
        log = self.values.setdefault((topic, partition), [])
        base_offset = len(log)
        log += (record.value or b"" for record in decode_batch(batch))
        return PartitionProduceResponse(index=partition, base_offset=base_offset)


def refused(partition: int, code: ErrorCode, **more: object) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition,
        error_code=code,
        base_offset=-1,
        **more,  # type: ignore[arg-type]  # fields of the message
    )
