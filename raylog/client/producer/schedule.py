"""Which partitions may send, and when others may: a state machine without I/O.

The work per request does not depend on the number of partitions without batches: partitions that
may send are in a dictionary of their own, those that wait for a time are in heaps ordered by time.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from raylog.client.producer.queue import PartitionQueue

_OUTDATED_MAX = 64
"""A heap may have this many outdated entries before they are removed."""


class Schedule:
    """The partitions of one accumulator that have batches."""

    def __init__(self) -> None:
        self._ready: dict[PartitionQueue, None] = {}
        """Partitions that may send now; one that has sent goes to the end, so all get a turn."""
        self._lingering: list[tuple[float, int, PartitionQueue]] = []
        """Heap of partitions whose first batch is open, by its creation; may hold outdated ones."""
        self._delayed: list[tuple[float, int, PartitionQueue]] = []
        """Heap of delayed partitions, by the end of the delay; may hold outdated ones."""
        self._lingering_kept = 0
        """Number of entries left when outdated ones were last removed."""
        self._order = itertools.count()

    def __iter__(self) -> Iterator[PartitionQueue]:
        """Iterate over the partitions that may send."""
        return iter(self._ready)

    def ready(self, now_ms: float, linger_ms: float) -> list[PartitionQueue]:
        """Return the partitions with a batch that may be sent: full, or old enough."""
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
        """Return when the next batch becomes ready by itself; infinite if none will."""
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
        """Update when a partition may send next; call this whenever that may have changed."""
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
        """Do the same for a partition that has just sent, which goes behind the others."""
        self._ready.pop(queue, None)
        self.put(queue)

    def delay(self, queue: PartitionQueue, not_before_ms: float) -> None:
        """Send nothing to a partition until a time."""
        if not_before_ms > queue.not_before_ms:
            queue.not_before_ms = not_before_ms
            heapq.heappush(self._delayed, (not_before_ms, next(self._order), queue))
        self.put(queue)

    def clear(self) -> None:
        """Drop all partitions: nothing is left to send."""
        self._ready.clear()


def _is_current(lingering: tuple[float, int, PartitionQueue]) -> bool:
    """Whether an entry of `Schedule._lingering` is up to date."""
    return lingering[2].lingers_since_ms == lingering[0]
