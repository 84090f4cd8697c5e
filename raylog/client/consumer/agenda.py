"""A schedule of when to look at partitions again."""

from __future__ import annotations

import heapq
import math

from raylog.client.cluster import TopicPartition

_DEAD_ENTRIES = 64


class Agenda:
    """The earliest scheduled time of each partition."""

    def __init__(self) -> None:
        self._times: dict[TopicPartition, float] = {}
        self._heap: list[tuple[float, TopicPartition]] = []
        """Entries that no longer match `_times` are ignored."""

    def set(self, key: TopicPartition, at_ms: float) -> None:
        """Schedule a partition; keep the current time if it is earlier."""
        if at_ms >= self._times.get(key, float("inf")):
            return
        self._times[key] = at_ms
        heapq.heappush(self._heap, (at_ms, key))
        if len(self._heap) > 2 * len(self._times) + _DEAD_ENTRIES:
            self._heap = [(time_ms, key) for key, time_ms in self._times.items()]
            heapq.heapify(self._heap)

    def drop(self, key: TopicPartition) -> None:
        """Unschedule a partition."""
        self._times.pop(key, None)

    @property
    def next_ms(self) -> float:
        """The earliest scheduled time; infinity if there is none."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else float("inf")

    def due(self, now_ms: float) -> list[TopicPartition]:
        """Remove and return the partitions whose time has come."""
        found = []
        while self.next_ms <= now_ms:
            _, key = heapq.heappop(self._heap)
            del self._times[key]
            found.append(key)
        return found


def aligned(now_ms: float, pause_ms: float, first_ms: float) -> float:
    """Return when a pause ends, rounded up so that many partitions wake together.

    `first_ms` is the shortest pause in use. Rounding may lengthen a longer pause by up to half.
    """
    tick_ms = max(1.0, first_ms)
    while 4 * tick_ms <= pause_ms:
        tick_ms *= 2
    return math.ceil((now_ms + pause_ms) / tick_ms) * tick_ms
