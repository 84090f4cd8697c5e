"""DeleteTopics 1-6: by name, since v6 also by id (KIP-516). v5 adds messages.

The answer comes when this gateway knows the topic no more. Left out: quotas on changes (KIP-599).
"""

from __future__ import annotations

from functools import partial

from raylog.actors.controller.api import DeleteTopics, TopicOutcome
from raylog.actors.gateway.answers import attempt
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.topic_changes import delete_topics as change
from raylog.actors.ports import TopicId
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
    """Have the controller delete them; each succeeds or fails on its own."""
    asked = request.topics
    if context.version < TOPIC_IDS_SINCE:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    results: list[DeletableTopicResult] = []
    sound = DeleteTopics()
    for one in asked:
        refused = _refused(one)
        if refused is not None:
            results.append(refused)
        elif one.name is not None:
            sound.names.append(one.name)
        else:
            sound.topic_ids.append(TopicId(one.topic_id))
    outcomes = await change(context.gateway, sound, request.timeout_ms)
    results.extend(_result(outcome, context.version) for outcome in outcomes)
    return DeleteTopicsResponse(responses=results)


def _refused(asked: DeleteTopicState) -> DeletableTopicResult | None:
    """The answer to an item that says too much or too little; None for a sound one."""
    return attempt(
        partial(_check, asked),
        lambda code, message: DeletableTopicResult(
            name=asked.name, topic_id=asked.topic_id, error_code=code, error_message=message
        ),
    )


def _check(asked: DeleteTopicState) -> None:
    by_id = asked.topic_id != ZERO_UUID
    if by_id and asked.name is not None:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if not by_id and asked.name is None:
        raise InvalidRequest("Neither topic name nor id were specified.")


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
