"""Topics that a consumer wants and brokers do not have, or do not show to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from raylog.client.cluster import ClusterView
from raylog.wire.errors import KafkaError

_log = logging.getLogger(__name__)
_PATIENCE_MS = 1_000.0
"""A topic that is being created is missing for a moment; that is not worth a warning."""


class MissingTopics:
    """Warns of each missing topic once: a consumer waits for it, and may wait for ever."""

    def __init__(self, cluster: ClusterView, now_ms: Callable[[], float]) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self._since_ms: dict[str, float] = {}
        self._warned: set[str] = set()

    def look(self, topics: Iterable[str]) -> None:
        """Look at topics whose metadata was asked for just now."""
        now_ms = self._now_ms()
        for name in topics:
            failure = self._cluster.failures.get(name)
            if failure is None:
                self._since_ms.pop(name, None)
                self._warned.discard(name)
            elif now_ms - self._since_ms.setdefault(name, now_ms) >= _PATIENCE_MS:
                self._warn(name, failure)

    def _warn(self, name: str, failure: KafkaError) -> None:
        if name not in self._warned:
            self._warned.add(name)
            _log.warning("waiting for topic %r: the broker answers %s", name, failure.code.name)
