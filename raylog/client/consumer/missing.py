"""Warnings about wanted topics and partitions that do not exist or are not visible."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from raylog.client.cluster import ClusterView, TopicPartition

_log = logging.getLogger(__name__)
_PATIENCE_MS = 1_000.0
"""No warning before then: a topic that is being created is missing for a moment."""


class MissingTopics:
    """Warns once about each missing topic or partition: the consumer may wait for it forever."""

    def __init__(self, cluster: ClusterView, now_ms: Callable[[], float]) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self._since_ms: dict[str | TopicPartition, float] = {}
        self._warned: set[str | TopicPartition] = set()

    def look(self, topics: Iterable[str]) -> None:
        """Check topics whose metadata was just refreshed."""
        for name in topics:
            failure = self._cluster.failures.get(name)
            if self._is_news(name, is_missing=failure is not None):
                assert failure is not None, "it is missing"
                _log.warning("waiting for topic %r: the broker answers %s", name, failure.code.name)

    def look_at(self, key: TopicPartition) -> None:
        """Check a partition that cannot be read now."""
        topic = self._cluster.topics.get(key.topic)
        is_missing = topic is not None and key.partition not in topic.partitions
        if self._is_news(key, is_missing=is_missing):
            assert topic is not None, "the partition is missing"
            _log.warning(
                "waiting for partition %s of topic %r, which has %d: expected one below that",
                key.partition,
                key.topic,
                len(topic.partitions),
            )

    def _is_news(self, what: str | TopicPartition, *, is_missing: bool) -> bool:
        """Return whether to warn: missing for a while, and no warning was logged yet."""
        if not is_missing:
            self._since_ms.pop(what, None)
            self._warned.discard(what)
            return False
        now_ms = self._now_ms()
        if now_ms - self._since_ms.setdefault(what, now_ms) < _PATIENCE_MS or what in self._warned:
            return False
        self._warned.add(what)
        return True
