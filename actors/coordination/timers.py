"""Many timers on top of one runtime timer: members reset theirs with every heartbeat."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence

from raylog.actors.coordination.rules.step import TimerChange, TimerKey
from raylog.actors.runtime.base import Runtime, Timer

Name = tuple[str, TimerKey]
"""(group id, key)."""
_NEVER = float("inf")
FIRED_AT_ONCE = 250
"""Timers fired in one turn: after a load all sessions expire at the same moment."""
_STALE = 64
"""Number of stale heap entries allowed beyond the number of timers."""


class Timers:
    """The timers of one shard; `fire(group id, key)` is called when one is due.

    Postponing a timer changes only its time. Its heap entry is checked when the earlier time comes,
    so a heartbeat adds no entry. Entries of timers that were cancelled or moved to an earlier time
    are dropped when they outnumber the others, because their time may be weeks away.
    """

    def __init__(self, runtime: Runtime, fire: Callable[[str, TimerKey], None]) -> None:
        self._runtime = runtime
        self._fire = fire
        self._due: dict[Name, float] = {}
        self._heap: list[tuple[float, int, Name]] = []
        self._queued: dict[Name, float] = {}
        """The earliest heap entry of each name."""
        self._numbers = itertools.count()
        self._timer: Timer | None = None
        self._timer_at = _NEVER

    def __len__(self) -> int:
        return len(self._due)

    def set(self, name: Name, at_ms: float) -> None:
        """Fire at a monotonic time; replaces a timer with that name."""
        self._put(name, at_ms)
        self._arm()

    def ensure(self, name: Name, at_ms: float) -> None:
        """Fire at a monotonic time, unless there is a timer with that name."""
        if name not in self._due:
            self.set(name, at_ms)

    def cancel(self, name: Name) -> None:
        """Cancel a timer, if there is one."""
        if self._due.pop(name, None) is not None:
            self._drop_stale()

    def apply(self, changes: Sequence[TimerChange]) -> None:
        """Carry out a step's changes, in order."""
        for group_id, key, at_ms, replaces in changes:
            if at_ms is None:
                self.cancel((group_id, key))
            elif replaces or (group_id, key) not in self._due:
                self._put((group_id, key), at_ms)
        self._arm()

    def clear(self) -> None:
        """Cancel all timers."""
        self._due.clear()
        self._heap.clear()
        self._queued.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = _NEVER

    def _put(self, name: Name, at_ms: float) -> None:
        self._due[name] = at_ms
        if at_ms < self._queued.get(name, _NEVER):
            self._push(name, at_ms)

    def _push(self, name: Name, at_ms: float) -> None:
        self._queued[name] = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), name))
        self._drop_stale()

    def _drop_stale(self) -> None:
        if len(self._heap) > 2 * len(self._due) + _STALE:
            self._queued = self._due.copy()
            self._heap = [(at_ms, next(self._numbers), name) for name, at_ms in self._due.items()]
            heapq.heapify(self._heap)

    def _arm(self) -> None:
        """Set the runtime's timer to the first heap entry."""
        if not self._heap or self._heap[0][0] >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._heap[0][0]
        delay_ms = max(0.0, self._timer_at - self._runtime.monotonic_ms())
        self._timer = self._runtime.call_later(delay_ms, self._look)

    def _look(self) -> None:
        self._timer, self._timer_at = None, _NEVER
        now_ms = self._runtime.monotonic_ms()
        firing: list[Name] = []
        while self._heap and self._heap[0][0] <= now_ms and len(firing) < FIRED_AT_ONCE:
            at_ms, _, name = heapq.heappop(self._heap)
            if self._queued.get(name) != at_ms:
                continue  # superseded by an earlier entry
            del self._queued[name]
            due = self._due.get(name)
            if due is None:
                continue
            if due > now_ms:
                self._push(name, due)
            else:
                firing.append(name)
        self._arm()
        for name in firing:
            if self._due.get(name, _NEVER) <= now_ms:  # an earlier timer may have postponed it
                del self._due[name]
                self._fire(*name)
