"""CreatePartitions 0-3: adds partitions to topics (KIP-195). v2 is flexible.

The response is sent when the partitions are served here. Left out: quotas on changes (KIP-599).
"""

from __future__ import annotations

from collections.abc import Iterator

from raylog.actors.controller.messages import (
    PARTITIONS_PER_REQUEST_MAX,
    CreatePartitions,
    MorePartitions,
    TopicOutcome,
)
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.parts import in_parts
from raylog.actors.gateway.topic_changes import create_partitions as change
from raylog.wire.errors import PolicyViolation
from raylog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def create_partitions(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions through the controller; each topic succeeds or fails independently."""
    if len(request.topics) > PARTITIONS_PER_REQUEST_MAX:
        return await _too_many(context, request)
    room = PARTITIONS_PER_REQUEST_MAX
    topics: list[MorePartitions] = []
    response = CreatePartitionsResponse(results=[])

    def read() -> Iterator[int]:
        for topic in request.topics:
            topics.append(_more(topic))
            yield 1 + len(topic.assignments or ())

    async def ask(some: list[MorePartitions]) -> list[TopicOutcome]:
        nonlocal room
        asked = CreatePartitions(some, request.validate_only, room)
        image = context.gateway.cluster.image
        known = {one.name: image.topic(one.name) for one in some}
        before = {name: len(topic.partitions) for name, topic in known.items() if topic}
        outcomes = await change(context.gateway, asked, request.timeout_ms)
        made = [one for one in outcomes if not one.error]
        room -= sum(one.num_partitions - before.get(one.name or "", 0) for one in made)
        return outcomes

    def tell(outcomes: list[TopicOutcome]) -> Iterator[int]:
        for outcome in outcomes:
            response.results.append(_result(outcome))
            yield 1

    await context.turns(read())
    await context.turns(tell(await in_parts(topics, ask, lambda topic: topic.name)))
    return response


async def _too_many(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Refuse all topics, as Apache Kafka does."""
    response = CreatePartitionsResponse(results=[])

    def tell() -> Iterator[int]:
        for topic in request.topics:
            response.results.append(
                CreatePartitionsTopicResult(
                    name=topic.name,
                    error_code=int(PolicyViolation.code),
                    error_message="Excessively large number of partitions per request.",
                )
            )
            yield 1

    await context.turns(tell())
    return response


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
