"""Which records of a partition may run now. A lane holds records that run one after another."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable
from itertools import count

from raylog.client.parallel.policy import Order
from raylog.client.parallel.progress import Entry


class Lane:
    """Records that run in order; a cell that takes one holds the lane until the cell ends."""

    __slots__ = ("is_taken", "name", "queue")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.queue: deque[Entry] = deque()
        self.is_taken = False


class Lanes:
    """The lanes of one partition. A taken lane outlives the partition's revocation.

    So a record never runs concurrently with one of its key that still runs from an earlier
    assignment.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._lanes: dict[Hashable, Lane] = {}
        self._ready: list[tuple[int, int, Lane]] = []
        """Free lanes with records, lowest offset first."""
        self._ties = count()

    @property
    def is_unused(self) -> bool:
        """Whether no lane exists."""
        return not self._lanes

    def add(self, entry: Entry) -> None:
        """Queue a record."""
        name = self._name(entry)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name)
        lane.queue.append(entry)
        if len(lane.queue) == 1 and not lane.is_taken:
            heapq.heappush(self._ready, (entry.offset, next(self._ties), lane))

    def first(self) -> Entry | None:
        """Return the next record that may run."""
        return self._ready[0][2].queue[0] if self._ready else None

    def take(self) -> tuple[Lane, Entry]:
        """Take the lane of `first()`, and remove that record from it."""
        lane = heapq.heappop(self._ready)[2]
        lane.is_taken = True
        return lane, lane.queue.popleft()

    def give_back(self, lanes: Iterable[Lane]) -> None:
        """Free a finished cell's lanes, so that their next records may run."""
        for lane in lanes:
            lane.is_taken = False
            if lane.queue:
                heapq.heappush(self._ready, (lane.queue[0].offset, next(self._ties), lane))
            else:
                del self._lanes[lane.name]

    def clear(self) -> None:
        """Drop queued records; lanes that are taken stay taken."""
        self._ready.clear()
        for lane in self._lanes.values():
            lane.queue.clear()
        self._lanes = {name: lane for name, lane in self._lanes.items() if lane.is_taken}

    def _name(self, entry: Entry) -> Hashable:
        if self._order is Order.PARTITION:
            return None
        if self._order is Order.KEY and entry.record.key is not None:
            return entry.record.key
        return entry.offset  # an int never equals a key: a lane of its own
