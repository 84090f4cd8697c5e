"""Changes topics through the Controller, and waits until this gateway sees the change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from raylog.actors.common_messages import TopicId
from raylog.actors.controller.messages import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    TopicOutcome,
)
from raylog.actors.controller.rules.internal_topics import internal_topic
from raylog.actors.coordinator_kinds import KIND_OF_TOPIC
from raylog.actors.gateway.interceptor_trials import refused_topics
from raylog.actors.gateway.parts import PART
from raylog.actors.remote import Controller, Method
from raylog.actors.runtime.waiting import until
from raylog.wire.errors import ErrorCode, TopicAlreadyExists

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor

log = logging.getLogger(__name__)
A = TypeVar("A", CreateTopics, CreatePartitions)
AUTO_CREATE_TIMEOUT_MS = 30_000
"""For topics requested by clients; a topic not created by then is tried again."""
SEEN_TIMEOUT_MS = 5_000
"""A committed change is answered after this time even if this gateway has not seen it."""


async def create_topics(
    gateway: GatewayActor, request: CreateTopics, timeout_ms: int
) -> list[TopicOutcome]:
    """Create topics; when this returns they are served here, unless it timed out."""
    kept, refused = await refused_topics(gateway, request.topics)
    request = request._replace(topics=kept)
    return await _made(gateway, Controller.create_topics, request, timeout_ms) + refused


class MissingTopics:
    """Creates topics because clients asked for their metadata."""

    def __init__(self, gateway: GatewayActor) -> None:
        self._gateway = gateway
        self._coming: set[str] = set()

    def create(self, names: Iterable[str]) -> None:
        """Create topics with the default settings, unless that is already in progress."""
        fresh = [name for name in names if name not in self._coming]
        if fresh:
            self._coming.update(fresh)
            self._gateway.runtime.start(self._create(fresh), "topics that clients asked for")

    async def _create(self, names: list[str]) -> None:
        try:
            for start in range(0, len(names), PART):
                some = [_new_topic(self._gateway, name) for name in names[start : start + PART]]
                await _create_missing(self._gateway, some, AUTO_CREATE_TIMEOUT_MS)
        finally:
            self._coming.difference_update(names)


async def create_internal(gateway: GatewayActor, name: str, timeout_ms: int) -> None:
    """Create a coordinator's topic, unless that is already in progress."""
    await _create_missing(gateway, [_new_topic(gateway, name)], timeout_ms)


def _new_topic(gateway: GatewayActor, name: str) -> NewTopic:
    if name not in KIND_OF_TOPIC:
        return NewTopic(name)
    return internal_topic(name, gateway.settings, len(gateway.cluster.image.brokers))


async def _create_missing(gateway: GatewayActor, topics: list[NewTopic], timeout_ms: int) -> None:
    asked = CreateTopics(topics)
    coming = []
    for outcome in await _outcomes(gateway, Controller.create_topics, asked, timeout_ms):
        if outcome.error in (ErrorCode.NONE, TopicAlreadyExists.code):
            coming.append(outcome.name)
        else:
            log.warning("topic %s was not created: %s", outcome.name, outcome.message)

    def all_served() -> bool:
        image = gateway.cluster.image
        topics = [image.topic(name) for name in coming if name is not None]
        return all(topic is not None and gateway.cluster.serves(topic) for topic in topics)

    await seen(gateway, all_served, timeout_ms)


async def create_partitions(
    gateway: GatewayActor, request: CreatePartitions, timeout_ms: int
) -> list[TopicOutcome]:
    """Add partitions; when this returns they are served here, unless it timed out."""
    return await _made(gateway, Controller.create_partitions, request, timeout_ms)


async def delete_topics(
    gateway: GatewayActor, request: DeleteTopics, timeout_ms: int
) -> list[TopicOutcome]:
    """Delete topics; when this returns this gateway has forgotten them, unless it timed out."""

    def refused(code: int, message: str | None) -> list[TopicOutcome]:
        error = ErrorCode(code)
        return [TopicOutcome(name, error=error, message=message) for name in request.names] + [
            TopicOutcome(None, topic_id, error, message) for topic_id in request.topic_ids
        ]

    outcomes = await gateway.controller.outcomes(
        Controller.delete_topics, request, timeout_ms, refused
    )
    gone = {outcome.topic_id for outcome in outcomes if not outcome.error}
    await seen(gateway, lambda: gone.isdisjoint(gateway.cluster.image.topics), timeout_ms)
    return outcomes


async def _made(
    gateway: GatewayActor, method: Method[A, list[TopicOutcome]], request: A, timeout_ms: int
) -> list[TopicOutcome]:
    outcomes = await _outcomes(gateway, method, request, timeout_ms)
    made = {one.topic_id: one.num_partitions for one in outcomes if not one.error}

    def all_served() -> bool:
        return all(_is_served(gateway, topic_id, count) for topic_id, count in made.items())

    if not request.validate_only:
        await seen(gateway, all_served, timeout_ms)
    return outcomes


async def _outcomes(
    gateway: GatewayActor, method: Method[A, list[TopicOutcome]], request: A, timeout_ms: int
) -> list[TopicOutcome]:
    def refused(code: int, message: str | None) -> list[TopicOutcome]:
        error = ErrorCode(code)
        return [TopicOutcome(one.name, error=error, message=message) for one in request.topics]

    return await gateway.controller.outcomes(method, request, timeout_ms, refused)


def _is_served(gateway: GatewayActor, topic_id: TopicId, count: int) -> bool:
    topic = gateway.cluster.image.topics.get(topic_id)
    return topic is not None and len(topic.partitions) >= count and gateway.cluster.serves(topic)


async def seen(gateway: GatewayActor, holds: Callable[[], bool], timeout_ms: int) -> None:
    """Wait until this gateway's image shows a change, up to a timeout."""
    await until(gateway.runtime, gateway.cluster.on_change, holds, min(timeout_ms, SEEN_TIMEOUT_MS))
