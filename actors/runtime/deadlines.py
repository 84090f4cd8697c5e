"""Deadlines of requests that hardly ever reach them: one timer, and none while nothing waits."""

from __future__ import annotations

from typing import Protocol

from raylog.actors.runtime.base import Runtime, Timer

TICK_MS = 1_000
"""How late a deadline may be noticed, at most twice that."""


class Expiring(Protocol):
    """A request under way."""

    def timed_out(self) -> None:
        """The deadline is over."""


class Due(dict[Expiring, None]):
    """Requests in the order in which they came: a simulation repeats."""

    def discard(self, one: Expiring) -> None:
        """Take one off that may be gone."""
        self.pop(one, None)


class Deadlines:
    """Requests by the second in which they run out of time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due: dict[int, Due] = {}
        self._timer: Timer | None = None

    def add(self, one: Expiring, delay_ms: float) -> Due:
        """Have `one.timed_out()` called after `delay_ms`, unless it leaves the set it is put in."""
        second = int((self._runtime.monotonic_ms() + delay_ms) // TICK_MS) + 1
        due = self._due.get(second)
        if due is None:
            due = self._due[second] = Due()
            if self._timer is None:
                self._timer = self._runtime.call_later(TICK_MS, self._tick)
        due[one] = None
        return due

    def _tick(self) -> None:
        now = int(self._runtime.monotonic_ms() // TICK_MS)
        over = [due for second, due in self._due.items() if second <= now]
        self._due = {second: due for second, due in self._due.items() if second > now and due}
        self._timer = self._runtime.call_later(TICK_MS, self._tick) if self._due else None
        for due in over:
            for one in tuple(due):
                one.timed_out()
