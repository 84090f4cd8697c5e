"""CreatePartitions 0-3: more partitions for topics (KIP-195). v2 is flexible.

The answer comes when the partitions are served here. Left out: quotas on changes (KIP-599).
"""

from __future__ import annotations

from raylog.actors.controller.api import CreatePartitions, MorePartitions, TopicOutcome
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.topic_changes import create_partitions as change
from raylog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def create_partitions(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Have the controller add them; each topic succeeds or fails on its own."""
    asked = CreatePartitions([_more(topic) for topic in request.topics], request.validate_only)
    outcomes = await change(context.gateway, asked, request.timeout_ms)
    return CreatePartitionsResponse(results=[_result(outcome) for outcome in outcomes])


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    if topic.assignments is None:
        return MorePartitions(topic.name, topic.count)
    return MorePartitions(
        topic.name, topic.count, [tuple(one.broker_ids) for one in topic.assignments]
    )


def _result(outcome: TopicOutcome) -> CreatePartitionsTopicResult:
    assert outcome.name is not None
    return CreatePartitionsTopicResult(
        name=outcome.name, error_code=int(outcome.error), error_message=outcome.message
    )
