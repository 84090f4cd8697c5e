"""Restart backoff: how long to wait before starting something that keeps failing."""

from __future__ import annotations

import math
from dataclasses import dataclass

LOSSES_AT_ONCE = 5
"""Consecutive failures after which the next start is delayed."""
FIRST_MS = 1_000
"""First delay. It doubles with each failure, up to LONGEST_MS."""
LONGEST_MS = 10_000
"""Something that ran at least this long starts a new series of failures when it ends: restarting
it every so often cannot keep a core busy."""


@dataclass(slots=True)
class Backoff:
    """The delays between the starts of one thing. Times are in ms on any clock.

    The first restarts are immediate. A crash loop would keep a core busy starting processes, so
    later restarts are delayed; they never stop, since a port or a disk may come back.
    """

    losses: int = 0
    """Consecutive failures."""
    due_ms: float = -math.inf
    """When the last start was due."""

    def lost(self, now_ms: float) -> int:
        """Record that it ended or did not start; return how many ms to wait for the next start."""
        if now_ms - self.due_ms >= LONGEST_MS:
            self.losses = 0
        self.losses += 1
        beyond = self.losses - LOSSES_AT_ONCE
        delay_ms = min(FIRST_MS << min(beyond - 1, 16), LONGEST_MS) if beyond > 0 else 0
        self.due_ms = now_ms + delay_ms
        return delay_ms

    def wait_ms(self, now_ms: float) -> float:
        """Return how long to wait until the next start is due, in ms."""
        return max(0, self.due_ms - now_ms)
