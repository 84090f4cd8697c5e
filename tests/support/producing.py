"""Words for what producers of the gateway world ask and get."""

from __future__ import annotations

from typing import Any

from raylog.actors.replica.api import PRODUCE, ProduceAnswer
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def produce(
    *partitions: tuple[int, bytes | None],
    topic: str = "t",
    by_id: bytes = bytes(16),
    acks: int = -1,
    timeout_ms: int = 1_000,
) -> ProduceRequest:
    """A request with (partition, batch) pairs."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in partitions]
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, topic_id=by_id, partition_data=data)],
    )


def appended(request: Any) -> list[ProduceAnswer]:
    """A replica's answer: partition i had 40 + i records, and begins at 7."""
    assert request.kind == PRODUCE
    return [ProduceAnswer(40 + part.partition, -1, 7) for part in request.header[2]]


def codes(answer: Any) -> list[ErrorCode]:
    """Each partition's error."""
    return [
        ErrorCode(part.error_code)
        for topic in answer.responses
        for part in topic.partition_responses
    ]
