"""CreateTopics 2-7: by number of partitions or by their placement.

v4 takes -1 for the defaults (KIP-464), v5 tells the topic's settings (KIP-525), v7 its id
(KIP-516). The answer comes when the topic is served here, which Kafka does not wait for.
Left out: quotas on changes (KIP-599).
"""

from __future__ import annotations

from raylog.actors.controller.api import CreateTopics, NewTopic, TopicOutcome
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.topic_changes import create_topics as change
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
    """Have the controller create them; each succeeds or fails on its own."""
    asked = CreateTopics([_new(topic) for topic in request.topics], request.validate_only)
    outcomes = await change(context.gateway, asked, request.timeout_ms)
    return CreateTopicsResponse(topics=[_result(outcome) for outcome in outcomes])


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
