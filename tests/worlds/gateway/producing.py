"""Helpers for requests and responses of producers in the gateway world."""

from __future__ import annotations

from typing import Any

from raylog.actors.replica.messages import PRODUCE, ProduceAnswer
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def produce(
    *partitions: tuple[int, bytes | None],
    topic: str = "t",
    by_id: bytes = bytes(16),
    acks: int = -1,
    timeout_ms: int = 1_000,
) -> ProduceRequest:
    """Return a request with (partition, batch) pairs."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in partitions]
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, topic_id=by_id, partition_data=data)],
    )


def appended(request: Any) -> list[ProduceAnswer]:
    """Return a replica's answer: partition i appended 40 + i records and starts at offset 7."""
    assert request.kind == PRODUCE
    return [ProduceAnswer(40 + part.partition, -1, 7) for part in request.header[2]]


def codes(answer: Any) -> list[ErrorCode]:
    """Return the error of each partition."""
    return [
        ErrorCode(part.error_code)
        for topic in answer.responses
        for part in topic.partition_responses
    ]
