"""Changing topics through the Controller, and waiting until this gateway sees the change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from raylog.actors.controller.api import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    TopicOutcome,
)
from raylog.actors.controller.internal_topics import internal_topic
from raylog.actors.gateway.cluster_facts import INTERNAL_TOPICS
from raylog.actors.gateway.interceptor_trials import refused_topics
from raylog.actors.gateway.parts import PART
from raylog.actors.ports import TopicId
from raylog.actors.runtime.waiting import until
from raylog.wire.errors import ErrorCode, TopicAlreadyExists

if TYPE_CHECKING:
    from raylog.actors.gateway.actor import GatewayActor

log = logging.getLogger(__name__)
AUTO_CREATE_TIMEOUT_MS = 30_000
"""For topics that somebody asked for: a name that is not made by then is tried again."""
SEEN_TIMEOUT_MS = 5_000
"""A committed change that this gateway does not see by then is answered all the same."""


async def create_topics(
    gateway: GatewayActor, asked: CreateTopics, timeout_ms: int
) -> list[TopicOutcome]:
    """Create topics; those that were made are served here when this returns, if in time."""
    kept, refused = await refused_topics(gateway, asked.topics)
    asked = asked._replace(topics=kept)
    return await _made(gateway, "create_topics", asked, timeout_ms) + refused


class MissingTopics:
    """Topics that are made because clients asked for their metadata."""

    def __init__(self, gateway: GatewayActor) -> None:
        self._gateway = gateway
        self._coming: set[str] = set()

    def create(self, names: Iterable[str]) -> None:
        """Have topics made with the defaults, unless they are on their way."""
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
    """Create a topic in which coordinators keep their state, unless somebody else does."""
    await _create_missing(gateway, [_new_topic(gateway, name)], timeout_ms)


def _new_topic(gateway: GatewayActor, name: str) -> NewTopic:
    if name not in INTERNAL_TOPICS:
        return NewTopic(name)
    return internal_topic(name, gateway.settings, len(gateway.cluster.image.brokers))


async def _create_missing(gateway: GatewayActor, topics: list[NewTopic], timeout_ms: int) -> None:
    asked = CreateTopics(topics)
    coming = []
    for outcome in await _outcomes(gateway, "create_topics", asked, timeout_ms):
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
    gateway: GatewayActor, asked: CreatePartitions, timeout_ms: int
) -> list[TopicOutcome]:
    """Grow topics; the new partitions are served here when this returns, if in time."""
    return await _made(gateway, "create_partitions", asked, timeout_ms)


async def delete_topics(
    gateway: GatewayActor, asked: DeleteTopics, timeout_ms: int
) -> list[TopicOutcome]:
    """Delete topics; this gateway knows them no more when this returns, if in time."""

    def refused(code: int, message: str | None) -> list[TopicOutcome]:
        error = ErrorCode(code)
        return [TopicOutcome(name, error=error, message=message) for name in asked.names] + [
            TopicOutcome(None, topic_id, error, message) for topic_id in asked.topic_ids
        ]

    outcomes = await gateway.controller.outcomes("delete_topics", asked, timeout_ms, refused)
    gone = {outcome.topic_id for outcome in outcomes if not outcome.error}
    await seen(gateway, lambda: gone.isdisjoint(gateway.cluster.image.topics), timeout_ms)
    return outcomes


async def _made(
    gateway: GatewayActor, method: str, asked: CreateTopics | CreatePartitions, timeout_ms: int
) -> list[TopicOutcome]:
    outcomes = await _outcomes(gateway, method, asked, timeout_ms)
    made = {one.topic_id: one.num_partitions for one in outcomes if not one.error}

    def all_served() -> bool:
        return all(_is_served(gateway, topic_id, count) for topic_id, count in made.items())

    if not asked.validate_only:
        await seen(gateway, all_served, timeout_ms)
    return outcomes


async def _outcomes(
    gateway: GatewayActor, method: str, asked: CreateTopics | CreatePartitions, timeout_ms: int
) -> list[TopicOutcome]:
    def refused(code: int, message: str | None) -> list[TopicOutcome]:
        error = ErrorCode(code)
        return [TopicOutcome(one.name, error=error, message=message) for one in asked.topics]

    return await gateway.controller.outcomes(method, asked, timeout_ms, refused)


def _is_served(gateway: GatewayActor, topic_id: TopicId, count: int) -> bool:
    topic = gateway.cluster.image.topics.get(topic_id)
    return topic is not None and len(topic.partitions) >= count and gateway.cluster.serves(topic)


async def seen(gateway: GatewayActor, holds: Callable[[], bool], timeout_ms: int) -> None:
    """Wait until this gateway's image shows a change, but not for long."""
    await until(gateway.runtime, gateway.cluster.on_change, holds, min(timeout_ms, SEEN_TIMEOUT_MS))
