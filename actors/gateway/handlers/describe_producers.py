"""DescribeProducers 0: the idempotent and transactional producers of a partition (KIP-664).

Followers answer as well, because such a request may look for producers that only one replica has.
"""

from __future__ import annotations

from collections.abc import Iterator

from raylog.actors.gateway.answers import REPLICA_TIMEOUT_MS, PartitionAnswers, Question
from raylog.actors.gateway.context import RequestContext
from raylog.actors.replica.messages import PRODUCERS, unpack_producers
from raylog.storage.producers import ProducerInfo
from raylog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def describe_producers(context: RequestContext, request: DescribeProducersRequest) -> None:
    """Ask the local replica of each partition once; each succeeds or fails independently."""
    response = DescribeProducersResponse()
    answers = PartitionAnswers(context, response, REPLICA_TIMEOUT_MS)

    def each() -> Iterator[int]:
        seen = set()
        for topic in request.topics:
            answered = TopicResponse(name=topic.name)
            response.topics.append(answered)
            yield 1
            for index in topic.partition_indexes:
                if (topic.name, index) not in seen:
                    seen.add((topic.name, index))
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

    def found(packed: bytes) -> Iterator[int]:
        producers = []
        for one in unpack_producers(packed):
            producers.append(_state(one))
            yield 1
        answer.active_producers = producers

    answers.ask(answer, question, found)


def _state(found: ProducerInfo) -> ProducerState:
    return ProducerState(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        last_sequence=found.last_sequence,
        last_timestamp=found.last_seen_ms,
        coordinator_epoch=found.coordinator_epoch,
        current_txn_start_offset=found.transaction_start_offset,
    )
