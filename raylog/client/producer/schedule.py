"""Which partitions may send, and when others may: a machine without I/O.

Nothing here that is done for each request looks at partitions that have nothing to send: those that
may send are kept apart, those that wait for a time are in heaps, by that time.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from raylog.client.producer.queue import PartitionQueue

_OUTDATED_MAX = 64
"""So many entries of a heap may be out of date before it is cleared of them."""


class Schedule:
    """The partitions of one accumulator that have batches."""

    def __init__(self) -> None:
        self._ready: dict[PartitionQueue, None] = {}
        """May send now; who sent goes to the end, so that all have their turn."""
        self._lingering: list[tuple[float, int, PartitionQueue]] = []
        """By creation, partitions whose first batch is open; entries may be out of date."""
        self._delayed: list[tuple[float, int, PartitionQueue]] = []
        """By time, partitions that wait for it; entries may be out of date."""
        self._lingering_kept = 0
        """Entries that were not out of date when the heap was cleared last."""
        self._order = itertools.count()

    def __iter__(self) -> Iterator[PartitionQueue]:
        """Those that may send."""
        return iter(self._ready)

    def ready(self, now_ms: float, linger_ms: float) -> list[PartitionQueue]:
        """Partitions with a batch that may be sent: full, or old enough."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            at_ms, _, queue = heapq.heappop(self._delayed)
            if queue.not_before_ms == at_ms:
                queue.not_before_ms = 0.0
                self.put(queue)
        while self._lingering and self._lingering[0][0] + linger_ms <= now_ms:
            since_ms, _, queue = heapq.heappop(self._lingering)
            if queue.lingers_since_ms == since_ms:
                self._ready[queue] = None
        return list(self._ready)

    def next_ready_ms(self, linger_ms: float) -> float:
        """When the next batch becomes ready by itself; infinite if none will."""
        if self._ready:
            return 0.0
        while self._delayed and self._delayed[0][2].not_before_ms != self._delayed[0][0]:
            heapq.heappop(self._delayed)
        while self._lingering and not _is_current(self._lingering[0]):
            heapq.heappop(self._lingering)
        return min(
            self._delayed[0][0] if self._delayed else float("inf"),
            self._lingering[0][0] + linger_ms if self._lingering else float("inf"),
        )

    def put(self, queue: PartitionQueue) -> None:
        """Note when a partition may send next; to be called when that may have changed."""
        if not queue.may_send:
            self._ready.pop(queue, None)
        elif queue.is_sealed:
            self._ready[queue] = None
        else:
            self._ready.pop(queue, None)
            if len(self._lingering) > 2 * self._lingering_kept + _OUTDATED_MAX:
                self._lingering = [one for one in self._lingering if _is_current(one)]
                heapq.heapify(self._lingering)
                self._lingering_kept = len(self._lingering)
            created_ms = queue.batches[0].created_ms
            heapq.heappush(self._lingering, (created_ms, next(self._order), queue))

    def put_last(self, queue: PartitionQueue) -> None:
        """The same; it has sent, so that others have their turn first."""
        self._ready.pop(queue, None)
        self.put(queue)

    def delay(self, queue: PartitionQueue, not_before_ms: float) -> None:
        """Let a partition send nothing for a while."""
        if not_before_ms > queue.not_before_ms:
            queue.not_before_ms = not_before_ms
            heapq.heappush(self._delayed, (not_before_ms, next(self._order), queue))
        self.put(queue)

    def clear(self) -> None:
        """Nothing is left to send."""
        self._ready.clear()


def _is_current(lingering: tuple[float, int, PartitionQueue]) -> bool:
    """Whether an entry of `Schedule._lingering` is not out of date."""
    return lingering[2].lingers_since_ms == lingering[0]
