"""Deadlines of requests that rarely reach them: one shared timer, none while nothing waits."""

from __future__ import annotations

from typing import Protocol

from raylog.actors.runtime.base import Runtime, Timer

TICK_MS = 1_000
"""A deadline is noticed at most twice this late."""


class Expiring(Protocol):
    """A request in progress."""

    def timed_out(self) -> None:
        """The deadline has passed."""


class Due(dict[Expiring, None]):
    """Requests in order of arrival, which keeps simulations reproducible."""

    def discard(self, one: Expiring) -> None:
        """Remove a request, if it is still there."""
        self.pop(one, None)


class Deadlines:
    """Requests by the second of their deadline."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due: dict[int, Due] = {}
        self._timer: Timer | None = None

    def add(self, one: Expiring, delay_ms: float) -> Due:
        """Call `one.timed_out()` after `delay_ms`, unless it is removed from the returned set."""
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
