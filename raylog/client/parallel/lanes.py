"""Which records of a partition may run now: a lane holds those that run one after the other."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable
from itertools import count

from raylog.client.parallel.policy import Order
from raylog.client.parallel.progress import Entry


class Lane:
    """Records that run in order; a cell that takes from it has it until the cell ends."""

    __slots__ = ("is_taken", "name", "queue")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.queue: deque[Entry] = deque()
        self.is_taken = False


class Lanes:
    """The lanes of one partition. Those taken outlive the partition's revocation.

    So a record never runs beside one of its key that is still running from an earlier assignment.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._lanes: dict[Hashable, Lane] = {}
        self._ready: list[tuple[int, int, Lane]] = []
        """Lanes that are not taken and have records, lowest offset first."""
        self._ties = count()

    @property
    def is_unused(self) -> bool:
        """Whether there is nothing to remember."""
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
        """The next record that may run."""
        return self._ready[0][2].queue[0] if self._ready else None

    def take(self) -> tuple[Lane, Entry]:
        """Take the lane of `first()`, and that record out of it."""
        lane = heapq.heappop(self._ready)[2]
        lane.is_taken = True
        return lane, lane.queue.popleft()

    def give_back(self, lanes: Iterable[Lane]) -> None:
        """A cell ended: what waited in its lanes may run."""
        for lane in lanes:
            lane.is_taken = False
            if lane.queue:
                heapq.heappush(self._ready, (lane.queue[0].offset, next(self._ties), lane))
            else:
                del self._lanes[lane.name]

    def clear(self) -> None:
        """Forget what is queued; what is taken stays so."""
        self._ready.clear()
        for lane in self._lanes.values():
            lane.queue.clear()
        self._lanes = {name: lane for name, lane in self._lanes.items() if lane.is_taken}

    def _name(self, entry: Entry) -> Hashable:
        if self._order is Order.PARTITION:
            return None
        if self._order is Order.KEY and entry.record.key is not None:
            return entry.record.key
        return entry.offset  # an integer is no bytes: a lane of its own
