"""CreateTopics 2-7: with a number of partitions or a manual assignment.

v4 accepts -1 for the defaults (KIP-464), v5 returns the topic's settings (KIP-525), v7 its id
(KIP-516). The response is sent when the topic is served here; Kafka does not wait for that. Left
out: quotas on changes (KIP-599).
"""

from __future__ import annotations

from collections.abc import Iterator

from raylog.actors.controller.messages import (
    PARTITIONS_PER_REQUEST_MAX,
    TOPICS_PER_REQUEST_MAX,
    CreateTopics,
    NewTopic,
    TopicOutcome,
)
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.parts import in_parts
from raylog.actors.gateway.topic_changes import create_topics as change
from raylog.wire.errors import PolicyViolation
from raylog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def create_topics(
    context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create topics through the controller; each succeeds or fails independently."""
    room = PARTITIONS_PER_REQUEST_MAX

    async def ask(some: list[NewTopic]) -> list[TopicOutcome]:
        nonlocal room
        asked = CreateTopics(some, request.validate_only, room)
        outcomes = await change(context.gateway, asked, request.timeout_ms)
        room -= sum(one.num_partitions for one in outcomes if not one.error)
        return outcomes

    topics: list[NewTopic] = []

    def read() -> Iterator[int]:
        for topic in request.topics:
            topics.append(_new(topic))
            yield 1 + len(topic.configs) + len(topic.assignments)

    if len(request.topics) > TOPICS_PER_REQUEST_MAX:
        return await _too_many(context, request)
    await context.turns(read())
    outcomes = await in_parts(topics, ask, lambda topic: topic.name)
    response = CreateTopicsResponse(topics=[])

    def tell() -> Iterator[int]:
        for outcome in outcomes:
            response.topics.append(_result(outcome))
            yield 1 + len(outcome.configs)

    await context.turns(tell())
    return response


async def _too_many(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Refuse all topics, as Apache Kafka does."""
    response = CreateTopicsResponse(topics=[])

    def tell() -> Iterator[int]:
        for topic in request.topics:
            response.topics.append(
                CreatableTopicResult(
                    name=topic.name,
                    error_code=int(PolicyViolation.code),
                    error_message="Unable to perform excessively large batch operation.",
                    configs=[],
                )
            )
            yield 1

    await context.turns(tell())
    return response


def _new(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {one.partition_index: tuple(one.broker_ids) for one in topic.assignments},
        {config.name: config.value for config in topic.configs},
    )


def _result(outcome: TopicOutcome) -> CreatableTopicResult:
    assert outcome.name is not None
    return CreatableTopicResult(
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=int(outcome.error),
        error_message=outcome.message,
        num_partitions=outcome.num_partitions,
        replication_factor=outcome.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=int(config.source),
            )
            for config in outcome.configs
        ],
    )
