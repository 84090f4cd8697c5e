"""DescribeProducers 0: who writes to a partition, with idempotence or in transactions (KIP-664).

Followers answer as well: a producer that only one replica remembers is what such questions find.
"""

from __future__ import annotations

from collections.abc import Iterator

from raylog.actors.gateway.answers import REPLICA_TIMEOUT_MS, PartitionAnswers, Question
from raylog.actors.gateway.context import RequestContext
from raylog.actors.replica.api import PRODUCERS
from raylog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def describe_producers(context: RequestContext, request: DescribeProducersRequest) -> None:
    """Ask the replica of each partition here, once; each succeeds or fails on its own."""
    response = DescribeProducersResponse()
    answers = PartitionAnswers(context, response, REPLICA_TIMEOUT_MS)

    def each() -> Iterator[int]:
        told = set()
        for topic in request.topics:
            answered = TopicResponse(name=topic.name)
            response.topics.append(answered)
            yield 1
            for index in topic.partition_indexes:
                if (topic.name, index) not in told:
                    told.add((topic.name, index))
                    answer = PartitionResponse(partition_index=index)
                    answered.partitions.append(answer)
                    _ask(context, answers, topic.name, answer)
                yield 1

    context.in_turns(each(), answers.done)


def _ask(
    context: RequestContext, answers: PartitionAnswers, name: str, answer: PartitionResponse
) -> None:
    def question() -> Question:
        cluster = context.gateway.cluster
        topic = cluster.topic_named(name)
        route = cluster.any_route(topic, answer.partition_index)
        return Question(route.link, PRODUCERS, (topic.topic_id, answer.partition_index))

    def found(producers: list[list[int]]) -> None:
        answer.active_producers = [_state(*producer) for producer in producers]

    answers.ask(answer, question, found)


def _state(
    producer_id: int, epoch: int, sequence: int, seen_ms: int, coordinator_epoch: int, start: int
) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=sequence,
        last_timestamp=seen_ms,
        coordinator_epoch=coordinator_epoch,
        current_txn_start_offset=start,
    )
