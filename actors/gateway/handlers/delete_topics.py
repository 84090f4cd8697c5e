"""DeleteTopics 1-6: by name, from v6 on also by id (KIP-516). v5 adds error messages.

The response is sent when this gateway no longer knows the topic. Left out: quotas on changes
(KIP-599).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from raylog.actors.common_messages import TopicId
from raylog.actors.controller.messages import DeleteTopics, TopicOutcome
from raylog.actors.gateway.answers import attempt
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.parts import in_parts
from raylog.actors.gateway.topic_changes import delete_topics as change
from raylog.wire.errors import InvalidRequest, TopicDeletionDisabled
from raylog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from raylog.wire.uuids import ZERO_UUID

TOPIC_IDS_SINCE = 6
DISABLED_SINCE = 3


async def delete_topics(
    context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete topics through the controller; each succeeds or fails independently."""
    asked = request.topics
    if context.version < TOPIC_IDS_SINCE:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    image = context.gateway.cluster.image
    doubled = {image.topic_ids.get(one.name or "") for one in asked} & {
        one.topic_id for one in asked
    }
    results: list[DeletableTopicResult] = []
    sound: list[DeleteTopicState] = []

    def each() -> Iterator[int]:
        for one in asked:
            yield 1
            if one.name is None and one.topic_id in doubled:
                continue  # the result for its name covers its id
            known = image.topic_ids.get(one.name or "", TopicId(one.topic_id))
            refused = attempt(
                partial(_check, one, doubled=one.name is not None and known in doubled),
                partial(_refused, one.name, known),
            )
            if refused is None:
                sound.append(one)
            else:
                results.append(refused)

    async def ask(some: list[DeleteTopicState]) -> list[TopicOutcome]:
        names = [one.name for one in some if one.name is not None]
        topic_ids = [TopicId(one.topic_id) for one in some if one.name is None]
        return await change(context.gateway, DeleteTopics(names, topic_ids), request.timeout_ms)

    await context.turns(each())
    outcomes = await in_parts(sound, ask, lambda one: one.name or one.topic_id)
    results.extend(_result(outcome, context.version) for outcome in outcomes)
    return DeleteTopicsResponse(responses=results)


def _refused(
    name: str | None, topic_id: TopicId, code: int, message: str | None
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=code, error_message=message
    )


def _check(topic: DeleteTopicState, *, doubled: bool) -> DeletableTopicResult | None:
    """Raise InvalidRequest for an item with both or neither of name and id, or a repeated one."""
    by_id = topic.topic_id != ZERO_UUID
    if by_id and topic.name is not None:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if not by_id and topic.name is None:
        raise InvalidRequest("Neither topic name nor id were specified.")
    if doubled:
        raise InvalidRequest("The provided topic name maps to an ID that was already supplied.")
    return None


def _result(outcome: TopicOutcome, version: int) -> DeletableTopicResult:
    error = outcome.error
    if error == TopicDeletionDisabled.code and version < DISABLED_SINCE:
        error = InvalidRequest.code
    return DeletableTopicResult(
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=int(error),
        error_message=outcome.message,
    )
